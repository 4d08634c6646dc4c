"""The behavior of a core for concurrent callers, by example: watches, trust, scans."""

import gc
import weakref
from array import array

import pytest

from tests.core.cores import REPLACED, advance_all
from wheelcache.core.contract import CHANGED, COMPLETED, MISSING, PRESENT, STORED, TOO_HEAVY


class TestWatches:
    @pytest.mark.parametrize("has_entry", [True, False])
    @pytest.mark.parametrize("write", ["set", "delete", "clear"])
    def test_a_set_a_delete_and_a_clear_break_the_watches_of_the_key_also_without_an_entry(
        self, make, write, has_entry
    ):
        core = make()
        if has_entry:
            core.set("key", 1, None)
        watch, other = core.watch("key"), core.watch("other")
        {"set": lambda: core.set("key", 2, None), "delete": lambda: core.delete("key"), "clear": core.clear}[write]()
        assert (watch.broken, other.broken) == (True, write == "clear")

    def test_a_guard_is_not_broken_by_what_changes_no_value(self, make, clock):
        core = make(max_entries=1)
        core.set("key", 1, 5)
        watch = core.watch("key", wants_value=True)
        assert core.add("key", 2, None) == PRESENT
        assert core.replace("key", 2, None, object()) == CHANGED
        core.touch("key", 6)
        core.set("other", 1, None)
        core.evict(size=0)
        clock.now = 10
        core.advance()
        core.delete("key", only_dead=True)
        assert (watch.broken, watch.value) == (False, MISSING)

    def test_a_set_under_a_watch_leaves_it_open_and_breaks_the_others(self, make):
        core = make()
        mine, other = core.watch("key"), core.watch("key")
        assert core.fill("key", 1, None, mine) & STORED
        assert (mine.broken, other.broken) == (False, True)
        core.set("key", 2, None)
        assert mine.broken
        assert core.fill("key", 3, None, mine) == CHANGED
        assert core.find("key") == 2

    def test_no_set_under_a_watch_that_its_owner_broke_is_stored(self, make):
        core = make()
        watch = core.watch("key")
        watch.broken = True
        assert core.fill("key", 1, None, watch) == CHANGED
        assert core.find("key") is None

    def test_only_a_set_completes_a_value_watch_and_only_the_first(self, make):
        core = make(max_weight=1)
        watch, closed = core.watch("key", wants_value=True), core.watch("key", wants_value=True)
        # A set forgets a few ended watches.
        for ended in [*(core.watch(number) for number in range(20)), closed]:
            ended.close()
        core.delete("key")
        core.clear()
        assert (watch.value, closed.broken) == (MISSING, False)
        assert core.set("key", "heavy", None, weight=2) == TOO_HEAVY | COMPLETED
        assert not core.set("key", "second", None) & COMPLETED
        assert (watch.value, closed.value) == ("heavy", MISSING)
        assert [core.completed.popleft()] == [watch]
        watch, removed = core.watch("key", wants_value=True), []
        assert core.set("key", "third", None, removed=removed) & COMPLETED
        assert (watch.value, removed) == ("third", [("key", "second", REPLACED)])
        assert [*core.completed] == [watch]

    def test_closed_and_dropped_watches_leave_no_key_behind(self, make, clock):
        class Key(str):
            __slots__ = ("__weakref__",)

        core, kept = make(), []
        for number in range(100):
            key = Key(number)
            kept.append(weakref.ref(key))
            watch = core.watch(key)
            if number % 2:
                core.fill(key, 1, 5, watch)
                watch.close()
        del key, watch
        clock.now = 10
        for _ in range(20):
            core.watch("other").close()
            advance_all(core)
            core.advance()
        gc.collect()
        assert len(core) == 0
        assert sum(each() is not None for each in kept) == 0


class TestTrust:
    @pytest.fixture
    def word(self):
        return array("Q", [1])

    def test_an_entry_is_current_only_in_the_epoch_of_trust_in_which_it_was_stored(self, make, word):
        core = make(trust=word)
        core.set("key", 1, 10)
        assert core.find("key") == 1
        assert core.touch("key", 20) & STORED
        for word[0] in (2, 3, 4):
            core.set("stored without trust", 1, None) if word[0] == 2 else None
            assert core.find("key") is core.find("stored without trust") is None
            assert core.peek("key").value == 1
            assert not core.times("key").is_current
            assert core.touch("key", 30) == 0
        word[0] = 1
        assert core.find("key") == 1

    def test_a_value_under_a_watch_is_as_trusted_as_when_the_watch_began(self, make, word):
        core = make(trust=word)
        guard, waiting, leader = core.watch("key"), core.watch("key", wants_value=True), core.watch("key")
        assert (leader.trust, core.trust) == (1, 1)
        word[0] = 3
        assert core.trust == 3
        outcome = core.fill("key", "late", None, leader)
        assert outcome & (STORED | COMPLETED) == STORED
        assert (core.find("key"), core.peek("key").value) == (None, "late")
        assert (guard.broken, waiting.broken, leader.broken) == (True, True, False)
        assert (waiting.value, *core.completed) == (MISSING,)
        assert core.set("key", "news", None) & COMPLETED
        assert waiting.value == core.find("key") == "news"

    def test_a_core_that_is_closed_is_cleared(self, make):
        core = make()
        core.set("key", 1, None)
        watch = core.watch("key")
        core.gate(RuntimeError)
        assert core.clear(invalidate=False) == 1
        assert (len(core), watch.broken) == (0, True)


class TestScans:
    def test_a_scan_brings_each_entry_and_may_leave_out_a_share(self, make):
        core = make()
        assert core.scan(start=0.5).step(5) == []
        for key in range(100):
            core.set(key, -key, 10)
        everything = core.scan().step(1000)
        assert sorted((record.key, record.value) for record in everything) == [(key, -key) for key in range(100)]
        for left_out in (1, 50, 99, 100):
            assert core.scan(start=left_out / 100).step(1000) == everything[left_out:]
        scan, found = core.scan(), []
        while some := scan.keys(30):
            assert len(some) <= 30
            found += some
        assert found == [record.key for record in everything]
        assert core.counts()[:2] == (0, 0)

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
