"""The behavior of a core, by example. Random steps against a model are in ``test_model.py``."""

from math import inf

import pytest

from tests.core.cores import CLEARED, DELETED, EXPIRED, advance_all, drain_all
from wheelcache.core.contract import (
    BATCH,
    CHANGED,
    COMPLETED,
    KEEP_TTL,
    MAX_WEIGHT,
    MORE,
    STORED,
    TOO_HEAVY,
    WAKE,
    GroupRule,
    MissCause,
    RemovalCause,
)


class TestTimes:
    def test_the_wheel_removes_an_entry_at_most_one_interval_late(self, make, clock):
        core, removed = make(interval=0.5), []
        core.set("key", "value", 3.3)
        clock.now = 3.3
        advance_all(core, removed)
        assert (core.next_due, removed) == (3.5, [])
        clock.now = 3.5
        advance_all(core, removed)
        assert (len(core), removed) == (0, [("key", "value", EXPIRED)])

    def test_jitter_only_shortens_and_by_a_minute_at_most(self, make):
        core = make(jitter=0.5)
        for ttl, least in ((10, 5), (1000, 940)):
            ends = [core.set(key, key, ttl) and core.times(key).fresh_until for key in range(500)]
            span = ttl - least
            assert least <= min(ends) < least + span / 5
            assert ttl - span / 10 < max(ends) <= ttl

    def test_an_exact_ttl_those_of_add_and_touch_and_no_ttl_have_no_jitter(self, make):
        core = make(jitter=0.5)
        core.set("key", "value", 10, exact=True)
        core.add("added", "value", 10)
        core.set("forever", "value", None)
        assert [core.times(key).fresh_until for key in ("key", "added", "forever")] == [10, 10, inf]
        core.touch("key", 20)
        core.replace("added", "other", 20, "value", exact=True)
        assert [core.times(key).fresh_until for key in ("key", "added")] == [20, 20]
        ends = set()
        for number in range(20):
            core.replace("key", number, 20, core.find("key"))
            ends.add(core.times("key").fresh_until)
        assert len(ends) > 10, "by default, a replaced value has jitter, too"

    def test_a_touch_keeps_the_grace_unless_the_entry_never_expires(self, make, clock):
        core = make()
        core.set("key", "value", 5, grace=10)
        core.set("forever", "value", None, grace=10)
        for key, times in (("key", (50, 60)), ("forever", (50, 50))):
            assert core.touch(key, 50) & STORED
            assert core.times(key)[:2] == times
        clock.now = 50
        assert core.touch("key", 5) == core.touch("missing", 5) == 0
        assert core.times("key")[:2] == (50, 60)

    def test_wake_tells_of_earlier_work_and_of_work_that_is_over_two_intervals_late(self, make, clock):
        core = make()
        assert core.next_due == inf
        assert core.set(1, 1, 100) == STORED | WAKE
        assert core.next_due == 100
        assert core.set(2, 2, 200) == core.set(3, 3, 100) == STORED
        assert core.set(3, 3, 50.5) == STORED | WAKE
        assert core.next_due == 51
        assert core.touch(2, 20) == STORED | WAKE
        clock.now = 22
        assert core.set(4, 4, 100) == core.touch(4, 100) == STORED
        clock.now = 22.1
        assert core.set(4, 4, 100) == core.touch(4, 100) == STORED | WAKE

    def test_after_a_clear_the_wheel_thread_has_work_until_all_is_dropped(self, make):
        core = make()
        core.set("key", "value", None)
        core.clear()
        assert core.next_due == -inf
        assert not core.drain()
        assert core.next_due == inf

    def test_a_clock_may_be_exchanged_and_go_back(self, make):
        core, now = make(), [50.0]
        core.use_clock(lambda: 1e9)
        core.set("later", 1, 100)
        core.set("forever", 1, None)
        advance_all(core)
        core.use_clock(lambda: now[0])
        core.set("key", 1, 10)
        assert core.find("later") == 1
        now[0] = 60.0
        advance_all(core)
        assert (core.keys(), len(core)) == (["forever", "later"], 2)
        now[0] = 1e9 + 101
        advance_all(core)
        assert len(core) == 1


class TestOrderAndBounds:
    def test_an_expired_entry_counts_as_expired_whatever_removes_it(self, make, clock):
        core, removed = make(max_entries=4), []
        for key in range(4):
            core.set(key, key, 5, grace=10)
        clock.now = 5
        core.set(0, "new", 10, removed=removed)
        core.delete(1, removed=removed)
        core.evict(size=2, removed=removed)
        core.remove_value(3, 3, removed)
        assert removed == [(key, key, EXPIRED) for key in range(4)]
        assert core.counts().removals == {**dict.fromkeys(RemovalCause, 0), EXPIRED: 4}

    def test_one_set_evicts_a_batch_at_most_and_says_that_there_is_more(self, make):
        core = make(max_weight=2 * BATCH)
        for key in range(2 * BATCH):
            assert not core.set(key, key, None, weight=1) & MORE
        assert core.set("heavy", 0, None, weight=2 * BATCH) & MORE
        assert (len(core), core.evict(100)) == (BATCH + 1, True)
        assert len(core) == BATCH - 99
        while core.evict():
            pass
        assert (core.keys(), core.weight) == (["heavy"], 2 * BATCH)
        assert core.set("too heavy", 0, None, weight=2 * BATCH + 1) == TOO_HEAVY
        assert core.keys() == ["heavy"]

    @pytest.mark.parametrize("weight", [-1, MAX_WEIGHT + 1])
    def test_a_weight_out_of_range_is_an_error_that_changes_nothing(self, make, weight):
        core = make(max_weight=10)
        watch = core.watch("key", wants_value=True)
        for call in (core.set, core.add):
            with pytest.raises(OverflowError, match=r"2\*\*62"):
                call("key", 1, None, weight=weight)
        assert (len(core), watch.broken) == (0, False)


class TestModes:
    def test_replace_expects_a_value_by_identity_and_may_keep_the_times(self, make, clock):
        core, value = make(), [1]
        core.set("key", value, 50, grace=5)
        clock.now = 20
        assert core.replace("key", [2], KEEP_TTL, [1]) == core.replace("missing", 2, 5, None) == CHANGED
        assert core.replace("key", [2], KEEP_TTL, value) & STORED
        assert (core.find("key"), core.times("key")[:2]) == ([2], (50, 55))
        assert core.replace("key", [3], 10, core.find("key"), 2) & STORED
        assert core.times("key")[:2] == (30, 32)
        clock.now = 30
        assert core.replace("key", 4, 10, core.peek("key").value) == CHANGED
        core.set("key", 5, 10)
        assert core.replace("key", 6, 10, 5) & core.fill("filled", 6, 10, core.watch("filled")) & STORED
        assert core.times("key") == core.times("filled") == (40, 40, True), "without grace"

    def test_an_entry_leaves_only_while_it_has_that_very_value_and_its_hit_is_taken_back(self, make):
        core, old, new, removed = make(), ["equal"], ["equal"], []
        core.set("key", new, None)
        watch = core.watch("key")
        assert core.find("key") is new
        core.remove_value("key", old, removed, was_hit=True)
        assert (core.counts().hits, core.find("key"), removed) == (0, new, [])
        core.remove_value("key", new, removed)
        assert (core.counts().hits, core.find("key"), removed) == (1, None, [("key", new, DELETED)])
        assert not watch.broken


class TestClear:
    def test_each_detached_entry_is_reported_once_whichever_call_drops_it(self, make):
        core, removed = make(), []
        for key in range(3000):
            core.set(key, key, None)
        core.clear()
        core.set("new", 1, 10, removed=removed)
        assert 1 < len(removed) <= 4, "a few, and more than a set adds"
        assert core.advance(100, removed) == 100
        assert core.drain(200, removed) is True
        assert len(removed) <= 304
        drain_all(core, removed)
        assert sorted(removed) == [(key, key, CLEARED) for key in range(3000)]
        assert core.drain() is False


def test_a_shut_gate_lets_hits_through_and_raises_for_the_rest(make):
    core = make()
    core.set("key", 1, 10)
    core.gate(lambda: LookupError("not yet"))
    assert core.find("key") == 1
    for call in (
        lambda: core.find("missing"),
        lambda: core.set("key", 2, None),
        lambda: core.touch("key", 5),
        lambda: core.delete("key"),
        lambda: core.remove_value("key", 1),
        lambda: core.drop_tag("tag"),
        lambda: core.peek("key"),
        lambda: core.times("key"),
        lambda: core.watch("key"),
        *(core.evict, core.keys, lambda: core.scan().step(1)),
    ):
        with pytest.raises(LookupError, match="not yet"):
            call()
    assert (core.counts()[:2], len(core)) == ((1, 0), 1)
    assert core.clear() == 1
    core.advance()
    core.drain()
    core.gate(None)
    assert core.find("key") is None


class TestCounts:
    def test_a_child_counts_from_zero_and_keeps_the_entries(self, make):
        core = make(jitter=0.5, max_weight=9)
        core.set("evicted", 1, None, weight=9)
        core.set("key", 1, None, weight=9)
        core.find("key")
        core.count_stale_hit("key")
        core.count_load("key", 0.5, has_failed=True)
        core.count_miss("missing")
        watch = core.watch("key", wants_value=True)
        core.set("waited for", 1, None)
        core.before_fork()
        core.after_fork(in_child=False)
        assert (core.counts().hits, watch.broken) == (1, False)
        core.before_fork()
        core.after_fork(in_child=True)
        assert core.counts() == (0, 0, dict.fromkeys(RemovalCause, 0), 0, 0, (0,) * len(MissCause))
        assert (core.groups(), watch.broken, core.find("waited for")) == ([], True, 1)
        assert not core.set("key", 2, None) & COMPLETED, "the watch is closed"

    def test_a_look_up_of_a_preliminary_key_counts_only_as_a_miss(self, make):
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
        keys = ("list.1", ("list.2",), "page.1", 1, ())
        assert [core.is_preliminary(key) for key in keys] == [True, True, False, False, False]
