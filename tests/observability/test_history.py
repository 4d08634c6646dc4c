"""Samples of a cache, and the history that the workers of a site write together."""

import os
import threading
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observability.published import worker
from wheelcache import Cache
from wheelcache.observability.collect import collect, time_series
from wheelcache.observability.figures_directory import HISTORY, FiguresDirectory
from wheelcache.observability.history import DAY, HOUR, STEP, RingsInFile, RingsInMemory, Step
from wheelcache.observability.worker_stats import CacheStats, TimeSeries
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import locked_file

EPOCH = 1_000_000.0
"""When the clock of the tests showed 0. A step ends there."""


@pytest.fixture(autouse=True)
def _epoch(monkeypatch):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH))


def series(*caches, **options):
    (found,) = collect(caches)
    return time_series(found, caches, **options)


def at(found):
    return [each - EPOCH for each in found.at]


# Samples.


def test_a_sample_is_taken_at_the_first_write_and_every_ten_seconds_and_kept_for_a_minute(clock):
    cache = Cache(clock=clock)
    clock.advance(5)
    cache.get("a")
    assert cache.figures().samples == ()
    cache.set("a", 1)
    clock.advance(20)
    assert [each.at for each in cache.figures().samples] == [5, 15, 25]
    assert cache.figures().samples[0].misses == 1
    for jump in (600, 315_360_000):
        clock.advance(jump)
        samples = [each.at for each in cache.figures().samples]
        assert len(samples) == 7
        assert samples[-1] - samples[0] == 60


def test_the_interval_is_an_option_and_none_is_none(clock):
    cache = Cache(clock=clock, sample_interval=2)
    cache.set("a", 1)
    clock.advance(10)
    assert [each.at for each in cache.figures().samples] == [0, 2, 4, 6, 8, 10]
    assert cache.figures().interval == 2
    without = Cache(clock=clock, sample_interval=None)
    without.set("a", 1)
    clock.advance(100)
    assert (without.figures().samples, without.figures().interval, without.figures().reached) == ((), None, None)
    assert series(without).at == ()


@pytest.mark.parametrize("wrong", [0, -1, "10", True, float("nan"), float("inf")])
def test_a_wrong_interval_is_an_error_that_names_it(wrong):
    with pytest.raises((TypeError, ValueError), match="sample_interval must be a number of seconds > 0"):
        Cache(sample_interval=wrong)


# The history of one worker.


@pytest.mark.parametrize("directory", [None, "figures"])
def test_a_step_has_what_was_counted_in_it(clock, tmp_path, directory):
    cache = Cache(
        clock=clock,
        max_entries=2,
        ttl=1000,
        jitter=0,
        weigher=lambda key, value: value,
        max_weight=100,
        figures_dir=directory and tmp_path / directory,
    )
    cache.set("a", 1)
    for key in "abcd":
        cache.set(key, 10)
    for key in "ccx":
        cache.get(key)
    cache.take("y", lambda: clock.advance(1) or 20)
    with pytest.raises(LookupError):
        cache.take("z", lambda: clock.advance(2) or {}["z"])
    clock.advance(7)
    cache.clear()
    cache.set("e", 5, ttl=2)
    clock.advance(14)
    assert replace(series(cache), memory=()) == TimeSeries(
        step=10.0,
        at=(EPOCH + 10, EPOCH + 20),
        hit_ratio=(0.4, None),
        requests=(0.5, 0.0),
        misses=(0.3, 0.0),
        entries=(2.0, 0.0),
        memory=(),
        evictions=(0.3, 0.0),
        expirations=(0.0, 0.1),
        load_seconds=(1.5, None),
        started=(1, 0),
    )


def test_the_last_hour_is_kept_in_steps_of_ten_seconds_and_the_last_day_in_steps_of_five_minutes(clock):
    cache = Cache(clock=clock, max_entries=2)
    for key in "ab":
        cache.set(key, 1)
    for jump in (7200, 100_000):
        clock.advance(jump)
        found = series(cache)
        assert len(found.at) == 360
        assert found.at[-1] - found.at[0] == 3590
    assert set(found.entries) == {2.0}
    # EPOCH is 100 seconds into a long step. A jump of more than an hour is sampled for its last hour only.
    found = series(cache, ring=DAY)
    assert {each % 300 for each in found.at} == {0.0}
    assert found.entries[-2] == pytest.approx(2.0)


def test_after_a_pause_there_is_a_gap(clock):
    cache = Cache(clock=clock, ttl=5, log_interval=None)
    cache.set("a", 1)
    clock.advance(1000)
    cache.set("a", 1, ttl=1000)
    clock.advance(20)
    assert at(series(cache)) == [10, 1010, 1020]


@pytest.mark.parametrize("interval", [0.5, 7, 30, 60])
def test_rates_are_the_same_however_often_samples_are_taken(clock, interval):
    cache = Cache(clock=clock, sample_interval=interval)
    cache.set("a", 1)
    for _ in range(240):
        cache.get("a")
        clock.advance(0.5)
    found = series(cache)
    assert found.requests == pytest.approx((2.0,) * len(found.at), rel=0.3)
    assert sum(found.requests) * STEP == pytest.approx(240 * len(found.at) / 12, rel=0.05)
    assert at(found) == [STEP * number for number in range(1, len(found.at) + 1)]


def test_the_child_of_a_fork_adds_its_own_from_its_first_write_on(make, clock, path):
    cache = make(ttl=None)
    cache.set("a", 1)
    clock.advance(20)
    pid = os.fork()
    if pid == 0:
        rested = cache.figures().reached is None
        clock.advance(15)
        cache.set("b", 2)
        cache.get("b")
        clock.advance(24)
        os._exit(not (rested and cache.figures().reached * STEP == EPOCH + 50 and cache.figures().samples))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    clock.advance(45)
    found = series(cache)
    assert at(found) == [10, 20, 30, 40, 50, 60]
    assert found.entries == (1, 1, 1, 3, 3, 1)
    assert found.started == (1, 0, 0, 1, 0, 0)


# That of all workers.


def test_the_newest_steps_are_left_out_until_every_worker_that_samples_has_reached_them(make, clock):
    first = make(sample_interval=10)
    first.set("a", 1)
    clock.advance(6)
    second = make(sample_interval=10)
    second.set("a", 1)
    for _ in range(60):
        clock.advance(1)
        entries = series(first, second).entries
        assert set(entries[1:]) <= {2.0}, entries
    assert len(entries) >= 5


def test_a_step_is_not_shown_before_a_worker_that_began_at_its_end_is_known(make, clock):
    first = make()
    first.set("a", 1)
    clock.advance(9.5)
    second = make()
    second.set("a", 1)
    shown = set()
    for _ in range(80):
        clock.advance(0.5)
        found = series(first)
        shown |= set(zip(at(found), found.entries, strict=True))
    # Each step once, with one number.
    assert shown == {(10.0, 2.0), (20.0, 2.0), (30.0, 2.0)}


@pytest.mark.parametrize(
    ("reached", "expected"),
    [([], None), ([None], None), ([7], 7), ([7, 8], 7), ([None, 8], 8), ([5, 8], 8), ([8, 6, 7], 6)],
)
def test_a_worker_that_is_paused_or_stopped_is_not_waited_for(reached, expected):
    workers = [worker(number=number, reached=each) for number, each in enumerate(reached)]
    assert CacheStats("pages", tuple(workers)).complete_until == expected


def test_a_worker_that_exits_or_closes_takes_nothing_away_and_its_last_counts_come_along(make, clock):
    here, there = make(), make()
    for cache in (here, there):
        cache.set("a", 1)
    for _ in range(100):
        there.get("a")
        clock.advance(1)
    before = series(here, there)
    for _ in range(5):
        there.get("a")
    there.close()
    assert series(here) == before
    clock.advance(28)
    after = series(here)
    number = len(before.at)
    for name in ("at", "requests", "entries"):
        assert getattr(after, name)[:number] == getattr(before, name)
    assert (before.entries[-1], after.entries[-1]) == (2.0, 1.0)
    assert sum(after.requests) * STEP == pytest.approx(105)


def test_the_entries_of_a_worker_that_exits_are_in_the_step_that_has_just_ended(make, clock):
    here, there = make(), make()
    clock.advance(3)
    for cache in (here, there):
        cache.set("a", 1)
    clock.advance(18)
    there.close()
    clock.advance(28)
    found = series(here)
    entries = dict(zip(at(found), found.entries, strict=True))
    assert (entries[10], entries[20], entries[30]) == (2, 2, 1)
    assert found.memory[at(found).index(20)] == 2 * found.memory[at(found).index(30)]


def test_caches_of_one_name_that_do_not_publish_are_added_up(clock):
    caches = [Cache("pages", clock=clock) for _ in range(2)]
    for cache in caches:
        cache.set("a", 1)
    clock.advance(20)
    assert series(*caches).entries == (2, 2)


def test_since_a_reset_only_steps_that_began_after_it_are_shown(clock):
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(50)
    assert at(series(cache, since=EPOCH + 20)) == [30, 40, 50]
    assert at(series(cache, since=EPOCH + 21)) == [40, 50]


# The file.


def test_what_workers_add_at_once_is_all_there(path, directory, together):
    def add(number):
        for _ in range(20):
            while True:
                try:
                    directory.rings("pages").add([(100, Step(hits=1.0)), (101, Step(entries=1.0))])
                    break
                except Exception:  # another thread had the lock for too long
                    continue

    together(add)
    found = HOUR.read(directory.rings("pages").read())
    assert (found[100].hits, found[101].entries) == (640, 640)
    assert [each.stat().st_mode & 0o777 for each in path.glob(f"*{HISTORY}")] == [0o600]


def test_while_the_file_is_locked_the_next_sample_has_both_parts(make, clock, path):
    cache = make()
    cache.set("a", 1)
    clock.advance(10)
    (file,) = path.glob(f"*{HISTORY}")
    with locked_file(file):
        cache.get("a")
        clock.advance(10)
    assert at(series(cache)) == [10]
    cache.get("a")
    clock.advance(15)
    found = series(cache)
    assert at(found) == [10, 20, 30]
    assert sum(found.requests) * STEP == 2


@pytest.mark.parametrize("content", [b"", b"x" * 79, b"\0" * 100_000, os.urandom(50_000), "a link", "a pipe"])
def test_what_is_no_history_hinders_nothing(make, clock, path, content, tmp_path):
    cache = make()
    (file,) = [path / each.name for each in [_file_of(cache, path)]]
    if content == "a link":
        (tmp_path / "elsewhere").write_bytes(b"mine")
        file.symlink_to(tmp_path / "elsewhere")
    elif content == "a pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(content)
        file.chmod(0o600)
    cache.set("a", 1)
    clock.advance(60)
    found = series(cache)
    assert content in ("a link", "a pipe") or set(at(found)) >= {10, 20, 30}
    assert cache.get("a") == 1
    if content == "a link":
        assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def _file_of(cache, path):
    directory = FiguresDirectory(path)
    directory.rings("pages").add([(1, Step())])
    (file,) = path.glob(f"*{HISTORY}")
    file.unlink()
    return file


def test_files_of_names_that_were_not_used_for_a_day_go(make, clock, path, monkeypatch):
    monkeypatch.undo()
    cache, other = make(), make("other")
    for each in (cache, other):
        each.set("a", 1)
    clock.advance(30)
    other.close()
    FiguresDirectory(path).retire_the_dead()
    assert len(list(path.glob(f"*{HISTORY}"))) == 2
    for each in path.glob(f"*{HISTORY}"):
        os.utime(each, (1, 1))
    clock.advance(10)
    make("third").set("a", 1)
    os.close(FiguresDirectory(path).publish(worker(worker="dead")))
    FiguresDirectory(path).retire_the_dead()
    assert len(list(path.glob(f"*{HISTORY}"))) == 1


NUMBERS = st.floats(0, 1e9)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 800), st.builds(Step, *[NUMBERS] * 8, st.integers(0, 3))), max_size=20))
def test_whatever_was_added_the_series_is_in_order_and_both_rings_have_all(steps):
    rings = RingsInMemory()
    rings.add(sorted(steps, key=lambda each: each[0]))
    for ring in (HOUR, DAY):
        found = TimeSeries.of([rings.read()], ring)
        assert list(found.at) == sorted(set(found.at))
        assert {len(getattr(found, each.name)) for each in fields(found) if each.name != "step"} == {len(found.at)}
        assert all(each is None or 0 <= each <= 1 for each in found.hit_ratio)
    total = sum(step.hits + step.misses for _, step in steps)
    assert sum(found.requests) * DAY.seconds == pytest.approx(total)


def test_a_reader_meets_no_step_that_is_half_written(tmp_path):
    rings, done = RingsInFile(tmp_path / "a"), threading.Event()

    def write():
        while not done.is_set():
            rings.add([(5, Step(*[1.0] * 9))])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            for step in HOUR.read(rings.read()).values():
                assert len(set(step)) == 1
    finally:
        done.set()
        writer.join()
