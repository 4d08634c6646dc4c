"""The behavior of a core for concurrent callers, by example: watches, stamps, scans."""

import gc
import platform
import weakref

import pytest

from tests.core.advancing import advance_all
from tests.core.stamps import LocalStamps
from wheelcache.core.contract import (
    ABSENT,
    CHANGED,
    COMMIT_LANES,
    COMPLETED,
    DEAD,
    MISSING,
    OUTDATED,
    PRESENT,
    SAME,
    STORED,
    TOO_HEAVY,
    RemovalCause,
)
from wheelcache.machine_clock import moment

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


class TestWatches:
    def test_a_guard_is_broken_by_set_delete_and_clear(self, make):
        core = make()
        for write in (lambda: core.set("key", 1, None), lambda: core.delete("key"), core.clear):
            watch, other = core.watch("key"), core.watch("other")
            write()
            assert watch.broken
            assert write == core.clear or not other.broken

    def test_a_guard_is_not_broken_by_what_changes_no_value(self, make, clock):
        core = make(max_entries=1)
        core.set("key", 1, 5)
        watch = core.watch("key")
        core.touch("key", 6)
        core.set("other", 1, None)
        clock.now = 10
        core.advance()
        core.delete("key", only=DEAD)
        assert not watch.broken

    def test_a_set_under_a_watch_leaves_it_open_and_breaks_the_others(self, make):
        core = make()
        mine, other = core.watch("key"), core.watch("key")
        assert core.set("key", 1, None, watch=mine) & STORED
        assert not mine.broken
        assert other.broken
        core.set("key", 2, None)
        assert mine.broken
        assert core.set("key", 3, None, watch=mine) == CHANGED
        assert core.find("key") == 2

    def test_only_a_set_completes_a_value_watch_and_only_the_first(self, make):
        core = make()
        watch = core.watch("key", wants_value=True)
        core.delete("key")
        assert watch.value is MISSING
        assert core.set("key", "first", None) & COMPLETED
        core.set("key", "second", None)
        assert watch.value == "first"
        assert [core.completed.popleft()] == [watch]
        assert not core.completed

    def test_a_value_lives_no_longer_than_its_entry_and_the_watches_that_it_completed(self, make):
        class Value:
            pass

        core = make()
        watch = core.watch("key", wants_value=True)
        value = Value()
        gone = weakref.ref(value)
        core.set("key", value, None)
        core.completed.popleft().close()
        core.delete("key")
        assert watch.value is value
        del watch, value
        assert gone() is None

    def test_a_value_that_is_too_heavy_is_told_all_the_same(self, make):
        core = make(max_weight=1)
        watch = core.watch("key", wants_value=True)
        assert core.set("key", "heavy", None, weight=2) == TOO_HEAVY | COMPLETED
        assert watch.value == "heavy"

    def test_a_refused_value_tells_and_breaks_nothing(self, make):
        core = make()
        core.set("key", 1, None)
        watch = core.watch("key", wants_value=True)
        assert core.set("key", 2, None, mode=ABSENT) == PRESENT
        assert core.set("key", 2, None, mode=SAME, expected=object()) == CHANGED
        assert not watch.broken
        assert watch.value is MISSING

    def test_closed_and_dropped_watches_leave_nothing_behind(self, make):
        core = make()

        class Key(str):
            __slots__ = ("__weakref__",)

        kept = []
        for number in range(100):
            key = Key(number)
            kept.append(weakref.ref(key))
            watch = core.watch(key)
            if number % 2:
                watch.close()
        del key, watch
        for _ in range(100):
            core.watch("other").close()
        gc.collect()
        assert sum(each() is not None for each in kept) == 0

    def test_the_key_of_a_closed_watch_lives_no_longer_than_its_entry(self, make, clock):
        class Key:
            pass

        core = make()
        key = Key()
        kept = weakref.ref(key)
        watch = core.watch(key)
        core.set(key, 1, 5, watch=watch)
        watch.close()
        del key, watch
        clock.now = 10
        advance_all(core)
        assert len(core) == 0
        assert kept() is None


class TestStamps:
    def test_a_write_elsewhere_makes_a_value_missing(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        core.set("key", 1, None, slot=3)
        assert core.find("key") == 1
        stamps.table[3] += 1
        assert core.find("key") is None
        assert not core.times("key").is_current

    def test_a_fill_is_quiet_and_refused_if_there_was_news(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        seen = (stamps.invalidations[3], stamps.table[3])
        assert core.set("key", 1, None, slot=3, seen=seen) & STORED
        assert (stamps.invalidations[3], stamps.table[3]) == seen
        assert core.find("key") == 1
        stamps.table[3] += 1
        assert core.set("key", 2, None, slot=3, seen=seen) == OUTDATED
        assert core.find("key") is None

    def test_two_cores_on_one_table_never_return_what_the_other_replaced(self, make):
        stamps = LocalStamps()
        one, two = make(stamps=stamps), make(stamps=LocalStamps(first=1 << 50, shared_with=stamps))
        one.set("key", 1, None, slot=2)
        two.set("key", 2, None, slot=2)
        assert one.find("key") is None
        assert two.find("key") == 2
        one.delete("key", slot=2)
        assert two.find("key") is None
        two.set("key", 3, None, slot=2)
        one.clear()
        assert two.find("key") is None

    @pytest.mark.parametrize("options", [{}, {"first": None}])
    def test_a_touch_is_no_news_and_refused_after_news(self, make, options):
        stamps = LocalStamps(**options)
        core = make(stamps=stamps)
        core.set("key", 1, 10, slot=0)
        news = stamps.invalidations[0]
        assert core.touch("key", 20) & STORED
        assert stamps.invalidations[0] == news
        assert core.find("key") == 1
        stamps.invalidations[0] += 1
        assert core.touch("key", 30) == 0

    def test_a_value_that_is_too_heavy_is_news_all_the_same(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps, max_weight=5)
        before = stamps.invalidations[2]
        assert core.set("key", 1, None, weight=6, slot=2) == TOO_HEAVY
        assert stamps.invalidations[2] != before

    def test_an_outdated_fill_beside_a_current_value_drops_both(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        seen = (stamps.invalidations[1], stamps.table[1])
        core.set("key", "news", None, slot=1)
        removed = []
        assert core.set("key", "fill", None, slot=1, seen=seen, removed=removed) == OUTDATED
        assert removed == [("key", "news", REPLACED)]
        assert core.find("key") is None

    def test_no_fill_is_kept_while_a_commit_that_has_invalidated_its_key_or_tag_is_in_progress(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        seen = (stamps.invalidations[3], stamps.table[3])
        # There are two places: slots 1 and 3 share one.
        stamps.commits[1 * COMMIT_LANES + 5] = 1
        watch = core.watch("key", slot=3)
        assert core.set("key", "fill", None, slot=3, seen=seen) == OUTDATED
        assert core.set("key", "fill", None, slot=3, seen=watch.seen, watch=watch) == OUTDATED
        assert core.set("key", "tagged", None, slot=2, tags=(("tag", 1),), since=moment()) == OUTDATED
        assert core.dropped_since((("tag", 1),), moment())
        assert core.find("key") is None
        other = (stamps.invalidations[2], stamps.table[2])
        assert core.set("other", "fill", None, slot=2, seen=other) & STORED
        assert core.set("key", "written", None, slot=3) & STORED
        assert core.find("key") == "written"
        stamps.commits[1 * COMMIT_LANES + 5] = 0
        seen = (stamps.invalidations[3], stamps.table[3])
        assert core.set("new", "fill", None, slot=3, seen=seen, tags=(("tag", 1),), since=moment()) & STORED

    def test_without_stamps_of_its_own_an_outdated_fill_is_stored_and_not_current(self, make):
        stamps = LocalStamps(first=None)
        core = make(stamps=stamps)
        seen = (stamps.invalidations[1], stamps.table[1])
        guard, waiting = core.watch("key", slot=1), core.watch("key", slot=1, wants_value=True)
        leader = core.watch("key", slot=1)
        stamps.table[1] += 1
        outcome = core.set("key", "fill", None, slot=1, seen=seen, watch=leader)
        assert outcome & STORED
        assert not outcome & COMPLETED
        assert core.find("key") is None
        assert core.peek("key").value == "fill"
        assert not core.times("key").is_current
        assert (guard.broken, waiting.broken, leader.broken) == (True, True, False)
        assert waiting.value is MISSING
        assert not core.completed
        assert core.set("key", "news", None, slot=1) & COMPLETED
        assert waiting.value == "news"
        assert core.find("key") == "news"

    def test_a_core_that_is_closed_is_cleared_without_news(self, make):
        stamps = LocalStamps()
        one, two = make(stamps=stamps), make(stamps=LocalStamps(first=1 << 50, shared_with=stamps))
        one.set("key", 1, None, slot=2)
        two.set("key", 1, None, slot=2, seen=(stamps.invalidations[2], stamps.table[2]))
        watch = one.watch("key", slot=2)
        one.gate(RuntimeError)
        assert one.clear(invalidate=False) == 1
        assert len(one) == 0
        assert watch.broken
        assert two.find("key") == 1

    def test_a_slot_that_is_not_there_is_an_error_that_changes_nothing(self, make):
        core = make(stamps=LocalStamps(slots=4))
        for call in (
            lambda: core.set("key", 1, None, slot=4),
            lambda: core.delete("key", slot=4),
        ):
            with pytest.raises(IndexError):
                call()
        assert len(core) == 0
        assert core.find("key") is None

    def test_stamps_may_be_exchanged(self, make):
        core = make(stamps=LocalStamps())
        core.set("key", 1, None, slot=1)
        core.use_stamps(LocalStamps(), keep=False)
        assert len(core) == 0
        assert core.counts().removals[CLEARED] == 1
        core.set("key", 2, None, slot=1)
        core.use_stamps(None, keep=True)
        assert core.find("key") == 2


class TestScans:
    def test_no_set_under_a_watch_that_its_owner_broke_is_stored(self, make):
        core = make()
        watch = core.watch("key")
        watch.broken = True
        assert core.set("key", 1, None, watch=watch) == CHANGED
        assert core.find("key") is None

    def test_a_scan_of_keys_brings_each_key(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan()
        found = []
        while some := scan.keys(3):
            assert len(some) <= 3
            found += some
        assert sorted(found) == list(range(10))

    def test_a_scan_may_leave_out_a_share_of_the_entries(self, make):
        core = make()
        assert core.scan(start=0.5).step(5) == []
        for key in range(100):
            core.set(key, -key, 10)
        everything = [record.key for record in core.scan().step(1000)]
        for left_out in (0, 1, 50, 99):
            records = core.scan(start=left_out / 100).step(1000)
            assert [record.key for record in records] == everything[left_out:]
            assert [record.value for record in records] == [-record.key for record in records]
        assert core.scan(start=1.0).step(5) == []
        assert core.counts()[:2] == (0, 0)

    def test_what_is_there_from_start_to_end_comes_at_least_once(self, make):
        core = make(max_entries=100)
        for key in range(100):
            core.set(key, key, None)
        scan = core.scan()
        found = []
        number = 100
        while some := scan.step(7):
            found += [record.key for record in some]
            core.find(50)
            core.set(number, number, None)
            core.delete(number - 1) if number > 100 else None
            number += 1
        stayed = {record.key for record in (core.peek(key) for key in range(100)) if record is not None}
        assert stayed <= set(found)
        assert len(stayed) >= 98

    def test_the_keys_that_were_used_last_are_found_without_a_walk_over_the_others(self, make, clock):
        core = make()
        for key in range(10):
            core.set(key, key, 5.0 if key == 8 else None)
        core.find(2)
        assert core.keys(3) == [8, 9, 2]
        clock.now = 6
        assert core.keys(3) == [9, 2]
        assert core.keys(0) == make().keys(3) == []
        assert core.keys(100) == core.keys() == [0, 1, 3, 4, 5, 6, 7, 9, 2]

    def test_a_clear_ends_a_scan(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan()
        scan.step(3)
        core.clear()
        core.set("new", 1, None)
        assert {record.key for record in scan.step(5)} <= {"new"}
        assert core.keys() == ["new"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_touch_of_the_python_core_passes_a_barrier_of_its_machine(monkeypatch, clock, python_core, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    stamps = LocalStamps()
    core = python_core(clock=clock, stamps=stamps)
    core.set("key", 1, 10, slot=1)
    before = stamps.table[1]
    assert core.touch("key", 20) & STORED
    assert stamps.table[1] != before
    assert core.find("key") == 1
