"""Caches for tests."""

from wheelcache.engine.runtime.request_scope import current_scope

QUIET = {"log_interval": None, "keep_history": False}


def is_leased(cache, key):
    """Return whether the running thread or task has the lease on ``key``."""
    parts = cache._parts
    return parts.leases.is_of(parts.keys.adapt(key), current_scope())
