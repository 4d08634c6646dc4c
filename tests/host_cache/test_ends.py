"""The ends of entries, the janitor that removes them, and the causes of misses."""

from shutil import rmtree

import pytest

from tests.waiting import until
from wheelcache.core import IMPLEMENTATION

NEW = "new or long gone" if IMPLEMENTATION == "compiled" else "unknown"


@pytest.fixture
def cache(view):
    return view()


def rows(cache):
    """Return the keys of all rows, also of expired entries."""
    return {key for keys in cache.engine.key_batches() for key in keys}


def until_rows(cache, expected):
    assert until(lambda: rows(cache) == expected, note=lambda: rows(cache))


def test_the_end_of_an_entry_is_exact_also_if_another_process_moves_it(cache, view, clock):
    other = view()
    cache.set("moved", 1, 10)
    assert other.touch("moved", 100)
    for key, ttl in (("short", 10), ("moved", 90)):
        cache.set("short", 1, ttl)
        clock.advance(ttl - 1e-6)
        assert other.get(key) == 1
        clock.advance(1e-6)
        assert other.get(key) is None


@pytest.mark.parametrize("postpone", [lambda cache: cache.set("b", 1, ttl=100), lambda cache: cache.touch("b", 100)])
def test_an_entry_leaves_after_its_last_end_and_not_after_an_earlier_one(cache, clock, postpone):
    for key in "ab":
        cache.set(key, 1, ttl=10)
    cache.set("c", 1, ttl=None)
    cache.set("c", 1, ttl=10)
    postpone(cache)
    clock.advance(9.9)
    assert rows(cache) == {"a", "b", "c"}
    # The janitor removes a row when the step of two seconds after its end has begun.
    clock.advance(4.1)
    until_rows(cache, {"b"})
    assert cache.get("b") == 1
    clock.advance(100)
    until_rows(cache, set())


def test_an_earlier_end_counts_and_an_entry_without_one_stays(cache, clock):
    for key in ("set", "touched", "persisted"):
        cache.set(key, 1, ttl=100)
    cache.set("far", 1, ttl=1e300)
    cache.set("set", 1, ttl=10)
    cache.touch("touched", 10)
    cache.touch("persisted", None)
    clock.advance(15)
    until_rows(cache, {"far", "persisted"})
    clock.advance(500)
    assert cache.get("persisted") == 1
    assert cache.expires_in("persisted") is None


def test_a_touch_keeps_the_grace_of_an_entry(cache, clock):
    cache.get_or_load("key", lambda: 1, 10, grace=50)
    cache.touch("key", 100)
    assert cache.engine.core().times("key") == (clock() + 100, clock() + 150, True)
    clock.advance(149)
    assert rows(cache) == {"key"}
    clock.advance(6)
    until_rows(cache, set())


def test_more_rows_than_a_step_removes_leave_while_others_were_postponed(cache, clock):
    cache.set_many({f"over:{number}": 1 for number in range(450)}, ttl=10)
    cache.set_many({f"later:{number}": 1 for number in range(450)}, ttl=10)
    cache.set_many({f"later:{number}": 1 for number in range(450)}, ttl=100)
    clock.advance(15)
    assert until(lambda: cache.stats().size == 450, note=lambda: cache.stats().size)
    clock.advance(100)
    assert until(lambda: cache.stats().size == 0)


def test_the_entries_of_a_dropped_tag_leave_the_file_and_the_others_stay(cache, view, clock):
    view().set_many({f"dropped {number}": 1 for number in range(450)}, tags=["tag", "other"])
    cache.set("kept", 1, tags=["other"])
    cache.delete_tags("tag")
    assert len(cache) == 451
    assert cache.keys() == ["kept"]
    clock.advance(2)
    assert until(lambda: len(cache) == 1, note=lambda: len(cache))
    assert cache.get("kept") == 1


def test_of_several_processes_one_removes_expired_entries_and_another_one_does_so_after_its_end(view, clock):
    caches = view(), view()
    for cache in caches:
        cache.set(f"{id(cache)}", 1, 10)
    clock.advance(20)
    janitor, successor = sorted(caches, key=lambda each: each.stats().removals["expired"], reverse=True)
    assert [each.stats().removals["expired"] for each in (janitor, successor)] == [2, 0]
    # The figures of both together have each entry once.
    janitor.set("key", 1, 10)
    assert [each.engine.core().own_part()[0] for each in (janitor, successor)] == [1, 0]
    janitor.close()
    clock.advance(20)
    assert until(lambda: len(successor) == 0)
    assert successor.stats().removals["expired"] == 1


def test_in_a_new_folder_one_of_the_processes_counts_the_entries_and_removes_expired_ones(view, folder, clock):
    caches = view(), view()
    for _ in range(2):
        for cache in caches:
            cache.set(f"{id(cache)}", 1)
        clock.advance(2)
        assert sorted(each.engine.core().own_part()[0] for each in caches) == [0, 2]
        rmtree(folder)
        clock.advance(2)


# The causes of misses.


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
    for key in (*keys, "é"):
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
    clock.advance(10)
    writer.delete_tags("shop")
    assert missed("short", "tagged") == {"expired": 1, "tag": 1}
    clock.advance(10)
    until_rows(writer, set())
    assert missed("short", "tagged") == {"expired": 1, "tag": 1}


def test_an_evicted_entry_is_a_miss_by_eviction(view):
    full = view(max_entries=100)
    for number in range(200):
        full.set(f"{number}", 1, 60)
    for number in range(200):
        full.get(f"{number}")
    misses = {cause: number for cause, number in full.stats().misses_by_cause.items() if number}
    assert misses == {"evicted": 200 - len(full)}
