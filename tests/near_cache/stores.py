"""A near cache of a test, called by threads or by coroutines, and the store behind it: a dict that can be held back."""

import asyncio
import threading
from functools import partial

from tests.waiting import PATIENCE, until
from wheelcache import Cache
from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import Codec, Pickle
from wheelcache.engine.guests import module_of
from wheelcache.near_cache.near_cache import GetOrAdd, NearCache, Values
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.runtime.steps import drive, drive_async, result

TIMEOUT = 60.0
"""Seconds that a copy is kept."""

LONG = 100.0
"""Seconds of a wait for a lease whose end no test sees."""

FAIL_SAFE = {"fail_safe": 100.0}


def near_cache(clock, *, tracked=False, **options):
    """Return a near cache: with ``tracked``, it is notified of writes, but not trusted yet."""
    epoch = TrustEpoch() if tracked else None
    cache = Cache("c", clock=clock, jitter=0, trust=epoch and epoch.word)
    near = NearCache(cache, TIMEOUT, OutageRule(Store()), epoch=epoch, **options)
    if leased_reads := module_of("fill_waits", "leased_reads"):
        near.leases = leased_reads.LeasedReads(cache.engine)
    return near


class Down(ConnectionError):
    """The store is down."""


class Store:
    """A dict.

    Attributes:
        asked: the keys that were read.
        error: raised instead of an answer, if any.
        released: while it is cleared, calls get their answer and do not return.
        held: the number of calls that got their answer.
        before_answer: called before each answer.
    """

    before_answer = staticmethod(lambda: None)

    def __init__(self, values=()):
        self.values = dict(values)
        self.asked = []
        self.error = None
        self.held = 0
        self.released = threading.Event()
        self.released.set()

    def read(self, key):
        return self._ask(key, lambda: self.values.get(key, MISSING))

    def read_many(self, keys):
        return self._ask(list(keys), lambda: {key: self.values[key] for key in keys if key in self.values})

    def has(self, key):
        return self._ask(("has", key), lambda: key in self.values)

    def set(self, key, value):
        return self._ask(("set", key), lambda: self.values.update({key: value}))

    def clear(self):
        return self._ask("clear", self.values.clear)

    def _ask(self, what, answer):
        self.asked.append(what)
        if self.error is not None:
            raise self.error
        self.before_answer()
        taken = answer()
        self.held += 1
        assert self.released.wait(PATIENCE)
        return taken


class Stored(Values):
    """A value that a write stores.

    Args:
        value: given to the callers that wait for it.
        fill: its computation, if any.
    """

    def __init__(self, value=MISSING, fill=None):
        self.value = value
        self.fill = fill

    def for_waiters(self, written):
        return self.value


class Calls:
    """The calls of a near cache with the store of the test behind it: by threads, or by tasks, each of an
    event loop of its own."""

    def __init__(self, near, store, by_tasks=False):
        self.near = near
        self.store = store
        self.by_tasks = by_tasks
        self.copies = near.cache

    def get(self, key):
        return self._drive(self.near.get(key, self._call(self.store.read, key)))

    def get_many(self, keys):
        return self._drive(self.near.get_many(keys, lambda keys: self._call(self.store.read_many, keys)()))

    def has(self, key):
        return self._drive(self.near.has(key, self._call(self.store.has, key)))

    def lease(self, key):
        return self._drive(self.near.lease(key, self._call(self.store.read, key), wait=LONG))

    def read(self, key):
        return self._drive(self.near.read(self._call(self.store.read, key), key=key))

    def set(self, key, value, **options):
        return self._drive(self.near.write([key], self._call(self.store.set, key, value), **options))

    def clear(self):
        self._drive(self.near.clear(self._call(self.store.clear)))

    def load(self, key, loader):
        """The value of ``loader``, which the store does not keep."""
        return result(self._drive(self.near.get_or_add(sought(key, self._call(self.store.read, key), loader))))

    def _drive(self, steps):
        return asyncio.run(drive_async(steps)) if self.by_tasks else drive(steps)

    def _call(self, function, *args):
        async def call():
            await asyncio.sleep(0)
            return function(*args)

        return call if self.by_tasks else partial(function, *args)


def sought(key, read, loader, add=None):
    """A ``get_or_set`` of a near cache. By default, its store does not keep the value."""

    def added(value, computation):
        yield from ()
        return True

    return GetOrAdd(key, read, loader, add or added, Codec(Pickle()))


CALLS = {
    "get": lambda near: near.get("k"),
    "get_many": lambda near: near.get_many(["k"]),
    "has": lambda near: near.has("k"),
    "read": lambda near: near.read("k"),
    "set": lambda near: near.set("k", 1, result_if_dropped=None),
}
"""A call of each kind, by ``Calls``."""


def held(store, pool, function, *args):
    """The future of ``function(*args)``, which has read from the store and does not return before ``released``."""
    store.released.clear()
    before = store.held
    future = pool.submit(function, *args)
    assert until(lambda: store.held > before)
    return future
