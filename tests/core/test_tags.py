"""Tags: entries that are dropped together."""

import sys
from math import inf

import pytest

from tests.core.cores import DELETED, EXPIRED, advance_all, compiled, drain_all, labels
from wheelcache.core.contract import OUTDATED, STORED, SWEEP_INTERVAL, WAKE
from wheelcache.runtime.clock import moment

RED, BLUE = labels(("red",)), labels(("blue",))
BOTH = labels(("red", "blue"))


class TestDrop:
    def test_the_wheel_removes_and_reports_dropped_entries(self, make, clock):
        core, removed = make(max_weight=1000), []
        for key in range(50):
            core.set(key, -key, 5 if key == 7 else 100, weight=2, labels=RED if key < 40 else None)
        clock.now = 6
        assert core.drop_tag("red") == 40
        assert core.next_due == -inf
        advance_all(core, removed)
        assert sorted(removed) == [(key, -key, EXPIRED if key == 7 else DELETED) for key in range(40)]
        assert (len(core), core.weight, core.counts().removals[DELETED]) == (10, 20, 39)
        assert core.next_due > clock.now

    def test_neither_a_drop_nor_a_clear_concerns_what_is_stored_later(self, make):
        core, removed = make(), []
        for forget in (lambda: core.drop_tag("red"), core.clear):
            core.set("key", 1, None, labels=BOTH)
            assert forget() == 1
            core.set("key", 2, None, removed=removed, labels=RED)
            drain_all(core, removed)
            assert core.find("key") == 2
        assert [key for key, _, _ in removed] == ["key"] * 2
        assert core.drop_tag("red") == 1

    @pytest.mark.parametrize("step", ["drain", "advance"])
    def test_the_budget_is_for_detached_dropped_and_expired_entries_together(self, make, clock, step):
        core, removed = make(), []
        for key in range(1000):
            core.set(key, key, None)
        core.clear()
        for key in range(20):
            core.set(key, key, 5, removed=removed, labels=RED if key < 10 else None)
        core.drop_tag("red")
        clock.now = 10
        for budget in (1000 - len(removed) + 5, 7):
            before = len(removed)
            getattr(core, step)(budget, removed)
            assert 0 < len(removed) - before <= budget

    @pytest.mark.parametrize("others", [0, 5000])
    def test_a_drop_during_the_sweep_of_another_tag_is_swept_as_well(self, make, others):
        core = make()
        for key in range(others):
            core.set(key, key, None)
        for key in range(others, others + 100):
            core.set(key, key, None, labels=RED if key % 2 else BLUE)
        core.drop_tag("red")
        core.drain(30)
        core.drop_tag("blue")
        drain_all(core)
        assert len(core) == others
        assert core.next_due == inf

    def test_after_the_first_drop_the_next_sweep_is_due_within_a_second_while_entries_have_tags(self, make, clock):
        core = make(interval=0.25)
        for key in range(3):
            core.set(key, 1, None, labels=labels((f"{key}",)))
        assert core.next_due == inf
        core.drop_tag("0")
        assert core.next_due == -inf
        assert core.set("other", 1, None) & WAKE, "the sweep is late"
        for _ in range(3):
            advance_all(core)
            assert len(core) == 3
            assert core.next_due == clock.now + SWEEP_INTERVAL
            clock.now += SWEEP_INTERVAL
        advance_all(core)
        core.drop_tag("1")
        core.drop_tag("never used")
        assert core.next_due == clock.now + SWEEP_INTERVAL, "the drop wakes no thread"
        assert not core.set("other", 1, None) & WAKE
        assert not core.set("due later", 1, 5) & WAKE
        assert core.set("due before", 1, 0.5) & WAKE
        assert core.next_due == clock.now + 0.5
        clock.now += SWEEP_INTERVAL
        advance_all(core)
        assert core.keys() == [2, "other", "due later"]
        core.delete(2)
        core.delete("due later")
        assert core.next_due == clock.now + SWEEP_INTERVAL, "once more after the last entry with a tag"
        clock.now += SWEEP_INTERVAL
        advance_all(core)
        assert (len(core), core.next_due) == (1, inf)


class TestSet:
    @compiled
    @pytest.mark.parametrize("name", [1, b"red", type("Name", (str,), {})("red")])
    def test_a_name_that_is_no_string_is_refused(self, make, name):
        core = make()
        for call in (lambda: core.set("key", 1, None, labels=labels(("red", name))), lambda: core.drop_tag(name)):
            with pytest.raises(TypeError):
                call()
        assert len(core) == core.drop_tag("red") == 0


class TestValuesComputedDuringADrop:
    def test_a_value_is_not_stored_if_a_tag_was_dropped_since_a_moment(self, make):
        core = make()
        before = moment()
        core.drop_tag("red")
        assert core.set("key", 1, None, labels=labels(("red",), since=before)) == OUTDATED
        assert core.dropped_since(("red",), before)
        after = moment()
        assert not core.dropped_since(("red",), after)
        assert core.set("key", 1, None, labels=labels(("red",), since=after)) & STORED
        core.drop_tag("red")
        assert core.set("key", 2, None, labels=RED) & STORED, "news"

    def test_drops_of_most_other_tags_do_not_matter(self, make):
        core = make()
        before = moment()
        core.drop_tag("red")
        names = map(str, range(100))
        assert sum(core.set(name, 1, None, labels=labels((name,), since=before)) == STORED for name in names) > 98


class TestMemory:
    @compiled
    def test_names_are_forgotten_with_their_last_entry(self, make):
        core = make(max_entries=10)
        name = "".join(["a name", " of a tag"])
        before = sys.getrefcount(name)
        for key in range(100):
            core.set(key, key, None, labels=labels((name, f"{key}")))
        assert sys.getrefcount(name) > before
        for key in range(90, 95):
            core.delete(key)
        for leave in ("evict", "drop", "clear"):
            match leave:
                case "evict":
                    core.evict(size=0)
                case "drop":
                    core.drop_tag(name)
                case "clear":
                    core.clear()
            drain_all(core)
            assert sys.getrefcount(name) == before
            core.set("key", 1, None, labels=labels((name,)))
        del core
        assert sys.getrefcount(name) == before
