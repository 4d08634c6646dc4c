"""Invariants of a cache that every user can observe."""

from math import inf

from wheelcache import caches

AGES = 1e7
"""Seconds: longer than the TTLs of tests that call ``check_timers``."""


def check(cache):
    if not any(each is cache for each in caches()):
        assert len(cache) == 0
        return
    limits, stats = cache.engine.observed.options, cache.stats()
    keys = cache.keys()
    assert len(set(keys)) == len(keys) <= (limits.max_entries or inf)
    assert 0 <= stats.size <= (limits.max_entries or inf)
    assert 0 <= stats.weight <= (limits.max_weight or inf)
    assert stats.size or not stats.weight
    assert len(cache) <= (limits.max_entries or inf)


def check_timers(cache, clock):
    """Check that every entry with a TTL has a timer: after all TTLs, only the others are left. This moves the clock."""
    check(cache)
    clock.advance(AGES)
    keys = cache.keys()
    assert len(cache) == len(keys)
    assert all(cache.expires_in(key) is None for key in keys)
    check(cache)
