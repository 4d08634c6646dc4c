"""Invariants of a cache that every user can observe."""

from math import inf

from wheelcache import caches


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
