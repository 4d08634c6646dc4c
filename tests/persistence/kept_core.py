"""A core, with as little of a cache around it as saving and loading need."""

from pathlib import Path

from wheelcache.core import CoreClass
from wheelcache.core.contract import RESTORE, STORED, RemovalCause
from wheelcache.errors import CacheClosed, Unloaded
from wheelcache.persistence.lazy_load import LazyLoad
from wheelcache.persistence.loading_snapshot import load_from
from wheelcache.persistence.saving import save


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
        self._foreign = foreign
        self._max_entries = options.get("max_entries")
        self._is_coherent = options.get("stamps") is not None

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

    def set(self, key, value, ttl=None, grace=0.0):
        return self.call(
            "set", key, value, ttl, grace, weight=self._weigh(value), slot=self._slot(key), removed=self.removed
        )

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
        return save(self.core, path, name=self.name, unwrap=_same, is_portable=self.is_portable, **options)

    def load(self, path, secret=None):
        return self.load_from(Path(path), secret)

    def load_from(self, path, secret, dir_fd=None):
        options = {"is_coherent": self._is_coherent, "max_entries": self._max_entries}
        return load_from(self.core, self, path, name=self.name, secret=secret, dir_fd=dir_fd, **options)

    def is_in_use(self):
        return not self.is_closed and not (self.lazy_load is not None and self.lazy_load.is_pending)

    def restore(self, key, value, ttl, grace, seen):
        weight, slot = self._weigh(value), self._slot(key)
        options = {"exact": True, "weight": weight, "mode": RESTORE, "slot": slot, "seen": seen}
        return self.core.set(key, value, ttl, grace, removed=self.removed, **options)

    def evict(self, key):
        self.core.delete(key, cause=RemovalCause.EVICTED, slot=self._slot(key), removed=self.removed)

    def is_portable(self, key):
        return key not in self._foreign


def _same(key):
    return key
