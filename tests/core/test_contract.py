"""What a core does, by example. Random steps against a model are in ``test_model.py``."""

import gc
import threading
import weakref
from math import inf

import pytest

from tests.core.stamps import LocalStamps
from wheelcache.core.contract import (
    ABSENT,
    BATCH,
    CHANGED,
    DEAD,
    KEEP,
    MAX_WEIGHT,
    MISSING,
    MORE,
    NO_ROOM,
    OUTDATED,
    PRESENT,
    RESTORE,
    SAME,
    STORED,
    TOLD,
    TOO_HEAVY,
    WAKE,
    RemovalCause,
)

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


def advance_all(core, removed=None):
    while core.next_due <= core.now():
        core.advance(removed=removed)


class TestTimes:
    def test_an_expired_entry_is_never_returned_though_nothing_removed_it(self, make, clock):
        core = make()
        core.set("key", "value", 5)
        clock.now = 5
        assert core.get("key") is None
        assert core.find("key", "missing") == "missing"
        assert len(core) == 1

    def test_no_read_removes_an_entry(self, make, clock):
        core = make()
        core.set("key", "value", 5)
        clock.now = 100
        core.get("key")
        core.find("key")
        core.get_many(["key"])
        core.peek("key")
        assert len(core) == 1
        assert core.counts().removals[EXPIRED] == 0

    def test_the_wheel_removes_an_entry_at_most_one_interval_late(self, make, clock):
        core = make(interval=0.5)
        core.set("key", "value", 3.3)
        clock.now = 3.3
        advance_all(core)
        assert len(core) == 1
        assert core.next_due == 3.5
        clock.now = 3.5
        removed = []
        advance_all(core, removed)
        assert removed == [("key", "value", EXPIRED)]
        assert len(core) == 0

    def test_an_entry_is_stale_between_its_two_times(self, make, clock):
        core = make()
        core.set("key", "value", 5, grace=10)
        clock.now = 7
        assert core.get("key") is None
        record = core.peek("key")
        assert (record.value, record.times.fresh_until, record.times.expires_at) == ("value", 5, 15)
        clock.now = 14
        advance_all(core)
        assert len(core) == 1
        clock.now = 15
        advance_all(core)
        assert len(core) == 0

    def test_jitter_only_shortens_and_by_max_jitter_at_most(self, make):
        core = make(jitter=0.5, max_jitter=60)
        short = [core.set(key, key, 10) and core.times(key).fresh_until for key in range(500)]
        assert 5 <= min(short) < 6
        assert 9 < max(short) <= 10
        long = [core.set(key, key, 1000) and core.times(key).fresh_until for key in range(500)]
        assert 940 <= min(long) < 950
        assert 990 < max(long) <= 1000

    def test_an_exact_ttl_has_no_jitter(self, make):
        core = make(jitter=0.5)
        core.set("key", "value", 10, exact=True)
        assert core.times("key").fresh_until == 10
        core.touch("key", 20)
        assert core.times("key").fresh_until == 20

    def test_a_touch_keeps_the_grace(self, make):
        core = make()
        core.set("key", "value", 5, grace=10)
        assert core.touch("key", 50) & STORED
        assert core.times("key")[:2] == (50, 60)

    def test_a_key_that_is_set_over_and_over_expires_after_its_last_set(self, make, clock):
        core = make()
        for second in range(100):
            clock.now = second
            advance_all(core)
            core.set("key", second, 10)
        clock.now = 108
        advance_all(core)
        assert core.get("key") == 99
        clock.now = 110
        advance_all(core)
        assert len(core) == 0

    def test_a_ttl_may_become_shorter_longer_and_endless(self, make, clock):
        core = make()
        core.set("key", 1, 100)
        core.set("key", 2, None)
        clock.now = 1000
        advance_all(core)
        assert core.get("key") == 2
        core.set("key", 3, 10)
        core.set("key", 4, 5)
        clock.now = 1005
        advance_all(core)
        assert len(core) == 0

    def test_what_expired_years_ago_is_removed_in_order_of_tick(self, make, clock):
        core = make()
        for ttl in (1_000_000, 3, 70_000, 4000, 100_000_000):
            core.set(ttl, ttl, ttl)
        clock.now = 200_000_000
        removed = []
        advance_all(core, removed)
        assert [key for key, _, _ in removed] == [3, 4000, 70_000, 1_000_000, 100_000_000]

    def test_a_budget_bounds_what_an_advance_looks_at(self, make, clock):
        core = make()
        for key in range(10):
            core.set(key, key, 5)
        clock.now = 6
        assert core.advance(4) == 4
        assert len(core) == 6
        assert core.next_due <= clock.now
        assert core.advance() == 6
        assert core.next_due == inf

    def test_next_due_gets_no_earlier_while_a_late_wheel_catches_up(self, make, clock):
        core = make(slots=8)
        for key in range(10):
            core.set(key, key, 100)
        clock.now = 100
        while len(core):
            assert core.next_due == 100
            core.advance(4)
        assert core.next_due == inf

    def test_next_due_is_when_there_is_work_and_wake_tells_of_an_earlier_one(self, make, clock):
        core = make()
        assert core.next_due == inf
        assert core.set(1, 1, 100) == STORED | WAKE
        assert core.next_due == 100
        assert core.set(2, 2, 200) == STORED
        assert core.set(3, 3, 50.5) == STORED | WAKE
        assert core.next_due == 51
        clock.now = 60
        assert core.set(4, 4, 100) == STORED | WAKE, "over two intervals late"

    def test_a_clock_may_be_exchanged_and_go_back(self, make):
        core = make()
        core.use_clock(lambda: 1e9)
        core.set("later", 1, 100)
        advance_all(core)
        now = [50.0]
        core.use_clock(lambda: now[0])
        core.set("key", 1, 10)
        assert core.get("later") == 1
        now[0] = 60.0
        advance_all(core)
        assert core.keys() == ["later"]
        assert len(core) == 1

    @pytest.mark.parametrize("start", [0.0, 1e9, 1e15, -1e6])
    def test_any_clock_comes_to_an_end(self, core_class, start):
        now = [start]
        core = core_class(clock=lambda: now[0])
        core.set("key", 1, 10)
        now[0] = 4e15
        advance_all(core)
        assert core.get("key") is None


class TestOrderAndBounds:
    def test_the_least_recently_used_leaves_first(self, make):
        core = make(max_entries=3)
        for key in "abc":
            core.set(key, key, 10)
        core.get("a")
        core.set("b", "b", 10)
        removed = []
        core.set("d", "d", 10, removed=removed)
        assert removed == [("c", "c", EVICTED)]
        assert core.keys() == ["a", "b", "d"]

    def test_a_victim_whose_time_has_come_counts_as_expired(self, make, clock):
        core = make(max_entries=1)
        core.set("a", "a", 5)
        clock.now = 5
        removed = []
        core.set("b", "b", 5, removed=removed)
        assert removed == [("a", "a", EXPIRED)]
        assert core.counts().removals[EVICTED] == 0

    def test_weights_make_room_by_evicting(self, make):
        core = make(max_weight=10)
        for key in "abc":
            core.set(key, key, None, weight=3)
        removed = []
        core.set("d", "d", None, weight=7, removed=removed)
        assert [key for key, _, _ in removed] == ["a", "b"]
        assert (core.weight, core.keys()) == (10, ["c", "d"])

    def test_a_value_that_is_too_heavy_takes_the_old_one_with_it(self, make):
        core = make(max_weight=10)
        core.set("a", "old", None, weight=1)
        removed = []
        assert core.set("a", "new", None, weight=11, removed=removed) == TOO_HEAVY
        assert removed == [("a", "old", REPLACED)]
        assert (core.weight, len(core)) == (0, 0)

    def test_one_set_evicts_a_batch_at_most_and_says_that_there_is_more(self, make):
        core = make(max_weight=2 * BATCH)
        for key in range(2 * BATCH):
            core.set(key, key, None, weight=1)
        outcome = core.set("heavy", 0, None, weight=2 * BATCH)
        assert outcome & MORE
        while core.evict():
            pass
        assert core.keys() == ["heavy"]
        assert core.weight == 2 * BATCH

    @pytest.mark.parametrize("weight", [-1, MAX_WEIGHT + 1])
    def test_a_weight_out_of_range_is_an_error(self, make, weight):
        core = make(max_weight=10)
        with pytest.raises(OverflowError, match=r"2\*\*62"):
            core.set("key", 1, None, weight=weight)
        assert len(core) == 0

    def test_a_wrong_weight_among_many_changes_nothing_and_tells_no_watch(self, make):
        core = make(max_weight=10)
        watch = core.watch("good", wants_value=True)
        items = [("good", 1, 1, 0, None), ("bad", 1, -1, 0, None)]
        with pytest.raises(OverflowError):
            core.set_many(items, None, None)
        with pytest.raises(OverflowError):
            core.set("good", 1, None, weight=-1)
        assert len(core) == 0
        assert not watch.broken

    def test_evicting_to_a_size(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        assert core.evict(2, size=4)
        assert core.keys() == list(range(2, 10))
        assert not core.evict(size=4)
        assert core.keys() == [6, 7, 8, 9]

    def test_peek_uses_an_entry_only_if_asked(self, make):
        core = make()
        core.set(1, 1, None)
        core.set(2, 2, None)
        core.peek(1)
        assert core.keys() == [1, 2]
        core.peek(1, use=True)
        assert core.keys() == [2, 1]
        assert core.counts()[:2] == (0, 0)


class TestModes:
    def test_absent(self, make, clock):
        core = make()
        assert core.set("key", 1, 5, mode=ABSENT) & STORED
        assert core.set("key", 2, 5, mode=ABSENT) == PRESENT
        clock.now = 5
        assert core.set("key", 2, 5, mode=ABSENT) & STORED
        assert core.get("key") == 2

    def test_same_is_by_identity_and_may_keep_the_times(self, make, clock):
        core = make()
        value = [1]
        core.set("key", value, 50, grace=5)
        clock.now = 20
        assert core.set("key", [2], KEEP, mode=SAME, expected=[1]) == CHANGED
        assert core.set("key", [2], KEEP, mode=SAME, expected=value) & STORED
        assert core.times("key")[:2] == (50, 55)
        assert core.get("key") == [2]

    def test_restore_fills_what_is_free_and_disturbs_no_caller(self, make):
        core = make(max_entries=2)
        watch = core.watch("watched")
        assert core.set("watched", 1, None, mode=RESTORE) == CHANGED
        assert core.set("a", 1, None, mode=RESTORE) & STORED
        assert core.set("a", 2, None, mode=RESTORE) == PRESENT
        assert core.set("b", 1, None, mode=RESTORE) & STORED
        assert core.set("c", 1, None, mode=RESTORE) == NO_ROOM
        assert not watch.broken

    def test_restore_does_not_make_room_by_weight(self, make):
        core = make(max_weight=5)
        core.set("a", 1, None, weight=3)
        assert core.set("b", 1, None, weight=3, mode=RESTORE) == NO_ROOM
        assert core.set("b", 1, None, weight=6, mode=RESTORE) == TOO_HEAVY
        assert core.keys() == ["a"]

    @pytest.mark.parametrize("ttl", [0.0, -1.0, -4.0])
    def test_restore_may_store_what_is_stale_already(self, make, clock, ttl):
        clock.now = 100
        core = make()
        assert core.set("key", 1, ttl, grace=5, exact=True, mode=RESTORE) & STORED
        assert core.get("key") is None
        assert core.times("key")[:2] == (100 + ttl, 105 + ttl)
        assert core.peek("key").value == 1

    def test_evicting_one_key_is_no_write(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        core.set("key", 1, None, slot=3)
        before = stamps.table[3], stamps.news[3]
        watch, removed = core.watch("key", slot=3), []
        assert core.delete("key", cause=EVICTED, slot=3, removed=removed) == 1
        assert removed == [("key", 1, EVICTED)]
        assert core.counts().removals[EVICTED] == 1
        assert (stamps.table[3], stamps.news[3]) == before
        assert not watch.broken

    def test_only_the_dead_are_deleted(self, make, clock):
        core = make()
        core.set("key", 1, 5, grace=5)
        assert core.delete("key", MISSING, only=DEAD) is MISSING
        assert len(core) == 1
        clock.now = 5
        assert core.delete("key", MISSING, only=DEAD) is MISSING
        assert len(core) == 0


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
        assert core.get("key") == 2

    def test_only_a_set_completes_a_value_watch_and_only_the_first(self, make):
        core = make()
        watch = core.watch("key", wants_value=True)
        core.delete("key")
        assert watch.value is MISSING
        assert core.set("key", "first", None) & TOLD
        core.set("key", "second", None)
        assert watch.value == "first"
        assert [core.told.popleft()] == [watch]
        assert not core.told

    def test_a_value_lives_no_longer_than_its_entry_and_the_watches_that_it_completed(self, make):
        class Value:
            pass

        core = make()
        watch = core.watch("key", wants_value=True)
        value = Value()
        gone = weakref.ref(value)
        core.set("key", value, None)
        core.told.popleft().close()
        core.delete("key")
        assert watch.value is value
        del watch, value
        assert gone() is None

    def test_a_value_that_is_too_heavy_is_told_all_the_same(self, make):
        core = make(max_weight=1)
        watch = core.watch("key", wants_value=True)
        assert core.set("key", "heavy", None, weight=2) == TOO_HEAVY | TOLD
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


class TestClear:
    def test_clear_counts_all_as_cleared_at_once(self, make, clock):
        core = make()
        core.set(1, 1, 5)
        core.set(2, 2, 500)
        clock.now = 10
        assert core.clear(drop=False) == 2
        assert len(core) == 0
        assert core.counts().removals == {EXPIRED: 0, EVICTED: 0, REPLACED: 0, DELETED: 0, CLEARED: 2}

    def test_a_caller_with_a_listener_drains_to_the_end(self, make):
        core = make()
        for key in range(3000):
            core.set(key, key, None)
        core.clear(drop=False)
        removed = []
        while core.drain(removed=removed):
            pass
        assert sorted(removed) == [(key, key, CLEARED) for key in range(3000)]

    def test_what_is_dropped_by_other_calls_meanwhile_is_reported_as_well(self, make):
        core = make()
        for key in range(3000):
            core.set(key, key, None)
        core.clear(drop=False)
        removed = []
        core.set("new", 1, 10, removed=removed)
        core.advance(100, removed)
        while core.drain(removed=removed):
            pass
        assert sorted(removed) == [(key, key, CLEARED) for key in range(3000)]

    def test_detached_entries_are_dropped_by_advance(self, make):
        core = make()

        class Value:
            pass

        values = [Value() for _ in range(5000)]
        dead = [weakref.ref(value) for value in values]
        for key, value in enumerate(values):
            core.set(key, value, None)
        del values, value
        core.clear()
        assert core.next_due == -inf
        advance_all(core)
        assert core.next_due == inf
        assert not any(each() for each in dead)

    def test_what_expires_later_is_not_disturbed_by_a_clear(self, make, clock):
        core = make()
        core.set("old", 1, 10)
        core.clear()
        core.set("new", 1, 10)
        clock.now = 10
        removed = []
        advance_all(core, removed)
        assert removed == [("new", 1, EXPIRED)]


class TestStamps:
    def test_a_write_elsewhere_makes_a_value_missing(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        core.set("key", 1, None, slot=3)
        assert core.get("key") == 1
        stamps.table[3] += 1
        assert core.get("key") is None
        assert not core.times("key").is_current

    def test_a_fill_is_quiet_and_refused_if_there_was_news(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        seen = (stamps.news[3], stamps.table[3])
        assert core.set("key", 1, None, slot=3, seen=seen) & STORED
        assert (stamps.news[3], stamps.table[3]) == seen
        assert core.get("key") == 1
        stamps.table[3] += 1
        assert core.set("key", 2, None, slot=3, seen=seen) == OUTDATED
        assert core.get("key") is None

    def test_two_cores_on_one_table_never_return_what_the_other_replaced(self, make):
        stamps = LocalStamps()
        one, two = make(stamps=stamps), make(stamps=LocalStamps(first=1 << 50, shared_with=stamps))
        one.set("key", 1, None, slot=2)
        two.set("key", 2, None, slot=2)
        assert one.get("key") is None
        assert two.get("key") == 2
        one.delete("key", slot=2)
        assert two.get("key") is None
        two.set("key", 3, None, slot=2)
        one.clear()
        assert two.get("key") is None

    def test_a_touch_is_no_news_and_refused_after_news(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        core.set("key", 1, 10, slot=0)
        news = stamps.news[0]
        assert core.touch("key", 20) & STORED
        assert stamps.news[0] == news
        assert core.get("key") == 1
        stamps.news[0] += 1
        assert core.touch("key", 30) == 0

    def test_an_outdated_fill_beside_a_current_value_drops_both(self, make):
        stamps = LocalStamps()
        core = make(stamps=stamps)
        seen = (stamps.news[1], stamps.table[1])
        core.set("key", "news", None, slot=1)
        removed = []
        assert core.set("key", "fill", None, slot=1, seen=seen, removed=removed) == OUTDATED
        assert removed == [("key", "news", REPLACED)]
        assert core.get("key") is None

    def test_without_stamps_of_its_own_an_outdated_fill_is_stored_and_not_current(self, make):
        stamps = LocalStamps(first=None)
        core = make(stamps=stamps)
        seen = (stamps.news[1], stamps.table[1])
        guard, waiting = core.watch("key", slot=1), core.watch("key", slot=1, wants_value=True)
        leader = core.watch("key", slot=1)
        stamps.table[1] += 1
        outcome = core.set("key", "fill", None, slot=1, seen=seen, watch=leader)
        assert outcome & STORED
        assert not outcome & TOLD
        assert core.get("key") is None
        assert core.peek("key").value == "fill"
        assert not core.times("key").is_current
        assert (guard.broken, waiting.broken, leader.broken) == (True, True, False)
        assert waiting.value is MISSING
        assert not core.told
        assert core.set("key", "news", None, slot=1) & TOLD
        assert waiting.value == "news"
        assert core.get("key") == "news"

    def test_a_core_that_is_closed_is_cleared_without_news(self, make):
        stamps = LocalStamps()
        one, two = make(stamps=stamps), make(stamps=LocalStamps(first=1 << 50, shared_with=stamps))
        one.set("key", 1, None, slot=2)
        two.set("key", 1, None, slot=2, seen=(stamps.news[2], stamps.table[2]))
        watch = one.watch("key", slot=2)
        one.gate(RuntimeError)
        assert one.clear(news=False) == 1
        assert len(one) == 0
        assert watch.broken
        assert two.get("key") == 1

    def test_a_slot_that_is_not_there_is_an_error_that_changes_nothing(self, make):
        core = make(stamps=LocalStamps(slots=4))
        for call in (
            lambda: core.set("key", 1, None, slot=4),
            lambda: core.set_many([("other", 1, 0, 0, None), ("key", 1, 0, 4, None)], None, None),
            lambda: core.delete("key", slot=4),
        ):
            with pytest.raises(IndexError):
                call()
        assert len(core) == 0
        assert core.get("key") is None

    def test_stamps_may_be_exchanged(self, make):
        core = make(stamps=LocalStamps())
        core.set("key", 1, None, slot=1)
        core.use_stamps(LocalStamps(), keep=False)
        assert len(core) == 0
        assert core.counts().removals[CLEARED] == 1
        core.set("key", 2, None, slot=1)
        core.use_stamps(None, keep=True)
        assert core.get("key") == 2


class TestScans:
    def test_an_ordered_scan_goes_from_the_least_to_the_most_recently_used(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        core.get(0)
        scan = core.scan(ordered=True)
        found = []
        while some := scan.step(3):
            found += [record.key for record in some]
        assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
        assert core.keys() == found

    def test_no_set_under_a_watch_that_its_owner_broke_is_stored(self, make):
        core = make()
        watch = core.watch("key")
        watch.broken = True
        assert core.set("key", 1, None, watch=watch) == CHANGED
        assert core.get("key") is None

    @pytest.mark.parametrize("ordered", [True, False])
    def test_a_scan_of_keys_brings_each_key(self, make, ordered):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan(ordered=ordered)
        found = []
        while some := scan.keys(3):
            assert len(some) <= 3
            found += some
        assert sorted(found) == list(range(10))

    @pytest.mark.parametrize("ordered", [True, False])
    def test_what_is_there_from_start_to_end_comes_at_least_once(self, make, ordered):
        core = make(max_entries=100)
        for key in range(100):
            core.set(key, key, None)
        scan = core.scan(ordered=ordered)
        found = []
        number = 100
        while some := scan.step(7):
            found += [record.key for record in some]
            core.get(50)
            core.set(number, number, None)
            core.delete(number - 1) if number > 100 else None
            number += 1
        stayed = {record.key for record in (core.peek(key) for key in range(100)) if record is not None}
        assert stayed <= set(found)
        assert len(stayed) >= 98

    def test_eviction_stays_exact_during_an_ordered_scan(self, make):
        core = make(max_entries=10)
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan(ordered=True)
        scan.step(4)
        core.get(0)
        removed = []
        core.set(10, 10, None, removed=removed)
        core.set(11, 11, None, removed=removed)
        assert [key for key, _, _ in removed] == [1, 2]
        scan.close()
        assert core.keys() == [3, 4, 5, 6, 7, 8, 9, 0, 10, 11]

    def test_one_ordered_scan_at_a_time(self, make):
        core = make()
        core.set(1, 1, None)
        scan = core.scan(ordered=True)
        with pytest.raises(RuntimeError, match="in progress"):
            core.scan(ordered=True)
        scan.close()
        core.scan(ordered=True).close()

    def test_a_dropped_scan_leaves_everything_in_its_place(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan(ordered=True)
        scan.step(3)
        del scan
        gc.collect()
        assert core.keys() == list(range(10))
        assert len(core) == 10
        core.scan(ordered=True).close()

    def test_a_clear_ends_a_scan(self, make):
        core = make()
        for key in range(10):
            core.set(key, key, None)
        scan = core.scan(ordered=True)
        scan.step(3)
        core.clear()
        core.set("new", 1, None)
        assert {record.key for record in scan.step(5)} <= {"new"}
        scan.close()
        assert core.keys() == ["new"]


class TestGate:
    def test_a_shut_gate_lets_hits_through_and_raises_for_the_rest(self, make):
        core = make()
        core.set("key", 1, 10)
        core.gate(lambda: LookupError("not yet"))
        assert core.get("key") == 1
        for call in (
            lambda: core.get("missing"),
            lambda: core.find("missing"),
            lambda: core.get_many(["key", "missing"]),
            lambda: core.set("key", 2, None),
            lambda: core.set_many([("key", 2, 0, 0, None)], None, None),
            lambda: core.touch("key", 5),
            lambda: core.delete("key"),
            lambda: core.delete_many([("key", 0)], None),
            core.evict,
            core.keys,
            core.scan,
            lambda: core.peek("key"),
            lambda: core.times("key"),
            lambda: core.watch("key"),
        ):
            with pytest.raises(LookupError, match="not yet"):
                call()
        assert core.counts()[:2] == (1, 0)
        assert len(core) == 1
        assert core.clear() == 1
        core.advance()
        core.drain()
        core.gate(None)
        assert core.get("key") is None

    def test_the_thread_that_loads_goes_through(self, make):
        core = make()
        core.gate(LookupError, threading.get_ident())
        assert core.set("key", 1, None) & STORED
        assert core.get("missing") is None


class TestCounts:
    def test_find_counts_a_hit_and_no_miss(self, make):
        core = make()
        core.set("key", 1, None)
        core.find("key")
        core.find("missing")
        core.get("missing")
        core.get_many(["key", "missing"])
        core.count(hits=3, misses=4)
        assert core.counts()[:2] == (5, 6)
        assert core.counts()[:2] == (5, 6), "reading is not counted"

    def test_a_child_counts_from_zero_and_keeps_the_entries(self, make):
        core = make(jitter=0.5)
        core.set("key", 1, None)
        core.get("key")
        watch = core.watch("key", wants_value=True)
        core.before_fork()
        core.after_fork(in_child=False)
        assert core.counts().hits == 1
        assert not watch.broken
        core.before_fork()
        core.after_fork(in_child=True)
        assert core.counts()[:2] == (0, 0)
        assert watch.broken
        assert core.get("key") == 1
