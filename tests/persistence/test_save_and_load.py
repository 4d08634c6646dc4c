"""Saving a cache and loading it into another: the same entries, TTLs and order, and never a wrong value."""

import logging
import pickle
import shutil
import tempfile
import threading
import time
from contextvars import copy_context
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.persistence import calling
from tests.persistence.caches import filled, kept
from tests.persistence.calling import Calling, Unreadable
from wheelcache import CacheClosed, ManualClock, RemovalCause
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.contract import VIEW, GroupRule
from wheelcache.keys import NO_VIEW
from wheelcache.persistence import snapshots
from wheelcache.persistence.snapshot_file import SnapshotWriter
from wheelcache.runtime.clock import SystemClock

SECRETS = pytest.mark.parametrize("secret", [None, "a secret"], ids=["unsigned", "signed"])
FEW_A_STEP = 2
LAZY = {"interval": 1000}
"""Expired entries stay in memory."""


@pytest.fixture
def short_steps(monkeypatch):
    monkeypatch.setattr(snapshots, "STEP", FEW_A_STEP)


@pytest.fixture
def removals():
    return []


@pytest.fixture
def noted(removals):
    """Make a cache that records its removals."""
    return lambda **options: kept(on_removal=lambda *removal: removals.append(removal), **options)


def evicted(removals):
    return [key for key, _, cause in removals if cause is RemovalCause.EVICTED]


def contents(cache):
    return cache.get_many(cache.keys())


def left(cache):
    return {key: cache.expires_in(key) for key in cache.keys()}


def write(path, *records, kind="cache", **header):
    with SnapshotWriter(path, {"kind": kind, **header}, None) as file:
        for record in records:
            file.write(pickle.dumps(record))


KEYS = st.one_of(st.text(max_size=5), st.integers(), st.none(), st.tuples(st.text(max_size=3), st.integers()))
VALUES = st.one_of(st.text(), st.binary(), st.lists(st.integers()), st.none())
TTLS = st.one_of(st.none(), st.integers(1, 1000), st.floats(1, 1e9))


@SECRETS
@settings(max_examples=60)
@given(
    entries=st.lists(st.tuples(KEYS, VALUES, TTLS), max_size=30),
    used=st.lists(st.integers(0, 29), max_size=10),
    before=st.sampled_from([0.0, 10.0]),
    away=st.sampled_from([0.0, 0.5, 100.0]),
    step=st.integers(1, 7),
)
@pytest.mark.deep
def test_what_is_saved_is_loaded_with_the_time_that_is_left_in_order_of_use(secret, entries, used, before, away, step):
    clock = ManualClock(50.0)
    cache, other = kept(clock=clock), kept(clock=ManualClock(12345.0))
    for key, value, ttl in entries:
        cache.set(key, value, ttl)
    for index in used:
        if index < len(entries):
            cache.get(entries[index][0])
    clock.advance(before)
    # Equal keys are restored as the first one that was saved.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "STEP", step)
        patch.setattr(time, "time", lambda: 5e5)
        cache.save(Path(folder) / "a", secret=secret)
        patch.setattr(time, "time", lambda: 5e5 + away)
        loaded = other.load(Path(folder) / "a", secret=secret)
    clock.advance(away)
    assert loaded == len(other) == len(cache.keys())
    assert other.keys() == cache.keys()
    assert contents(other) == contents(cache)
    for (key, found), expected in zip(left(other).items(), left(cache).values(), strict=True):
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-4)), key


def test_the_time_since_the_save_counts_and_no_clock_makes_anything_live_longer(path, wall):
    cache = filled({"a": 1}, 100)
    cache.set("b", 1, 50)
    cache.save(path)
    for passed, expected in [(60, {"a": 40}), (-3600, {"a": 100, "b": 50}), (1e9, {}), (0, {"a": 100, "b": 50})]:
        wall.now = 1_000_000.0 + passed
        other = kept()
        assert other.load(path) == len(expected)
        assert left(other) == expected


def test_the_time_that_saving_and_loading_take_counts(path, wall):
    clocks = ManualClock(), ManualClock()
    cache, other = (kept(clock=clock) for clock in clocks)
    cache.set_many({"first": Calling(), "last": 1}, 100)

    def takes(clock, seconds):
        def pass_time():
            clock.advance(seconds)
            wall.now += seconds

        return staticmethod(pass_time)

    Calling.saving = takes(clocks[0], 5)
    cache.save(path)
    Calling.loading = takes(clocks[1], 20)
    assert other.load(path) == 2
    # The same for a record after the slow one and for the slow one itself.
    assert left(other) == {"first": 75, "last": 75}


@pytest.mark.parametrize(("stale_for", "away", "left"), [(20, 40, 40), (0, 1, 99), (1, 0, 99), (20, 81, None)])
def test_a_stale_value_keeps_the_rest_of_its_grace(path, wall, stale_for, away, left):
    clock = ManualClock()
    cache = kept(clock=clock)
    cache.get_or_load("a", lambda: "old", 10, grace=100)
    clock.advance(10 + stale_for)
    assert cache.save(path) == 1
    wall.now += away
    clock = ManualClock()
    other = kept(clock=clock)
    assert other.load(path) == len(other) == (left is not None)
    assert other.get("a") is None
    if left is not None:
        clock.advance(left - 0.5)
        assert other.get_or_load("a", lambda: 1 / 0, 10, grace=100, fail_safe=True) == "old"
        clock.advance(2)
        assert len(other) == 0


def test_what_has_expired_or_is_not_current_is_not_saved(path, tmp_path):
    clock = ManualClock()
    cache = kept(clock=clock, stamps=SharedStamps("saved", tmp_path), **LAZY)
    cache.set("1", "expired", 5)
    cache.set_many({"2": "outdated", "3": "good"})
    clock.advance(5)
    kept(stamps=SharedStamps("saved", tmp_path)).set("2", "newer")
    assert len(cache) == 3
    assert cache.save(path) == 1


@pytest.mark.parametrize("saved", [3, 10, 11, 50])
@pytest.mark.parametrize("here", [0, 4, 10])
def test_what_is_there_stays_and_then_the_most_recently_used_are_loaded(path, noted, removals, saved, here):
    filled({number: number for number in range(saved)}).save(path)
    other = noted(max_entries=10)
    other.set_many({("here", number): number for number in range(here)})
    fits = min(saved, 10 - here)
    assert other.load(path) == fits
    assert other.keys() == [*(("here", number) for number in range(here)), *range(saved - fits, saved)]
    # The others were not unpickled.
    assert removals == []


def test_room_that_is_taken_meanwhile_costs_the_least_recently_used_of_what_is_loaded(path, noted, removals):
    filled({**{number: number for number in range(8)}, "calls": Calling(), "last": 1}).save(path)
    other = noted(max_entries=10)
    Calling.loading = staticmethod(lambda: other.set("meanwhile", 1))
    assert other.load(path) == 9
    assert other.keys() == [*range(1, 8), "meanwhile", "calls", "last"]
    assert evicted(removals) == [0]


def test_what_is_there_keeps_its_value_and_its_time_and_nothing_is_counted(path, noted, removals):
    filled({"a": "old", "b": "old", "c": "old"}).save(path)
    clock = ManualClock()
    other = noted(clock=clock, **LAZY)
    other.set("b", "new", 10)
    other.set("c", "expired", 1)
    clock.advance(5)
    assert other.load(path) == 2
    assert (other.stats().hits, other.stats().misses) == (0, 0)
    assert contents(other) == {"b": "new", "a": "old", "c": "old"}
    assert other.expires_in("b") == 5
    assert removals == [("c", "expired", RemovalCause.EXPIRED)]


def test_a_key_that_is_being_computed_is_left_to_its_loader(path):
    filled({"a": "old", "b": "old"}).save(path)
    other = kept()
    assert other.get_or_load("a", lambda: ("new", other.load(path), other.keys())) == ("new", 1, ["b"])
    assert other.get("a") == ("new", 1, ["b"])


def test_values_that_cannot_be_pickled_are_left_out_with_one_warning(path, warnings):
    assert filled({number: threading.Lock() if number % 2 else number for number in range(600)}).save(path) == 300
    assert warnings() == [f"300 entries of the cache 'mine' cannot be pickled, and are not in {path}."]
    other = kept()
    assert other.load(path) == 300
    assert other.keys() == list(range(0, 600, 2))


def test_values_that_cannot_be_read_are_counted_and_nothing_is_raised(path, warnings, caplog):
    filled({"a": Unreadable(), "b": 1, "c": Unreadable()}).save(path)
    caplog.set_level(logging.INFO, "wheelcache")
    assert kept().load(path) == 1
    assert warnings() == []
    assert "Loaded 1 entries" in caplog.text
    assert "2 cannot be read" in caplog.text


def test_an_entry_that_the_weigher_does_not_take_is_left_out(path):
    filled({"a": 1, "b": "text"}).save(path)
    other = kept(max_weight=100, weigher=lambda key, value: len(value))
    assert other.load(path) == 1
    assert other.keys() == ["b"]


@pytest.mark.parametrize(
    "record",
    [
        ("a", 1),
        None,
        ("a", 1, "soon", 0.0, None),
        ("a", 1, float("nan"), 0.0, None),
        ("a", 1, -inf, 0.0, None),
        ("a", 1, 5.0, -1.0, None),
        (["no key"], 1, None, 0.0, None),
    ],
)
def test_records_of_another_make_are_left_out(path, record):
    write(path, record, ("good", 1, None, 0.0, None), saved_at=time.time(), entries=2)
    cache = kept()
    assert cache.load(path) == 1
    assert cache.keys() == ["good"]


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"saved_at": "noon", "entries": 1},
        {"saved_at": 1.0},
        {"saved_at": 10**400, "entries": 1},
        {"saved_at": 1.0, "entries": inf},
        {"saved_at": 1.0, "entries": None},
    ],
)
def test_a_header_that_does_not_say_when_it_was_saved_is_refused(path, warnings, header):
    write(path, ("a", 1, None, 0.0, None), **header)
    assert kept().load(path) == 0
    (warning,) = warnings()
    aside = path.with_name(f"{path.name}.refused")
    assert all(each in warning for each in (f"{path} does not say when it was saved", "'mine'", str(aside)))
    assert aside.exists()
    # A missing file is not an error.
    assert kept().load(path) == 0
    assert len(warnings()) == 1


def test_records_before_the_damage_are_loaded(path):
    filled({number: str(number) for number in range(600)}).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    # It is renamed after it was loaded.
    again = shutil.copy(path, path.with_name("again"))
    other = kept()
    loaded = other.load(path)
    assert 590 < loaded < 600
    assert other.keys() == list(range(loaded))
    # With less room, only the most recently used of them are restored.
    small = kept(max_entries=10)
    small.load(again)
    assert small.keys() == list(range(loaded - 10, loaded))


def test_unpickling_may_use_the_very_cache(path):
    filled({"a": Calling(), "b": 1}).save(path)
    other = kept()
    Calling.loading = staticmethod(lambda: (other.set("b", "set by a"), other.get("a"), other.delete("none")))
    assert other.load(path) == 1
    assert contents(other) == {"b": "set by a", "a": "called"}


def test_pickling_may_use_the_very_cache_but_not_save_it(path, tmp_path, warnings):
    cache = filled({"a": Calling(), "b": 1})
    errors = []

    def use():
        cache.set("c", 1)
        with pytest.raises(RuntimeError, match="the cache 'mine' is already being saved") as error:
            cache.save(tmp_path / "other.snapshot")
        errors.append(error)

    Calling.saving = staticmethod(use)
    assert cache.save(path) >= 2
    assert errors
    assert warnings() == []
    assert list(tmp_path.iterdir()) == [path]
    assert cache.keys() == ["a", "b", "c"]
    calling.quiet()
    assert cache.save(path) == 3


def test_it_takes_no_longer_than_it_may_and_the_old_file_stays(path, tmp_path, short_steps, monkeypatch):
    now = 0.0
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now))
    cache = filled({number: number for number in range(5)})
    cache.save(path, seconds=10)
    cache.set("slow", Calling())

    def take_long():
        nonlocal now
        now += 11

    Calling.saving = staticmethod(take_long)
    with pytest.raises(TimeoutError, match="saving the cache 'mine' takes longer than 10 s"):
        cache.save(path, seconds=10)
    assert list(tmp_path.iterdir()) == [path]
    assert kept().load(path) == 5
    assert cache.keys() == [0, 1, 2, 3, 4, "slow"]
    with pytest.raises(ValueError, match="seconds must be"):
        cache.save(path, seconds=0)


def test_a_write_that_fails_leaves_the_order_as_it_was(path, tmp_path, short_steps, monkeypatch):
    cache = filled({number: number for number in range(20)})

    def full(self, payload):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotWriter, "write", full)
        with pytest.raises(OSError, match="No space"):
            cache.save(path)
    assert cache.keys() == list(range(20))
    assert list(tmp_path.iterdir()) == []
    assert cache.save(path) == 20


@pytest.mark.parametrize("last", [True, False], ids=["at the last entry", "before the last step"])
def test_a_cache_that_is_closed_meanwhile_leaves_no_part_of_itself_as_the_whole(path, tmp_path, short_steps, last):
    cache = filled({number: number for number in range(9)})
    cache.save(path)
    cache.set("last" if last else 4, Calling())
    cache.set_many({} if last else {number: number for number in range(5, 9)})
    Calling.saving = staticmethod(cache.close)
    with pytest.raises(CacheClosed):
        cache.save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert kept().load(path) == 9
    for use in (cache.save, cache.load):
        with pytest.raises(CacheClosed):
            use(path)


def test_a_cache_that_is_closed_while_it_loads_says_so(path):
    filled({"a": 1, "b": Calling(), "c": 1}).save(path)
    other = kept()
    Calling.loading = staticmethod(other.close)
    with pytest.raises(CacheClosed):
        other.load(path)
    assert len(other) == 0


@pytest.mark.deep
def test_what_is_saved_among_threads_was_there_at_some_time_and_all_that_stays_is_saved(together, tmp_path, wall):
    """Each value contains its own TTL: no value is found with the TTL of another."""
    cache = filled({key: (key, 1000) for key in range(600)}, 1000)
    over = threading.Event()
    paths = [tmp_path / f"{number}.snapshot" for number in range(3)]

    def work(number):
        if number == 0:
            try:
                for path in paths:
                    cache.save(path)
            finally:
                over.set()
            return
        while not over.is_set():
            for key in range(number, 500, 31):
                ttl = (10, 1000, 100_000)[(key + number) % 3]
                cache.set(key, (key, ttl), ttl)
                if key % 7 == 0:
                    cache.delete(key)
            # These stay, anywhere in the order.
            for key in range(500 + number, 600, 31):
                assert cache.get(key) == (key, 1000)

    assert together(work) == [None] * 32
    for path in paths:
        other = kept()
        assert other.load(path) > 400
        assert {*range(500, 600)} <= {*other.keys()}
        for key, (found, ttl) in contents(other).items():
            assert found == key
            assert other.expires_in(key) == ttl


# With stamps.


@pytest.fixture
def coherent(tmp_path, removals):
    """Make a cache as in a process of its own."""
    return lambda **options: kept(stamps=SharedStamps("saved", tmp_path), **options)


def test_only_what_was_not_written_since_is_loaded(path, coherent):
    cache = coherent()
    cache.set_many({"1": 1, "2": 1, "3": 1, "4": 1})
    cache.touch("4", 50)
    assert cache.save(path) == 4
    elsewhere = coherent()
    elsewhere.set("2", 2)
    elsewhere.delete("3")
    other = coherent()
    assert other.load(path) == 2
    assert contents(other) == {"1": 1, "4": 1}
    elsewhere.delete("1")
    assert other.get("1") is None


def test_loading_is_no_write_not_even_where_the_oldest_leave_again(path, coherent, removals):
    cache = coherent()
    cache.set_many({str(number): "x" * number for number in range(1, 8)})
    cache.save(path)
    other = coherent(
        max_weight=20, weigher=lambda key, value: len(value), on_removal=lambda *removal: removals.append(removal)
    )
    assert other.load(path) == 3
    assert evicted(removals) == ["1", "2", "3", "4"]
    # All entries are current again.
    assert len(cache.keys()) == 7


def test_a_cache_with_stamps_loads_nothing_of_one_without_and_the_other_way_round_all(path, coherent):
    filled({"1": 1}).save(path)
    assert coherent().load(path) == 0
    cache = coherent()
    cache.set("1", 1)
    cache.save(path)
    assert kept().load(path) == 1


RULES = (GroupRule("page/", "", ""), GroupRule("", "", ":"))


@pytest.mark.compiled
def test_entries_keep_their_groups(path):
    first, second = kept(), kept()
    for cache in (first, second):
        cache.engine.group_by(RULES)
    for key, group in [("page/1", "news"), ("page/2", None), ("user:1", None), ("user:2", "view"), ("plain", None)]:
        first.engine.set(key, 1, None, group=group)
    for number in range(100):
        # Most of these groups have no place for their name.
        first.engine.set(f"{number}:key", 1, None)
    first.save(path)
    context = copy_context()
    # A lazy load may begin in a request.
    context.run(VIEW.set, "another view")
    context.run(second.load, path)
    for key in second.keys():
        second.get(key)
    hits = {name: group.hits for name, group in second.stats().groups.items()}
    assert {name: hits.get(name) for name in ("news", NO_VIEW, "view", "user", "another view")} == {
        "news": 1,
        NO_VIEW: 1,
        "view": 1,
        "user": 1,
        "another view": None,
    }
    assert sum(hits.values()) == 105


def test_a_file_without_groups_is_loaded(path):
    write(path, ("user:1", 1, None, 0.0, None, 0, "tag"), saved_at=time.time(), entries=1, standings=True)
    cache = kept()
    assert cache.load(path) == 1
    cache.delete_tags("tag")
    assert cache.get("user:1") is None
