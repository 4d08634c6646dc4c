"""Misses have the right cause, whichever worker has removed the entry."""

import pytest

from wheelcache.core import IMPLEMENTATION

NEW = "new or long gone" if IMPLEMENTATION == "compiled" else "unknown"


@pytest.fixture
def missed(view):
    """Look up keys, and return the causes of the misses."""
    reader = view()

    def look_up(*keys):
        before = reader.stats().misses_by_cause
        for key in keys:
            reader.get(key)
        after = reader.stats().misses_by_cause
        return {cause: after[cause] - number for cause, number in before.items() if after[cause] > number}

    return look_up


def test_a_delete_by_any_worker_is_a_delete(view, missed):
    writer = view()
    keys = [f"user:{number}" for number in range(300)]
    for key in (*keys, "é", ("plain",)):
        writer.set(key, 1, 60)
    assert missed(*keys) == {}
    for key in (*keys, "é"):
        writer.delete(key)
    assert missed(*keys, "é", "never stored") == {"deleted": 301, NEW: 1}
    # A write by another worker is a hit.
    writer.set("user:1", 2, 60)
    assert missed("user:1") == {}


def test_expired_entries_and_dropped_tags_are_causes_before_and_after_the_janitor_has_removed_them(view, missed, clock):
    writer = view()
    writer.set("short", 1, 10)
    writer.set("tagged", 1, 600, tags=("shop",))
    clock.advance(11)
    writer.delete_tags("shop")
    assert missed("short", "tagged") == {"expired": 1, "tag": 1}
    for _ in range(10):
        clock.advance(1)
    assert missed("short", "tagged") == {"expired": 1, "tag": 1}


def test_an_evicted_entry_is_a_miss_by_eviction(view, tmp_path):
    full = view(max_entries=100)
    for number in range(200):
        full.set(number, 1, 60)
    for number in range(200):
        full.get(number)
    misses = {cause: number for cause, number in full.stats().misses_by_cause.items() if number}
    assert misses == {"evicted": 200 - len(full)}
