"""What always holds in a cache, whatever was done to it: design, "What always holds", 2 and 3."""

from math import inf

from tests.engine.test_timing_wheel import timers_in


def check(cache):
    in_slots = timers_in(cache._wheel)
    with_a_ttl = [entry for entry in cache.entries.values() if entry.due != inf]
    assert len(in_slots) == len(with_a_ttl)
    assert set(in_slots) == set(with_a_ttl)
    assert all(entry.prev is None for entry in cache.entries.values() if entry.due == inf)
    assert all(key == entry.key for key, entry in cache.entries.items())
    assert len(cache) <= cache._max_entries
    assert cache._weight == sum(entry.weight for entry in cache.entries.values()) <= cache._max_weight
