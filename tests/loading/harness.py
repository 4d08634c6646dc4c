"""Loading on a core, with no cache around it."""

import threading

from tests.core.stamps import LocalStamps
from tests.waiting import PATIENCE
from wheelcache.core import CoreClass
from wheelcache.core.contract import BATCH, MISSING, TOLD
from wheelcache.loading.loads import Loads
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest

TTL = 10
SLOTS = 8


class Closed(RuntimeError):
    pass


class Site:
    """A core, the loads over it, and the little that a cache adds. Its clock stands until the test moves it.

    Attributes:
        on_removal: called for each entry that leaves.
        weigh: called for each value that is stored.
        before_watch, before_set, after_set: called at these moments of a load, in the leader's thread.
    """

    name = "site"

    def __init__(self, *, stamps=None, **options):
        self.now = 0.0
        self.core = CoreClass(clock=lambda: self.now, stamps=stamps, **options)
        self.stamps = stamps
        self.loads = Loads(self.core, self)
        self.on_removal = lambda key, value, cause: None
        self.weigh = lambda key, value: 0
        self.before_watch = self.before_set = self.after_set = lambda: None

    # What ``Loads`` calls.

    def watch(self, key):
        self.before_watch()
        return self.core.watch(key, slot=self.slot(key))

    def seen(self, key):
        if self.stamps is None:
            return None
        return self.stamps.news[self.slot(key)], self.stamps.table[self.slot(key)]

    def store(self, key, value, ttl, grace, watch):
        weight = self.weigh(key, value)
        removed = []
        slot = self.slot(key)
        self.before_set()
        outcome = self.core.set(
            key, value, ttl, grace, weight=weight, watch=watch, slot=slot, seen=watch.seen, removed=removed
        )
        self.after_set()
        return outcome, removed

    def announce(self, outcome, removed):
        if outcome & TOLD:
            self.core.told.clear()
        for removal in removed:
            self.on_removal(*removal)

    def interrupted(self):
        self.core.told.clear()

    def delete(self, key):
        self.core.delete(key, slot=self.slot(key))

    # What tests call.

    def slot(self, key):
        return 0 if self.stamps is None else hash(key) % SLOTS

    def set(self, key, value, ttl=TTL):
        self.core.set(key, value, ttl, slot=self.slot(key))

    def clear(self):
        self.core.clear()
        self.loads.forget_failures()

    def close(self):
        def error():
            return Closed("the site was closed")

        self.loads.close()
        self.core.gate(error)
        self.core.clear()

    def advance(self, seconds):
        self.now += seconds
        while self.core.next_due <= self.now:
            self.core.advance(BATCH)

    def request(self, key, loader, ttl=TTL, **policy):
        return LoadRequest(key, key, loader, ttl, LoadPolicy(**policy))

    def take(self, key, loader, ttl=TTL, **policy):
        found = self.core.find(key, MISSING)
        if found is MISSING:
            return self.loads.load(self.request(key, loader, ttl, **policy))
        request = self.request(key, loader, ttl, **policy)
        if self.loads.needs_refresh(key, found, ttl, request.policy):
            self.loads.refresh(request)
        return found

    async def atake(self, key, loader, ttl=TTL, **policy):
        found = self.core.find(key, MISSING)
        if found is MISSING:
            return await self.loads.aload(self.request(key, loader, ttl, **policy))
        request = self.request(key, loader, ttl, **policy)
        if self.loads.needs_refresh(key, found, ttl, request.policy):
            self.loads.arefresh(request)
        return found

    def load_many(self, keys, loader, ttl=TTL, **policy):
        return self.loads.load_many({key: key for key in keys}, loader, ttl, LoadPolicy(**policy))

    async def aload_many(self, keys, loader, ttl=TTL, **policy):
        return await self.loads.aload_many({key: key for key in keys}, loader, ttl, LoadPolicy(**policy))

    def get(self, key):
        return self.core.get(key)

    def counts(self):
        """The figures that are not 0."""
        counted = self.core.counts()
        stats = self.loads.stats()._asdict()
        stats |= {"hits": counted.hits + stats["stale_hits"], "misses": counted.misses}
        del stats["load_times"]
        return {name: value for name, value in stats.items() if value}


def coherent_sites(count=2):
    """Sites as in so many processes that share stamps."""
    tables = LocalStamps(SLOTS)
    return [Site(stamps=LocalStamps(first=(number + 1) << 40, shared_with=tables)) for number in range(count)]


class Held:
    """A loader that returns ``value``, or raises it, when it is released."""

    def __init__(self, value):
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


def outcome(value):
    if isinstance(value, BaseException):
        raise value
    return value


def returns(value):
    return lambda *args: outcome(value)


def unreached(*args):
    raise AssertionError("this loader is not to run")
