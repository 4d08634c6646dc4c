"""Loaders that are held, loading by threads and by tasks in the same words, and loading with no cache around it."""

import asyncio
import threading
from contextvars import copy_context

from tests.runtime.background import is_idle, until_tasks_end
from tests.waiting import PATIENCE, until
from wheelcache.core import CoreClass
from wheelcache.core.contract import MISSING, TOLD
from wheelcache.loading.loads import Loads
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest
from wheelcache.loading.steps import run, run_async

TTL = 10


class Held:
    """A loader that returns ``value``, or raises it, when it is released."""

    def __init__(self, value=None):
        self.value = value
        self.calls = 0
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self, *args):
        self.calls += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        return outcome(self.value)

    def is_running(self):
        return self.began.wait(PATIENCE)

    def release(self):
        self.go.set()


class HeldInTasks:
    """``Held`` for a twin ``InTasks``, or, without one, for the tasks of a loop."""

    def __init__(self, value=None, twin=None):
        self.value = value
        self.twin = twin
        self.calls = 0
        self.began = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self):
        self.calls += 1
        self.began.set()
        await self.go.wait()
        return outcome(self.value)

    def is_running(self):
        self.twin.runner.run(asyncio.wait_for(self.began.wait(), PATIENCE))
        return True

    def release(self):
        self.go.set()


def outcome(value):
    if isinstance(value, BaseException):
        raise value
    return value


def returns(value):
    return lambda *args: outcome(value)


def unreached(*args):
    raise AssertionError("this loader is not to run")


class InThreads:
    """``take``, whose background is threads."""

    def __init__(self, cache):
        self.cache = cache

    def take(self, *args, **policy):
        return self.cache.take(*args, **policy)

    def held(self, value=None):
        return Held(value)

    def settle(self):
        """Until nothing is loaded or refreshed."""
        assert until(is_idle)

    def close(self):
        pass


class InTasks:
    """``atake``, on a loop that goes on from call to call."""

    def __init__(self, cache):
        self.cache = cache
        self.runner = asyncio.Runner()

    def take(self, *args, **policy):
        return self.runner.run(self.cache.atake(*args, **policy), context=copy_context())

    def held(self, value=None):
        return HeldInTasks(value, self)

    def settle(self):
        self.runner.run(until_tasks_end())

    def close(self):
        self.runner.close()


def assert_counts(cache, **expected):
    """These are the figures of requests and loads; all others are 0."""
    names = (
        *("hits", "misses", "stale_hits", "loads", "load_failures", "load_timeouts", "coalesced"),
        *("refreshes", "refreshes_dropped", "evictions", "expirations"),
    )
    stats = cache.stats()
    assert {name: getattr(stats, name) for name in names if getattr(stats, name)} == expected


class Site:
    """A core, the loads over it, and the little that a cache adds. Its clock stands until the test moves it.

    Attributes:
        weigh: called for each value that is stored.
        before_watch, before_set, after_set: called at these moments of a load, in the leader's thread.
    """

    name = "site"
    tells_of_writes = False

    def __init__(self):
        self.now = 0.0
        self.core = CoreClass(clock=lambda: self.now)
        self.loads = Loads(self.core, self)
        self.weigh = lambda key, value: 0
        self.before_watch = self.before_set = self.after_set = lambda: None

    # What ``Loads`` calls.

    def watch(self, key):
        self.before_watch()
        return self.core.watch(key)

    def seen(self, key):
        return None

    def store(self, key, value, ttl, grace, watch):
        weight = self.weigh(key, value)
        removed = []
        self.before_set()
        outcome = self.core.set(key, value, ttl, grace, weight=weight, watch=watch, seen=watch.seen, removed=removed)
        self.after_set()
        return outcome, removed

    def announce(self, outcome, removed):
        if outcome & TOLD:
            self.core.told.clear()

    def interrupted(self):
        self.core.told.clear()

    def delete(self, key):
        self.core.delete(key)

    # What tests call.

    def set(self, key, value, ttl=TTL):
        self.core.set(key, value, ttl)

    def request(self, key, loader, ttl=TTL, **policy):
        return LoadRequest(key, key, loader, ttl, LoadPolicy(**policy))

    def take(self, key, loader, ttl=TTL, **policy):
        found = self.core.find(key, MISSING)
        return run(self.loads.load(self.request(key, loader, ttl, **policy))) if found is MISSING else found

    async def atake(self, key, loader, ttl=TTL, **policy):
        found = self.core.find(key, MISSING)
        return await run_async(self.loads.load(self.request(key, loader, ttl, **policy))) if found is MISSING else found

    def load_many(self, keys, loader, ttl=TTL, **policy):
        return run(self.loads.load_many({key: key for key in keys}, loader, ttl, LoadPolicy(**policy)))

    async def aload_many(self, keys, loader, ttl=TTL, **policy):
        return await run_async(self.loads.load_many({key: key for key in keys}, loader, ttl, LoadPolicy(**policy)))

    def get(self, key):
        return self.core.get(key)

    def counts(self):
        """The figures that are not 0."""
        counted = self.core.counts()
        stats = self.loads.stats()._asdict()
        stats |= {"hits": counted.hits, "misses": counted.misses}
        del stats["load_times"]
        return {name: value for name, value in stats.items() if value}
