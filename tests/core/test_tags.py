"""Tags: entries that are dropped together."""

import sys
import threading
import tracemalloc
from math import inf

import pytest

from tests.core.advancing import advance_all
from tests.core.implementations import COMPILED
from tests.core.labels import labels
from tests.memory import traced
from tests.waiting import join, start
from wheelcache.core.contract import (
    CHANGED,
    KEEP_TTL,
    OUTDATED,
    STORED,
    SWEEP_INTERVAL,
    WAKE,
    RemovalCause,
)
from wheelcache.runtime.clock import moment

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

RED, BLUE = "red", "blue"


def sweep(core, removed=None):
    while core.drain(removed=removed):
        pass


class TestDrop:
    def test_a_dropped_entry_is_as_good_as_deleted_before_it_is_removed(self, make):
        core = make()
        core.set("key", 1, 10, grace=100, labels=labels((RED,)))
        assert core.drop_tag("red") == 1
        assert core.find("key") is None
        assert core.times("key") is None
        assert core.peek("key") is None
        assert core.keys() == []
        assert core.touch("key", 5) == 0
        assert core.replace("key", 2, KEEP_TTL, 1) == CHANGED
        assert core.delete("key", "missing") == "missing"

    def test_an_entry_leaves_with_any_of_its_tags_and_others_stay(self, make):
        core = make()
        core.set("red", 1, None, labels=labels((RED,)))
        core.set("both", 2, None, labels=labels((RED, BLUE)))
        core.set("blue", 3, None, labels=labels((BLUE,)))
        core.set("none", 4, None)
        assert core.drop_tag("red") == 2
        assert core.keys() == ["blue", "none"]
        assert core.drop_tag("blue") == 2, "as len counts them"
        assert core.keys() == ["none"]
        assert core.drop_tag("red") == core.drop_tag("never used") == 0

    def test_the_wheel_removes_and_reports_dropped_entries(self, make, clock):
        core = make(max_weight=1000)
        for key in range(50):
            core.set(key, -key, 5 if key == 7 else 100, weight=2, labels=labels((RED,) if key < 40 else ()))
        clock.now = 6
        assert core.drop_tag("red") == 40
        assert core.next_due == -inf
        removed = []
        advance_all(core, removed)
        assert sorted(removed) == [(key, -key, EXPIRED if key == 7 else DELETED) for key in range(40)]
        assert (len(core), core.weight) == (10, 20)
        assert core.counts().removals[DELETED] == 39
        assert core.next_due > clock.now

    def test_a_step_looks_at_no_more_entries_than_its_budget(self, make):
        core = make()
        for key in range(100):
            core.set(key, key, None, labels=labels((RED,)))
        core.drop_tag("red")
        for _ in range(9):
            before = len(core)
            core.advance(10)
            assert before - len(core) <= 10
            assert core.next_due == -inf
        sweep(core)
        assert len(core) == 0

    def test_a_drop_during_the_sweep_of_another_tag_is_swept_as_well(self, make):
        core = make()
        for key in range(100):
            core.set(key, key, None, labels=labels((RED if key % 2 else BLUE,)))
        core.drop_tag("red")
        core.drain(30)
        core.drop_tag("blue")
        sweep(core)
        assert len(core) == 0
        assert core.next_due == inf

    def test_so_is_one_if_the_sweep_ends_among_thousands_of_entries_without_tags(self, make):
        core = make()
        for key in range(5000):
            core.set(key, key, None)
        core.set("red", 1, None, labels=labels((RED,)))
        core.set("blue", 2, None, labels=labels((BLUE,)))
        core.drop_tag("red")
        core.drain(1)
        core.drop_tag("blue")
        sweep(core)
        assert len(core) == 5000

    def test_after_the_first_drop_the_next_sweep_is_due_within_a_second_while_entries_have_tags(self, make, clock):
        core = make(interval=0.25)
        for key in range(3):
            core.set(key, 1, None, labels=labels((f"{key}",)))
        assert core.next_due == inf
        core.drop_tag("0")
        assert core.next_due == -inf
        for _ in range(3):
            advance_all(core)
            assert len(core) == 2
            assert core.next_due == clock.now + SWEEP_INTERVAL
            clock.now += SWEEP_INTERVAL
        advance_all(core)
        core.drop_tag("1")
        core.drop_tag("never used")
        assert core.next_due == clock.now + SWEEP_INTERVAL, "the drop wakes no thread"
        assert not core.set("other", 1, None) & WAKE
        assert core.set("due before", 1, 0.5) & WAKE
        assert core.next_due == clock.now + 0.5
        clock.now += SWEEP_INTERVAL
        advance_all(core)
        assert sorted(core.keys(), key=str) == [2, "other"]
        assert len(core) == 2
        core.drop_tag("2")
        clock.now += SWEEP_INTERVAL + 3
        assert core.set("late", 1, None) & WAKE, "no thread runs, so the write must do its work"
        advance_all(core)
        assert len(core) == 2
        assert core.next_due == inf

    def test_a_sweep_is_due_once_more_after_the_last_entry_with_a_tag_has_expired(self, make, clock):
        core = make()
        core.set("dropped", 1, None, labels=labels((RED,)))
        core.set("key", 1, 1, labels=labels((BLUE,)))
        core.drop_tag("red")
        sweep(core)
        clock.now += 10
        advance_all(core)
        assert len(core) == 0
        assert core.next_due == clock.now + SWEEP_INTERVAL
        clock.now += SWEEP_INTERVAL
        core.advance()
        assert core.next_due == inf

    @pytest.mark.parametrize("seconds", [-1000, 1000])
    def test_a_dropped_entry_leaves_memory_on_another_clock_as_well(self, make, clock, seconds):
        core = make()
        for key in range(2):
            core.set(key, 1, None, labels=labels((f"{key}",)))
            core.drop_tag(f"{key}")
            core.set("kept", 1, None, labels=labels((RED,)))
            sweep(core)
        core.set("dropped", 1, None, labels=labels((BLUE,)))
        core.drop_tag("blue")
        now = clock.now + seconds
        core.use_clock(lambda: now)
        advance_all(core)
        assert len(core) == 1
        assert core.next_due <= now + SWEEP_INTERVAL

    def test_a_set_has_the_wheel_advanced_while_entries_are_left_to_sweep(self, make):
        core = make()
        core.set("key", 1, None, labels=labels((RED,)))
        assert not core.set("other", 1, None) & WAKE
        core.drop_tag("red")
        assert core.set("other", 1, None) & WAKE

    def test_an_entry_that_is_stored_after_the_drop_stays(self, make):
        core = make()
        core.set("key", 1, None, labels=labels((RED,)))
        core.drop_tag("red")
        core.set("key", 2, None, labels=labels((RED,)))
        sweep(core)
        assert core.find("key") == 2
        assert core.counts().removals[REPLACED] == 1
        assert core.drop_tag("red") == 1

    def test_clear_forgets_tags(self, make):
        core = make()
        core.set("old", 1, None, labels=labels((RED,)))
        core.clear()
        removed = []
        core.set("new", 2, None, removed=removed, labels=labels((RED,)))
        assert core.drop_tag("red") == 1
        sweep(core, removed)
        assert sorted(removed) == [("new", 2, DELETED), ("old", 1, CLEARED)]


class TestSet:
    def test_a_set_replaces_the_tags(self, make):
        core = make()
        core.set("key", 1, None, labels=labels((RED,)))
        core.set("key", 2, None, labels=labels((BLUE,)))
        assert core.drop_tag("red") == 0
        assert core.peek("key").tags == ("blue",)
        core.set("key", 3, None)
        assert core.drop_tag("blue") == 0
        assert core.peek("key").tags == ()
        assert core.find("key") == 3

    def test_a_value_that_is_replaced_in_place_and_a_touch_keep_the_tags(self, make):
        core = make()
        core.set("key", 1, 10, labels=labels((RED,)))
        core.replace("key", 2, KEEP_TTL, 1)
        core.touch("key", 20)
        assert core.peek("key").tags == ("red",)
        assert core.drop_tag("red") == 1

    @pytest.mark.parametrize("leave", ["delete", "expire", "evict"])
    def test_entries_that_have_left_do_not_count(self, make, clock, leave):
        core = make(max_entries=2)
        core.set("key", 1, 5, labels=labels((RED,)))
        match leave:
            case "delete":
                core.delete("key")
            case "expire":
                clock.now = 10
                advance_all(core)
            case "evict":
                core.set("one", 1, None)
                core.set("two", 1, None)
        assert core.drop_tag("red") == 0

    def test_a_scan_shows_the_tags(self, make):
        core = make()
        core.set("key", 1, None, labels=labels((RED, BLUE)))
        core.set("other", 1, None)
        assert {record.key: record.tags for record in core.scan().step(5)} == {"key": ("red", "blue"), "other": ()}

    @pytest.mark.parametrize("core_class", [COMPILED], indirect=True)
    @pytest.mark.parametrize("name", [1, b"red", type("Name", (str,), {})("red")])
    def test_a_name_that_is_no_string_is_refused(self, make, name):
        core = make()
        with pytest.raises(TypeError):
            core.set("key", 1, None, labels=labels((RED, name)))
        with pytest.raises(TypeError):
            core.drop_tag(name)
        assert len(core) == 0
        assert core.drop_tag("red") == 0


class TestValuesComputedDuringADrop:
    def test_a_value_is_not_stored_if_a_tag_was_dropped_since_its_watch_began(self, make):
        core = make()
        early = core.watch("key")
        core.drop_tag("red")
        late = core.watch("key")
        assert core.fill("key", 1, None, early, labels=labels((BLUE, RED))) == CHANGED
        assert core.fill("key", 1, None, late, labels=labels((BLUE, RED))) & STORED

    def test_a_value_is_not_stored_if_a_tag_was_dropped_since_a_moment(self, make):
        core = make()
        before = moment()
        core.drop_tag("red")
        assert core.set("key", 1, None, labels=labels((RED,), since=before)) == OUTDATED
        assert core.set("key", 1, None, labels=labels((RED,), since=moment())) & STORED
        core.drop_tag("red")
        assert core.set("key", 2, None, labels=labels((RED,))) & STORED, "news"

    def test_drops_of_most_other_tags_do_not_matter(self, make):
        core = make()
        before = moment()
        core.drop_tag("red")
        names = map(str, range(100))
        assert sum(core.set(name, 1, None, labels=labels((name,), since=before)) == STORED for name in names) > 90


class TestMemory:
    @pytest.mark.alone
    @pytest.mark.parametrize("core_class", [COMPILED], indirect=True)
    def test_tags_take_at_most_64_bytes_for_the_first_and_24_for_each_more(self, make):
        users, cores, sizes = [f"user {number}" for number in range(1000)], [], []
        tracemalloc.start()
        try:
            for tags in ((), ("",), ("", RED)):
                core, before = make(), traced(__file__)
                for key in range(20_000):
                    core.set(key, 0, None, labels=labels(tuple([tag or users[key % 1000] for tag in tags])))
                cores.append(core)
                sizes.append((traced(__file__) - before) / 20_000)
        finally:
            tracemalloc.stop()
        # malloc adds up to 16 bytes to 16 and 24. The tags themselves are few.
        assert 24 <= sizes[1] - sizes[0] <= 32
        assert 32 <= sizes[2] - sizes[0] <= 40

    @pytest.mark.parametrize("core_class", [COMPILED], indirect=True)
    def test_names_are_forgotten_with_their_last_entry(self, make):
        core = make(max_entries=10)
        name = "".join(["a name", " of a tag"])
        before = sys.getrefcount(name)
        for key in range(100):
            core.set(key, key, None, labels=labels((name, f"{key}")))
        assert sys.getrefcount(name) > before
        for key in range(90, 95):
            core.delete(key)
        core.evict(size=0)
        assert sys.getrefcount(name) == before
        core.set("key", 1, None, labels=labels((name,)))
        core.drop_tag(name)
        sweep(core)
        assert sys.getrefcount(name) == before
        core.set("key", 1, None, labels=labels((name,)))
        core.clear()
        sweep(core)
        assert sys.getrefcount(name) == before
        core.set("key", 1, None, labels=labels((name,)))
        del core
        assert sys.getrefcount(name) == before

    def test_dropping_a_tag_while_others_read_and_write_keeps_every_promise(self, make):
        core = make(max_entries=200)
        ends = threading.Event()
        errors = []

        def write(number):
            try:
                while not ends.is_set():
                    for key in range(100):
                        core.set((number, key), number, None, labels=labels((f"{number}", RED)))
                        core.find((1 - number, key))
                    # No other thread stores entries with this tag.
                    core.drop_tag(f"{number}")
                    assert all(core.find((number, key)) is None for key in range(100))
            except BaseException as error:
                errors.append(error)

        threads = [start(write, number) for number in range(2)]
        for _ in range(100):
            core.drop_tag("red")
            core.advance(64)
        ends.set()
        join(*threads)
        sweep(core)
        assert errors == []
        assert len(core) == len(core.keys())
