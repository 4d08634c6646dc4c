"""Caches for tests."""

from wheelcache.engine.guests import module_of

QUIET = {"log_interval": None}


def is_leased(cache, key):
    """Return whether the running thread or task has the lease on ``key``."""
    return module_of("fill_waits", "leased_reads").LeasedReads(cache.engine).is_held(key)
