"""A core, with as little of a cache around it as saving and loading need."""

from pathlib import Path

from wheelcache.core import CoreClass
from wheelcache.core.contract import RESTORE, STORED, RemovalCause
from wheelcache.errors import CacheClosed, Unloaded
from wheelcache.keys import KeyProxies
from wheelcache.persistence.lazy_load import LazyLoad
from wheelcache.persistence.snapshots import Snapshots


class Clock:
    """Seconds that the test sets."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class KeptCore:
    """
    Args:
        weigh: of a value.
        slot: of a key.
        foreign: keys that mean nothing in another process.
    """

    def __init__(self, name="mine", *, clock=None, weigh=lambda value: 0, slot=lambda key: 0, foreign=(), **options):
        self.name = name
        self.clock = clock or Clock()
        self.core = CoreClass(clock=self.clock, **options)
        self.removed = []
        self.lazy_load = None
        self.is_closed = False
        self._weigh = weigh
        self._slot = slot
        self.snapshots = Snapshots(
            *(name, self.core, self, KeyProxies()),
            max_entries=options.get("max_entries"),
            is_coherent=options.get("stamps") is not None,
            is_portable=lambda key: key not in foreign,
            is_in_use=self.is_in_use,
        )

    # What a cache does.

    def load_lazily(self, load):
        self.lazy_load = LazyLoad(self.core, load)

    def call(self, name, *args, **options):
        """A method of the core, after the load."""
        try:
            return getattr(self.core, name)(*args, **options)
        except Unloaded:
            self.lazy_load.finish()
            return getattr(self.core, name)(*args, **options)

    def get(self, key, default=None):
        return self.call("get", key, default)

    def set(self, key, value, ttl=None, grace=0.0, **options):
        options |= {"weight": self._weigh(value), "slot": self._slot(key), "removed": self.removed}
        return self.call("set", key, value, ttl, grace, **options)

    def fill(self, values, ttl=None):
        for key, value in values.items():
            assert self.set(key, value, ttl) & STORED

    def close(self):
        def error():
            return CacheClosed("closed")

        self.is_closed = True
        if self.lazy_load is None:
            self.core.gate(error)
        else:
            self.lazy_load.close(error)
        self.core.clear()

    def contents(self):
        return {key: self.core.peek(key).value for key in self.core.keys()}

    def left(self, key):
        return self.core.times(key).fresh_until - self.clock.now

    def evicted(self):
        return [key for key, _, cause in self.removed if cause is RemovalCause.EVICTED]

    # What is saved and loaded.

    def save(self, path, **options):
        # A test may have put another one around it.
        self.snapshots.core = self.core
        return self.snapshots.save(path, **options)

    def load(self, path, secret=None):
        return self.load_from(Path(path), secret)

    def load_from(self, path, secret, dir_fd=None):
        return self.snapshots.load_from(path, secret, dir_fd)

    def is_in_use(self):
        return not self.is_closed and not (self.lazy_load is not None and self.lazy_load.is_pending)

    def restore(self, key, value, ttl, grace, seen):
        return self.set(key, value, ttl, grace, exact=True, mode=RESTORE, seen=seen)

    def evict(self, key):
        self.core.delete(key, cause=RemovalCause.EVICTED, slot=self._slot(key), removed=self.removed)
