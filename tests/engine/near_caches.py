"""Near caches of tests, and the store behind them: a dict that can be held back and fail."""

import asyncio
import threading

from tests.waiting import PATIENCE, until
from wheelcache import Cache
from wheelcache.loading import steps
from wheelcache.near_cache import near_cache
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.trust_epoch import TrustEpoch

MISSING = near_cache.MISSING

TIMEOUT = 60.0
"""Seconds that a copy is kept."""


def level_of(clock, *, tracked=False, **options):
    """A level that is told of writes, but not trusted yet, if ``tracked``; else one that is told nothing."""
    epoch = TrustEpoch() if tracked else None
    cache = Cache("c", clock=clock, jitter=0, log_interval=None, sample_interval=None, stamps=epoch)
    return Level(NearCache(cache, TIMEOUT, epoch=epoch, **options))


class Level:
    """A near cache whose steps are driven: those of ``get`` by the thread, of ``aget`` by the task, and so on."""

    STEPS = ("get", "get_many", "lease", "has", "read", "write", "clear", "load")

    def __init__(self, near):
        vars(self)["near"] = near

    def __setattr__(self, name, value):
        setattr(self.near, name, value)

    def __getattr__(self, name):
        if name in self.STEPS:
            driver = steps.run if name == "load" else steps.drive
        elif name.startswith("a") and name[1:] in self.STEPS:
            driver, name = steps.run_async if name == "aload" else steps.drive_async, name[1:]
        else:
            return getattr(self.near, name)
        method = getattr(self.near, name)
        return lambda *args, **options: driver(method(*args, **options))


class Down(ConnectionError):
    """The store behind is."""


class Behind:
    """The store behind: a dict, and how often it was asked. Reads are taken at once, and may be kept back."""

    def __init__(self):
        self.values = {}
        self.asked = []
        self.error = None
        self.held = 0
        self.let_go = threading.Event()
        self.let_go.set()

    def _ask(self, what, outcome):
        self.asked.append(what)
        if self.error is not None:
            raise self.error
        taken = outcome()
        self.held += 1
        assert self.let_go.wait(PATIENCE)
        return taken

    def read(self, key):
        return lambda: self._ask(key, lambda: self.values.get(key, MISSING))

    def read_many(self, keys):
        return self._ask(list(keys), lambda: {key: self.values[key] for key in keys if key in self.values})

    def has(self, key):
        return lambda: self._ask(("has", key), lambda: key in self.values)

    def set(self, key, value):
        return lambda: self._ask(("set", key), lambda: self.values.update({key: value}))


def held_back(behind, pool, function, *args):
    """Start ``function`` and return its future when it has read and not yet returned."""
    behind.let_go.clear()
    before = behind.held
    future = pool.submit(function, *args)
    assert until(lambda: behind.held > before)
    return future


def down(behind, error=None):
    behind.error = Down("gone") if error is None else error


def awaitable(function):
    async def call(*args):
        await asyncio.sleep(0)
        return function(*args)

    return call
