"""Caches for tests."""

from wheelcache.fill_waits.leased_reads import LeasedReads

QUIET = {"log_interval": None, "keep_history": False}


def is_leased(cache, key):
    """Return whether the running thread or task has the lease on ``key``."""
    return LeasedReads(cache.engine).is_held(key)
