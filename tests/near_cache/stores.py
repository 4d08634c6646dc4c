"""A near cache of a test, called by threads or by coroutines, and the store behind it: a dict that can be held back."""

import asyncio
import threading

from tests.waiting import PATIENCE, until
from wheelcache import Cache
from wheelcache.core.contract import MISSING
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.trust_epoch import TrustEpoch

TIMEOUT = 60.0
"""Seconds that a copy is kept."""

FAIL_SAFE = {"fail_safe": True, "grace": 100.0}


def near_cache(clock, *, tracked=False, **options):
    """A near cache that is told of writes, but not trusted yet, if ``tracked``; else one that is told nothing."""
    epoch = TrustEpoch() if tracked else None
    cache = Cache("c", clock=clock, jitter=0, log_interval=None, sample_interval=None, stamps=epoch)
    return NearCache(cache, TIMEOUT, epoch=epoch, **options)


class Down(ConnectionError):
    """The store is."""


class Store:
    """A dict.

    Attributes:
        asked: what it was asked for.
        error: raised instead of an answer, if any.
        released: cleared, calls have their answer and do not return.
        held: how many calls had their answer.
    """

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
        taken = answer()
        self.held += 1
        assert self.released.wait(PATIENCE)
        return taken


class Calls:
    """What a thread calls a near cache for, with the store of the test behind it."""

    def __init__(self, near, store):
        self.near = near
        self.store = store
        self.copies = near.cache

    def beside(self, store):
        """The same near cache in front of another store, which another thread reaches before this one."""
        return type(self)(self.near, store)

    def get(self, key):
        return self.near.get(key, lambda: self.store.read(key))

    def get_many(self, keys):
        return self.near.get_many(keys, self.store.read_many)

    def has(self, key):
        return self.near.has(key, lambda: self.store.has(key))

    def read(self, key):
        return self.near.read(lambda: self.store.read(key), key)

    def set(self, key, value, **options):
        return self.near.write([key], lambda: self.store.set(key, value), **options)

    def clear(self):
        self.near.clear(self.store.clear)

    def load(self, key, loader):
        return self.near.load(key, loader)


class AsyncCalls(Calls):
    """The same for coroutines, each with an event loop of its own."""

    def get(self, key):
        return asyncio.run(self.near.aget(key, awaitable(self.store.read, key)))

    def get_many(self, keys):
        return asyncio.run(self.near.aget_many(keys, lambda keys: awaitable(self.store.read_many, keys)()))

    def has(self, key):
        return asyncio.run(self.near.ahas(key, awaitable(self.store.has, key)))

    def read(self, key):
        return asyncio.run(self.near.aread(awaitable(self.store.read, key), key))

    def set(self, key, value, **options):
        return asyncio.run(self.near.awrite([key], awaitable(self.store.set, key, value), **options))

    def clear(self):
        asyncio.run(self.near.aclear(awaitable(self.store.clear)))

    def load(self, key, loader):
        return asyncio.run(self.near.aload(key, awaitable(loader)))


def awaitable(function, *args):
    """A coroutine function without arguments that calls ``function(*args)``."""

    async def call():
        await asyncio.sleep(0)
        return function(*args)

    return call


def held(store, pool, function, *args):
    """The future of ``function(*args)``, which has read from the store and does not return before ``released``."""
    store.released.clear()
    before = store.held
    future = pool.submit(function, *args)
    assert until(lambda: store.held > before)
    return future
