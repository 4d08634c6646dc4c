"""Caches for tests."""

from wheelcache import Cache
from wheelcache.engine.guests import module_of


def ticking(interval):
    """Return a class of caches whose wheels tick every ``interval`` seconds."""
    return type("Cache", (Cache,), {"_interval": interval, "__slots__": ()})


def is_leased(cache, key):
    """Return whether the running thread or task has the lease on ``key``."""
    return module_of("fill_waits", "leased_reads").LeasedReads(cache.engine).is_held(key)
