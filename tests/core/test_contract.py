"""The behavior of a core, by example. Random steps against a model are in ``test_model.py``."""

import weakref
from math import inf

import pytest

from tests.core.advancing import advance_all
from wheelcache.core.contract import (
    BATCH,
    CHANGED,
    KEEP_TTL,
    MAX_WEIGHT,
    MISSING,
    MORE,
    PRESENT,
    STORED,
    WAKE,
    GroupRule,
    MissCause,
    RemovalCause,
)

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


class TestRemoveValue:
    def test_an_entry_leaves_only_while_it_has_that_very_value_and_its_hit_is_taken_back(self, make):
        core, old, new = make(), ["equal"], ["equal"]
        watch, removed = core.watch("key"), []
        core.set("key", new, None)
        watch.close()
        watch = core.watch("key")
        assert core.find("key") is new
        core.remove_value("key", old, removed, was_hit=True)
        assert (core.find("key"), core.counts().hits, removed) == (new, 1, [])
        core.remove_value("key", new, removed)
        assert (core.find("key"), core.counts().hits, removed) == (None, 1, [("key", new, DELETED)])
        assert core.counts().removals[DELETED] == 1
        assert not watch.broken


class TestTimes:
    def test_an_expired_entry_is_never_returned_though_nothing_removed_it(self, make, clock):
        core = make()
        core.set("key", "value", 5)
        clock.now = 5
        assert core.find("key") is None
        assert core.find("key", "missing") == "missing"
        assert len(core) == 1

    def test_no_read_removes_an_entry(self, make, clock):
        core = make()
        core.set("key", "value", 5)
        clock.now = 100
        core.find("key")
        core.find("key")
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
        assert core.find("key") is None
        record = core.peek("key")
        assert (record.value, record.times.fresh_until, record.times.expires_at) == ("value", 5, 15)
        clock.now = 14
        advance_all(core)
        assert len(core) == 1
        clock.now = 15
        advance_all(core)
        assert len(core) == 0

    def test_jitter_only_shortens_and_by_a_minute_at_most(self, make):
        core = make(jitter=0.5)
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
        core = make()
        for key in range(10):
            core.set(key, key, 1000)
        clock.now = 1000
        while len(core):
            assert core.next_due == 1000
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
        assert core.find("later") == 1
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
        assert core.find("key") is None


class TestOrderAndBounds:
    def test_the_least_recently_used_leaves_first(self, make):
        core = make(max_entries=3)
        for key in "abc":
            core.set(key, key, 10)
        core.find("a")
        core.set("b", "b", 10)
        removed = []
        core.set("d", "d", 10, removed=removed)
        assert removed == [("c", "c", EVICTED)]
        assert core.keys() == ["a", "b", "d"]

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

    def test_a_wrong_weight_changes_nothing_and_notifies_no_watch(self, make):
        core = make(max_weight=10)
        watch = core.watch("good", wants_value=True)
        with pytest.raises(OverflowError):
            core.set("good", 1, None, weight=-1)
        assert len(core) == 0
        assert not watch.broken


class TestModes:
    def test_absent(self, make, clock):
        core = make()
        assert core.add("key", 1, 5) & STORED
        assert core.add("key", 2, 5) == PRESENT
        clock.now = 5
        assert core.add("key", 2, 5) & STORED
        assert core.find("key") == 2

    def test_same_is_by_identity_and_may_keep_the_times(self, make, clock):
        core = make()
        value = [1]
        core.set("key", value, 50, grace=5)
        clock.now = 20
        assert core.replace("key", [2], KEEP_TTL, [1]) == CHANGED
        assert core.replace("key", [2], KEEP_TTL, value) & STORED
        assert core.times("key")[:2] == (50, 55)
        assert core.find("key") == [2]

    def test_evicting_one_key_is_no_write(self, make):
        core = make()
        core.set("key", 1, None)
        watch, removed = core.watch("key"), []
        assert core.evict(size=0, removed=removed) is False
        assert removed == [("key", 1, EVICTED)]
        assert core.counts().removals[EVICTED] == 1
        assert not watch.broken

    def test_only_the_dead_are_deleted(self, make, clock):
        core = make()
        core.set("key", 1, 5, grace=5)
        assert core.delete("key", MISSING, only_dead=True) is MISSING
        assert len(core) == 1
        clock.now = 5
        assert core.delete("key", MISSING, only_dead=True) is MISSING
        assert len(core) == 0


class TestClear:
    def test_clear_counts_all_as_cleared_at_once(self, make, clock):
        core = make()
        core.set(1, 1, 5)
        core.set(2, 2, 500)
        clock.now = 10
        assert core.clear() == 2
        assert len(core) == 0
        assert core.counts().removals == {EXPIRED: 0, EVICTED: 0, REPLACED: 0, DELETED: 0, CLEARED: 2}

    def test_a_caller_with_a_listener_drains_to_the_end(self, make):
        core = make()
        for key in range(3000):
            core.set(key, key, None)
        core.clear()
        removed = []
        while core.drain(removed=removed):
            pass
        assert sorted(removed) == [(key, key, CLEARED) for key in range(3000)]

    def test_what_is_dropped_by_other_calls_meanwhile_is_reported_as_well(self, make):
        core = make()
        for key in range(3000):
            core.set(key, key, None)
        core.clear()
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


class TestGate:
    def test_a_shut_gate_lets_hits_through_and_raises_for_the_rest(self, make):
        core = make()
        core.set("key", 1, 10)
        core.gate(lambda: LookupError("not yet"))
        assert core.find("key") == 1
        for call in (
            lambda: core.find("missing"),
            lambda: core.set("key", 2, None),
            lambda: core.touch("key", 5),
            lambda: core.delete("key"),
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
        assert core.find("key") is None


class TestCounts:
    def test_find_counts_a_hit_and_no_miss(self, make):
        core = make()
        core.set("key", 1, None)
        core.find("key")
        core.find("missing")
        for _ in range(3):
            core.count_hit("key")
            core.count_miss("missing")
        assert core.counts()[:2] == (4, 3)
        assert core.counts()[:2] == (4, 3), "reading is not counted"

    def test_a_put_is_a_value_that_a_set_stores(self, make, clock):
        core = make(max_entries=3, max_weight=10)
        core.set("a", 1, 10)
        core.set("a", 2, None)
        core.add("b", 1, None)
        core.replace("a", 3, None, 2)
        core.fill("b", 2, None, core.watch("b"), removed=[])
        core.set("a", 1, None, weight=1)
        assert core.counts().puts == 6
        core.add("b", 2, None)
        core.replace("a", 3, None, object())
        core.set("heavy", 1, None, weight=11)
        core.touch("a", 5)
        assert len(core) == 2
        assert core.counts().puts == 6

    def test_only_what_was_fresh_counts_as_weight_that_was_evicted(self, make, clock):
        core = make(max_entries=3, max_weight=MAX_WEIGHT)
        core.set("stale", 1, 5, grace=100, weight=1)
        core.set("fresh", 1, 100, weight=20)
        core.set("key", 1, None, weight=300)
        clock.now = 10
        core.set("new", 1, None, weight=4000)
        assert core.counts().evicted_weight == 0
        core.delete("key")
        core.evict(size=1)
        assert core.counts().evicted_weight == 20
        core.evict(size=0)
        assert core.counts().evicted_weight == 4020
        for key in range(6):
            core.set(key, 1, None, weight=MAX_WEIGHT)
        assert core.counts().evicted_weight == 4020 + 5 * MAX_WEIGHT, "beyond 64 bits"

    def test_a_child_counts_from_zero_and_keeps_the_entries(self, make):
        core = make(jitter=0.5, max_weight=9)
        core.set("evicted", 1, None, weight=9)
        core.set("key", 1, None, weight=9)
        core.find("key")
        watch = core.watch("key", wants_value=True)
        core.before_fork()
        core.after_fork(in_child=False)
        assert core.counts().hits == 1
        assert not watch.broken
        core.before_fork()
        core.after_fork(in_child=True)
        assert core.counts() == (0, 0, dict.fromkeys(RemovalCause, 0), 0, 0, (0,) * len(MissCause))
        assert core.groups() == []
        assert watch.broken
        assert core.find("key") == 1


def test_a_look_up_of_a_preliminary_key_counts_only_as_a_miss(make):
    core = make()
    core.group_by([GroupRule("list.", "pages", "", is_preliminary=True)])
    for key in ("list.1", ("list.2",), "page.1"):
        core.set(key, key, None)
        assert core.find(key) == key
        core.count_hit(key)
        core.count_stale_hit(key)
    for key in ("list.3", "page.3"):
        assert core.find(key) is None
        core.count_miss(key)
        core.count_hit(key)
    assert (core.counts().hits, core.counts().misses) == (3, 2)
    assert sum(each.stale_hits for each in core.groups()) == 1
    core.remove_value("list.1", "list.1", was_hit=True)
    assert core.counts().hits == 3
    assert [core.is_preliminary(key) for key in ("list.1", ("list.2",), "page.1", 1)] == [True, True, False, False]
