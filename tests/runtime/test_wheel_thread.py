"""The real wheel thread: it starts lazily, parks, and survives errors. If it cannot run, writes do its work."""

import gc
import sys
import threading
import time
import weakref

import pytest

from tests.caches import ticking
from tests.core.cores import Clock
from tests.scripts import FORKING, run
from tests.waiting import PATIENCE, until
from wheelcache import Cache, ManualClock, RemovalCause
from wheelcache.runtime import wheel_driver
from wheelcache.runtime.wheel_driver import BATCH_IN_LINE
from wheelcache.runtime.wheel_thread import WheelThread


def in_python(script):
    """Run a script in its own interpreter. Return its output; stderr must be empty."""
    return run(script, options=("-W", "error", *FORKING)).split()


def test_an_expired_entry_leaves_memory_by_the_thread_alone(closed):
    left = threading.Event()
    cache = closed(ticking(0.01)(on_removal=lambda key, value, cause: cause is RemovalCause.EXPIRED and left.set()))
    cache.set("a", 1, ttl=0.02)
    assert left.wait(PATIENCE)
    assert len(cache) == 0


def test_the_thread_starts_with_the_first_write_and_is_parked_when_all_is_gone_and_the_jobs_are_paused():
    """Its CPU time and its context switches do not grow: it waits without a timeout."""
    assert in_python("""
        import threading
        from tests.caches import ticking
        from wheelcache import Cache
        from wheelcache.engine.stats_log import StatsLog

        # A cache is idle after two runs of the job with the longest period.
        StatsLog.period = 0.02
        cache, waits, parked, wait = ticking(0.01)(), [], threading.Event(), threading.Condition.wait

        def noted(condition, timeout=None):
            if threading.current_thread().name == "wheelcache-wheel":
                waits.append(timeout)
                if timeout is None:
                    parked.set()
            return wait(condition, timeout)

        threading.Condition.wait = noted
        cache.get("a")
        print(cache.engine.observed.thread_state.replace(" ", "-"))
        cache.set("a", 1, ttl=0.03)
        ticking(0.01)().set("b", 1, ttl=0.03)
        print(*(thread.name for thread in threading.enumerate()))
        assert parked.wait(60)
        print(len(cache), cache.engine.observed.thread_state, max(timeout for timeout in waits if timeout) <= 0.05)
        """) == ["not-started", "MainThread", "wheelcache-wheel", "0", "parked", "True"]


# Without the thread.


@pytest.fixture
def now(monkeypatch):
    """Return the clock of caches for which no thread runs, as in a server that never runs its threads."""
    thread = WheelThread()
    monkeypatch.setattr(thread, "_start", lambda sleep: None)
    monkeypatch.setattr(wheel_driver, "wheel_thread", thread)
    return Clock()


def test_where_no_thread_runs_writes_remove_due_entries_a_batch_at_a_time(now, caplog):
    cache = Cache(clock=now, jitter=0)
    cache.set_many(dict.fromkeys(range(5000), 0), ttl=5)
    now.now = 7.0
    cache.set("a", 1)
    assert len(cache) == 5001, "within two intervals, the thread is not late"
    now.now = 60.0
    assert (cache.get(1), cache.keys()) == (None, ["a"])
    cache.set("a", 1)
    assert 5001 - BATCH_IN_LINE <= len(cache) < 5001
    writes = 0
    while len(cache) > 1:
        cache.set("a", 1)
        writes += 1
    assert writes <= 5000 / BATCH_IN_LINE + 10
    assert caplog.text.count("is 55.0 s behind; catching up.") == len(caplog.records) == 1


def test_where_no_thread_runs_a_listener_that_writes_is_not_called_within_itself(now):
    calls = [0, 0]

    def listener(key, value, cause):
        calls[0] += 1
        calls[1] = max(calls[:2])
        cache.set("again", 1)
        calls[0] -= 1

    cache = Cache(clock=now, jitter=0)
    cache.set_many(dict.fromkeys(range(1000), 0), ttl=5)
    cache.on_removal = lambda key, value, cause: cause is RemovalCause.EXPIRED and listener(key, value, cause)
    now.now = 60.0
    while len(cache) > 2:
        cache.set("a", 1)
    assert calls == [0, 1]


def test_a_thread_that_was_refused_once_is_there_when_it_can_start(monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    thread = WheelThread()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        thread.wake()
        thread.wake()
        assert thread.state == "refused"
        patched.setattr(threading.Thread, "start", lambda thread: sys.exit())
        with pytest.raises(SystemExit):
            thread.wake()
    thread.wake()
    assert thread.state in ("running", "parked")
    assert caplog.text.count("cannot start (can't start new thread); writes advance the wheels instead.") == 1
    for _ in range(2):
        thread.stop()
        thread.wake()
        assert thread.state == "not started"


# Its calls and its references.


def test_a_clock_that_raises_in_the_thread_does_not_stop_the_other_wheels(caplog, closed):
    asked = threading.Event()

    def clock():
        if threading.current_thread().name == "wheelcache-wheel":
            asked.set()
            raise OSError("no clock")
        return time.monotonic()

    closed(Cache(clock=clock)).set("a", 1, ttl=0.02)
    assert asked.wait(PATIENCE)
    left = threading.Event()
    cache = closed(ticking(0.01)(on_removal=lambda *removal: left.set()))
    cache.set("a", 1, ttl=0.05)
    assert left.wait(PATIENCE)
    assert "OSError: no clock" in caplog.text


def test_a_listener_that_exits_does_not_end_the_thread(caplog, closed):
    exits = closed(ticking(1)("exits", on_removal=lambda *removal: sys.exit()))
    left = threading.Event()
    other = closed(ticking(0.01)(on_removal=lambda *removal: left.set()))
    # A write that is over two intervals late would itself call the listener.
    exits.set("a", 1, ttl=0.02)
    assert until(lambda: "SystemExit" in caplog.text)
    other.set("b", 1, ttl=0.02)
    assert left.wait(PATIENCE)
    assert other.engine.observed.thread_state in ("running", "parked")


def test_caches_that_are_not_referenced_go_away_with_entries_pending():
    cache = Cache()
    cache.set("a", 1, ttl=1000)
    gone = weakref.ref(cache)
    del cache
    assert until(lambda: gc.collect() >= 0 and gone() is None)


def test_a_write_after_hours_of_idleness_is_not_taken_for_lag(clock, caplog):
    cache = Cache(clock=clock, jitter=0)
    for hours in (0, 12, 40):
        clock.advance(hours * 3600.0)
        cache.set_many(dict.fromkeys(range(1500), hours), ttl=600)
        assert cache.engine.observed.lag == 0
        clock.advance(700)
        assert len(cache) == 0
    assert "behind" not in caplog.text


# Clocks of tests.


@pytest.mark.parametrize("seconds", [1e17, -1, float("nan"), 2 * wheel_driver.LATEST])
def test_a_manual_clock_is_not_moved_back_or_further_than_floats_can_count(clock, seconds):
    cache = Cache(clock=clock, ttl=60)
    cache.set("k", 1)
    with pytest.raises(ValueError, match=r"cannot move by|must be a finite number >= 0"):
        clock.advance(seconds)
    assert (clock(), cache.get("k")) == (0.0, 1)
    clock.advance(wheel_driver.LATEST)
    assert len(cache) == 0


@pytest.mark.parametrize("now", [1e17, -1e17, float("inf"), float("nan")])
def test_a_clock_at_whose_times_floats_cannot_tell_intervals_apart_is_refused(now):
    """It would be advanced forever."""
    with pytest.raises(ValueError, match="now must be"):
        ManualClock(now)
    with pytest.raises(ValueError, match="clock must return seconds at which floats can tell intervals of 1 s apart"):
        Cache(clock=lambda: now)


def test_a_clock_cannot_be_advanced_by_work_that_it_is_advancing(clock):
    errors = []

    def listener(*removal):
        with pytest.raises(RuntimeError) as raised:
            clock.advance(1)
        errors.append(str(raised.value))

    cache = Cache(clock=clock, on_removal=listener)
    cache.set("a", 1, ttl=1)
    clock.advance(5)
    assert errors == ["a ManualClock cannot be advanced by work that it is advancing"]
    assert clock() == clock.target == 5
