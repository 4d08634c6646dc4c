"""Saving a core and loading it into another: the same entries, for as long, in the same order, and no wrong value."""

import logging
import pickle
import tempfile
import threading
import time
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.stamps import LocalStamps
from tests.persistence import calling
from tests.persistence.calling import Calling, Unreadable
from tests.persistence.kept_core import Clock, KeptCore
from wheelcache.core.contract import RemovalCause
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused
from wheelcache.persistence import saving
from wheelcache.persistence.snapshot_file import SnapshotWriter
from wheelcache.runtime.clock import SystemClock

SECRETS = pytest.mark.parametrize("secret", [None, "a secret"], ids=["unsigned", "signed"])
FEW_A_STEP = 2


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.snapshot"


@pytest.fixture
def short_steps(monkeypatch):
    monkeypatch.setattr(saving, "STEP", FEW_A_STEP)


def filled(values, ttl=None, **options):
    cache = KeptCore(**options)
    cache.fill(values, ttl)
    return cache


def write(path, *records, kind="cache", **header):
    with SnapshotWriter(path, {"kind": kind, **header}, None) as file:
        for record in records:
            file.write(pickle.dumps(record))


KEYS = st.one_of(st.text(max_size=5), st.integers(), st.none(), st.tuples(st.text(max_size=3), st.integers()))
VALUES = st.one_of(st.text(), st.binary(), st.lists(st.integers()), st.none())
TTLS = st.one_of(st.none(), st.integers(1, 1000), st.floats(1, 1e9))
GRACES = st.one_of(st.just(0.0), st.floats(0, 200))


@SECRETS
@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.tuples(KEYS, VALUES, TTLS, GRACES), max_size=30),
    used=st.lists(st.integers(0, 29), max_size=10),
    before=st.sampled_from([0.0, 10.0]),
    away=st.sampled_from([0.0, 0.5, 100.0]),
    step=st.integers(1, 7),
)
def test_what_is_saved_is_loaded_with_the_time_that_is_left_in_order_of_use(secret, entries, used, before, away, step):
    cache, other = KeptCore(clock=Clock(50.0)), KeptCore(clock=Clock(12345.0))
    for key, value, ttl, grace in entries:
        cache.set(key, value, ttl, 0.0 if ttl is None else grace)
    for index in used:
        if index < len(entries):
            cache.get(entries[index][0])
    cache.clock.now += before
    scan = cache.core.scan(ordered=True)
    records = [record for record in iter(lambda: scan.step(9), []) for record in record]
    # What is equal as a key comes back as the first that was saved.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "STEP", step)
        patch.setattr(time, "time", lambda: 5e5)
        cache.save(Path(folder) / "a", secret=secret)
        patch.setattr(time, "time", lambda: 5e5 + away)
        loaded = other.load(Path(folder) / "a", secret and secret.encode())
    alive = [each for each in records if each.times.expires_at > 50 + before + away]
    assert loaded == len(alive) == len(other.core)
    scan = other.core.scan(ordered=True)
    for record, expected in zip(scan.step(99), alive, strict=True):
        assert (record.key, record.value, record.seen) == (expected.key, expected.value, None)
        for found, saved in zip(record.times[:2], expected.times[:2], strict=True):
            assert found - 12345 == pytest.approx(saved - 50 - before - away, abs=1e-4)


def test_the_time_since_the_save_counts_and_no_clock_makes_anything_live_longer(path, wall):
    cache = filled({"a": 1}, 100)
    cache.set("b", 1, 50)
    cache.save(path)
    for passed, expected in [(60, {"a": 40}), (-3600, {"a": 100, "b": 50}), (1e9, {}), (0, {"a": 100, "b": 50})]:
        wall.now = 1_000_000.0 + passed
        other = KeptCore()
        assert other.load(path) == len(expected)
        assert {key: other.left(key) for key in other.core.keys()} == expected


def test_the_time_that_saving_and_loading_take_counts(path, wall):
    cache = filled({"first": Calling(), "last": 1}, 100)

    def takes(cache, seconds):
        def pass_time():
            cache.clock.now += seconds
            wall.now += seconds

        return staticmethod(pass_time)

    Calling.saving = takes(cache, 5)
    cache.save(path)
    other = KeptCore()
    Calling.loading = takes(other, 20)
    assert other.load(path) == 2
    # Whether the record comes after the slow one or is it.
    assert {key: other.left(key) for key in other.core.keys()} == {"first": 75, "last": 75}


@pytest.mark.parametrize(("stale_for", "away", "left"), [(20, 40, 40), (0, 1, 99), (1, 0, 99), (20, 81, None)])
def test_a_stale_value_keeps_the_rest_of_its_grace(path, wall, stale_for, away, left):
    cache = KeptCore()
    cache.set("a", "old", 10, grace=100)
    cache.clock.now += 10 + stale_for
    assert cache.save(path) == 1
    wall.now += away
    other = KeptCore()
    assert other.load(path) == (left is not None)
    assert other.get("a") is None
    if left is not None:
        assert other.core.peek("a").value == "old"
        assert other.core.times("a").expires_at == left


def test_what_has_expired_or_is_not_current_or_means_nothing_elsewhere_is_not_saved(path):
    stamps = LocalStamps()
    cache = KeptCore(stamps=stamps, slot=int, foreign=["7"])
    cache.set("1", "expired", 5)
    cache.fill({"2": "outdated", "3": "good", "7": "foreign"})
    cache.clock.now += 5
    elsewhere = KeptCore(stamps=LocalStamps(first=1 << 50, shared_with=stamps), slot=int)
    elsewhere.set("2", "newer")
    assert len(cache.core) == 4
    assert cache.save(path) == 1
    # Or became ambiguous since.
    assert KeptCore(stamps=stamps, slot=int, foreign=["3"]).load(path) == 0
    assert KeptCore(stamps=stamps, slot=int).load(path) == 1


@pytest.mark.parametrize("saved", [3, 10, 11, 50])
@pytest.mark.parametrize("here", [0, 4, 10])
def test_what_is_there_stays_and_then_the_most_recently_used_are_loaded(path, saved, here):
    filled({number: number for number in range(saved)}).save(path)
    other = filled({("here", number): number for number in range(here)}, max_entries=10)
    fits = min(saved, 10 - here)
    assert other.load(path) == fits
    assert other.core.keys() == [*(("here", number) for number in range(here)), *range(saved - fits, saved)]
    # The others were not even read.
    assert other.removed == []


def test_room_that_is_taken_meanwhile_costs_the_least_recently_used_of_what_is_loaded(path):
    filled({**{number: number for number in range(8)}, "calls": Calling(), "last": 1}).save(path)
    other = KeptCore(max_entries=10)
    Calling.loading = staticmethod(lambda: other.set("meanwhile", 1))
    assert other.load(path) == 9
    assert other.core.keys() == [*range(1, 8), "meanwhile", "calls", "last"]
    assert other.evicted() == [0]


def test_what_is_there_keeps_its_value_and_its_time_and_nothing_is_counted(path):
    filled({"a": "old", "b": "old", "c": "old"}).save(path)
    other = KeptCore()
    other.set("b", "new", 10)
    other.set("c", "expired", 1)
    other.clock.now += 5
    assert other.load(path) == 2
    assert other.contents() == {"b": "new", "a": "old", "c": "old"}
    assert other.left("b") == 5
    assert other.core.counts()[:2] == (0, 0)
    assert other.removed == [("c", "expired", RemovalCause.EXPIRED)]


def test_a_key_that_another_part_watches_is_left_to_that_part(path):
    filled({"a": "old", "b": "old"}).save(path)
    other = KeptCore()
    watch = other.core.watch("a")
    assert other.load(path) == 1
    assert other.core.keys() == ["b"]
    assert not watch.broken


def test_values_that_cannot_be_pickled_are_left_out_with_one_warning(path, warnings):
    assert filled({number: threading.Lock() if number % 2 else number for number in range(600)}).save(path) == 300
    assert warnings() == [f"300 entries of the cache 'mine' cannot be pickled, and are not in {path}."]
    other = KeptCore()
    assert other.load(path) == 300
    assert other.core.keys() == list(range(0, 600, 2))


def test_values_that_cannot_be_read_are_counted_and_nothing_is_raised(path, warnings, caplog):
    filled({"a": Unreadable(), "b": 1, "c": Unreadable()}).save(path)
    caplog.set_level(logging.INFO, "wheelcache")
    assert KeptCore().load(path) == 1
    assert warnings() == []
    assert "Loaded 1 entries" in caplog.text
    assert "2 cannot be read" in caplog.text


def test_an_entry_that_the_weigher_does_not_take_is_left_out(path):
    filled({"a": 1, "b": "text"}).save(path)
    other = KeptCore(max_weight=100, weigh=len)
    assert other.load(path) == 1
    assert other.core.keys() == ["b"]


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
    cache = KeptCore()
    assert cache.load(path) == 1
    assert cache.core.keys() == ["good"]


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
def test_a_header_that_does_not_say_when_it_was_saved_is_refused(path, header):
    write(path, ("a", 1, None, 0.0, None), **header)
    with pytest.raises(SnapshotRefused, match="does not say when it was saved"):
        KeptCore().load(path)


def test_records_before_the_damage_are_loaded(path):
    filled({number: str(number) for number in range(600)}).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    other = KeptCore()
    with pytest.raises(SnapshotDamaged):
        other.load(path)
    loaded = len(other.core)
    assert 590 < loaded < 600
    assert other.core.keys() == list(range(loaded))
    # With less room: the most recently used of those.
    small = KeptCore(max_entries=10)
    with pytest.raises(SnapshotDamaged):
        small.load(path)
    assert small.core.keys() == list(range(loaded - 10, loaded))


def test_unpickling_may_use_the_very_cache(path):
    filled({"a": Calling(), "b": 1}).save(path)
    other = KeptCore()
    Calling.loading = staticmethod(lambda: (other.set("b", "set by a"), other.get("a"), other.core.delete("none")))
    assert other.load(path) == 1
    assert other.contents() == {"b": "set by a", "a": "called"}


def test_pickling_may_use_the_very_cache_but_not_save_it(path, tmp_path, warnings):
    cache = filled({"a": Calling(), "b": 1})
    errors = []

    def use():
        cache.set("c", 1)
        with pytest.raises(RuntimeError, match="the cache 'mine' is being saved already") as error:
            cache.save(tmp_path / "other.snapshot")
        errors.append(error)

    Calling.saving = staticmethod(use)
    assert cache.save(path) >= 2
    assert errors
    assert warnings() == []
    assert list(tmp_path.iterdir()) == [path]
    assert cache.core.keys() == ["a", "b", "c"]
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
    assert KeptCore().load(path) == 5
    assert cache.core.keys() == [0, 1, 2, 3, 4, "slow"]
    with pytest.raises(ValueError, match="seconds must be"):
        cache.save(path, seconds=0)


class Steps:
    """A core whose scans note their steps.

    Attributes:
        counts: of each step, how many entries were asked for.
        before: called before each step.
    """

    def __init__(self, core):
        self._core = core
        self.counts = []
        self.before = lambda: None

    def __getattr__(self, name):
        return getattr(self._core, name)

    def __len__(self):
        return len(self._core)

    def scan(self, *, ordered):
        steps, scan = self, self._core.scan(ordered=ordered)

        class Noting:
            def step(self, count):
                steps.counts.append(count)
                steps.before()
                return scan.step(count)

            def close(self):
                scan.close()

        return Noting()


def test_a_batch_that_takes_long_halves_the_next_step(path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now))
    cache = filled({number: Calling() if number in (0, 300) else number for number in range(800)})
    cache.core = Steps(cache.core)

    def take_long():
        nonlocal now
        now += 0.003

    Calling.saving = staticmethod(take_long)
    assert cache.save(path) == 800
    assert cache.core.counts[:5] == [256, 128, 64, 128, 256]


def test_where_another_thread_ran_during_a_step_it_is_let_run_again(path, monkeypatch):
    now, slept = 0.0, []
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now))
    monkeypatch.setattr(time, "sleep", slept.append)
    cache = filled({number: number for number in range(600)})
    cache.core = steps = Steps(cache.core)

    def wait_for_the_lock():
        nonlocal now
        if len(steps.counts) == 2:
            now += 0.005

    steps.before = wait_for_the_lock
    assert cache.save(path) == 600
    assert slept == [0]
    # That took the other thread's time, and no batch took long.
    assert set(steps.counts) == {256}


def test_a_write_that_fails_leaves_the_order_as_it_was(path, tmp_path, short_steps, monkeypatch):
    cache = filled({number: number for number in range(20)})

    def full(self, payload):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SnapshotWriter, "write", full)
    with pytest.raises(OSError, match="No space"):
        cache.save(path)
    assert cache.core.keys() == list(range(20))
    assert list(tmp_path.iterdir()) == []
    cache.core.scan(ordered=True).close()


@pytest.mark.parametrize("last", [True, False], ids=["at the last entry", "before the last step"])
def test_a_cache_that_is_closed_meanwhile_leaves_no_part_of_itself_as_the_whole(path, tmp_path, short_steps, last):
    cache = filled({number: number for number in range(9)})
    cache.save(path)
    cache.set("last" if last else 4, Calling())
    cache.fill({} if last else {number: number for number in range(5, 9)})
    Calling.saving = staticmethod(cache.close)
    with pytest.raises(CacheClosed):
        cache.save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert KeptCore().load(path) == 9
    for use in (cache.save, cache.load):
        with pytest.raises(CacheClosed):
            use(path)


def test_a_cache_that_is_closed_while_it_loads_says_so(path):
    filled({"a": 1, "b": Calling(), "c": 1}).save(path)
    other = KeptCore()
    Calling.loading = staticmethod(other.close)
    with pytest.raises(CacheClosed):
        other.load(path)
    assert len(other.core) == 0


def test_what_is_saved_among_threads_that_write_was_there_at_some_time(together, tmp_path, wall):
    """A value says how long it may live: none is found under the time of another."""
    cache = KeptCore()
    cache.fill({key: (key, 1000) for key in range(500)}, 1000)
    over = threading.Event()
    paths = [tmp_path / f"{number}.snapshot" for number in range(8)]

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
                    cache.core.delete(key)

    assert together(work) == [None] * 32
    for path in paths:
        other = KeptCore()
        assert other.load(path) > 300
        for key, (found, ttl) in other.contents().items():
            assert found == key
            assert other.left(key) == ttl


class TestStamps:
    """Slots are the keys."""

    def test_only_what_was_not_written_since_is_loaded(self, path):
        stamps = LocalStamps()
        cache = KeptCore(stamps=stamps, slot=int)
        cache.fill({"1": 1, "2": 1, "3": 1, "4": 1})
        cache.core.touch("4", 50)
        assert cache.save(path) == 4
        elsewhere = KeptCore(stamps=LocalStamps(first=1 << 50, shared_with=stamps), slot=int)
        elsewhere.set("2", 2)
        elsewhere.core.delete("3", slot=3)
        other = KeptCore(stamps=LocalStamps(first=1 << 51, shared_with=stamps), slot=int)
        assert other.load(path) == 2
        assert other.contents() == {"1": 1, "4": 1}
        elsewhere.core.delete("1", slot=1)
        assert other.get("1") is None

    def test_loading_is_no_write_not_even_where_the_oldest_leave_again(self, path):
        stamps = LocalStamps()
        cache = KeptCore(stamps=stamps, slot=int)
        cache.fill({str(number): "x" * number for number in range(1, 8)})
        cache.save(path)
        other = KeptCore(stamps=LocalStamps(first=1 << 50, shared_with=stamps), slot=int, max_weight=20, weigh=len)
        assert other.load(path) == 3
        assert other.evicted() == ["1", "2", "3", "4"]
        # All is current as before.
        assert len(cache.core.keys()) == 7

    def test_a_cache_with_stamps_loads_nothing_of_one_without_and_the_other_way_round_all(self, path):
        filled({"1": 1}).save(path)
        assert KeptCore(stamps=LocalStamps(), slot=int).load(path) == 0
        filled({"1": 1}, stamps=LocalStamps(), slot=int).save(path)
        assert KeptCore().load(path) == 1
