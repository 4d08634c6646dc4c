"""What always holds in a cache, whatever was done to it: design, "What always holds", 2 and 3."""

from math import inf

from tests.engine.test_timing_wheel import timers_in
from wheelcache.bounded_map import MARKERS, GracedEntry, _Marker


def entries_of(cache):
    """What is in the map but for the markers of a walk."""
    entries = {key: entry for key, entry in cache.entries.items() if type(entry) is not _Marker}
    assert len(cache.entries) == len(entries) + (0 if cache._walk is None else MARKERS)
    return entries


def check(cache):
    entries = entries_of(cache)
    assert len(cache) == len(entries)
    in_slots = timers_in(cache._wheel)
    # The place of a graced entry in the wheel is taken by a timer that is due when its grace is over.
    timers = {key: entry.timer if type(entry) is GracedEntry else entry for key, entry in entries.items()}
    with_a_ttl = [timer for key, timer in timers.items() if entries[key].due != inf]
    assert len(in_slots) == len(with_a_ttl)
    assert set(in_slots) == set(with_a_ttl)
    assert all(timer.prev is None for key, timer in timers.items() if entries[key].due == inf)
    assert all(key == entry.key == timers[key].key for key, entry in entries.items())
    for entry in entries.values():
        if type(entry) is GracedEntry:
            assert entry.prev is entry.next is None
            assert entry.timer.due == entry.due + entry.grace
    assert len(cache) <= cache._max_entries
    assert cache._weight == sum(entry.weight for entry in entries.values()) <= cache._max_weight
