"""The real thread: starts lazily, parks, survives errors; and writes do its work where it cannot run."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from math import inf

import pytest

from tests.scripts import FORKING
from wheelcache import Cache, RemovalCause, Timers
from wheelcache.runtime.wheel_thread import WheelThread

SOON = 10


def in_python(script, *arguments):
    """Run a script in an interpreter of its own; what it printed, and nothing on stderr."""
    outcome = subprocess.run(
        [sys.executable, "-W", "error", *FORKING, "-c", script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert outcome.stderr == ""
    assert outcome.returncode == 0
    return outcome.stdout.split()


def test_an_expired_entry_leaves_memory_by_the_thread_alone():
    left = threading.Event()
    cache = Cache(interval=0.01, on_removal=lambda key, value, cause: cause is RemovalCause.EXPIRED and left.set())
    cache.set("a", 1, ttl=0.02)
    assert left.wait(SOON)
    assert len(cache) == 0
    cache.close()


def test_the_thread_starts_with_the_first_timer_and_not_before():
    assert in_python(
        """
import threading, wheelcache
cache = wheelcache.Cache(log_interval=None, sample_interval=None)
cache.set("for ever", 1)
cache.get("for ever")
print(threading.active_count())
cache.set("a", 1, ttl=5)
print(threading.active_count())
wheelcache.Cache(log_interval=None, sample_interval=None).set("b", 1, ttl=5)
wheelcache.Timers(1, 8, print).after(5)
print(*(thread.name for thread in threading.enumerate()))
"""
    ) == ["1", "2", "MainThread", "wheelcache-wheel"]


def test_the_thread_is_parked_while_nothing_is_scheduled():
    """Its CPU time and its turns stand still: it waits without a time-out."""
    assert in_python(
        """
import threading
from wheelcache import Cache

left = threading.Event()
cache = Cache(interval=0.01, log_interval=None, sample_interval=None, on_removal=lambda *removal: left.set())
waits = []
parked = threading.Event()
wait = threading.Condition.wait

def noted(condition, timeout=None):
    if threading.current_thread().name == "wheelcache-wheel":
        waits.append(timeout)
        if timeout is None:
            parked.set()
    return wait(condition, timeout)

threading.Condition.wait = noted
cache.set("a", 1, ttl=0.03)
assert left.wait(10)
assert parked.wait(10)
print(len(cache), waits[-1], max(timeout for timeout in waits if timeout) <= 0.05)
"""
    ) == ["0", "None", "True"]


@pytest.mark.parametrize("busy", ["False", "True"])
def test_the_interpreter_exits_cleanly_with_timers_pending_and_work_in_progress(busy):
    assert in_python(
        """
import sys, wheelcache
cache = wheelcache.Cache(interval=0.001)
timers = wheelcache.Timers(0.001, 8, lambda key, value: None)
timers.every(0.001, lambda: None)
for i in range(20_000 if sys.argv[1] == "True" else 10):
    cache.set(i, i, ttl=0.001 + i / 1e5)
    timers.set_timer(i, i, 0.001 + i / 1e5)
print("done")
""",
        busy,
    ) == ["done"]


def test_a_thread_that_cannot_start_is_logged_once_and_writes_advance_the_wheel(monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr("wheelcache.driven.wheel_thread", WheelThread())
    now = [0.0]
    cache = Cache(clock=lambda: now[0], jitter=0)
    for i in range(100):
        cache.set(i, i, ttl=5)
    now[0] = 60.0
    cache.set("a", 1)
    assert len(cache) == 101 - 32, "a batch a write"
    for _ in range(3):
        cache.set("a", 1)
    assert len(cache) == 1
    assert caplog.text.count("The wheel thread cannot start (can't start new thread)") == 1


def test_a_dead_or_starved_thread_lets_nothing_expired_out_and_writes_reclaim(monkeypatch):
    # As in a server that never runs its threads: the wake-up is noted and nobody comes.
    monkeypatch.setattr("wheelcache.driven.wheel_thread", WheelThread())
    monkeypatch.setattr(WheelThread, "wake", lambda thread: None)
    now = [0.0]
    cache = Cache(clock=lambda: now[0], jitter=0, log_interval=None, sample_interval=None)
    cache.set("a", 1, ttl=5)
    now[0] = 5.0
    assert cache.get("a") is None
    cache.set_many(dict.fromkeys(range(10), 0), ttl=5)
    now[0] = 60.0
    assert len(cache) == 10
    cache.set("b", 1)
    assert len(cache) == 1


def test_a_wheel_whose_owner_raises_does_not_stop_the_others(caplog, monkeypatch):
    monkeypatch.setattr("wheelcache.runtime.wheel_thread.PAUSE_AFTER_ERROR", 0.01)

    class Broken:
        clock = staticmethod(time.monotonic)
        wake_at = -inf

        def advance(self, now):
            raise RuntimeError("no")

    thread = WheelThread()
    monkeypatch.setattr("wheelcache.driven.wheel_thread", thread)
    broken = Broken()
    thread.attach(broken)
    left = threading.Event()
    cache = Cache(interval=0.01, on_removal=lambda *removal: left.set())
    cache.set("a", 1, ttl=0.05)
    assert left.wait(SOON)
    thread.stop()
    assert "A wheel could not be advanced" in caplog.text
    assert not thread.is_alive()


def test_caches_and_timers_that_nobody_holds_go_away_with_timers_pending():
    cache, timers = Cache(), Timers(1, 8, print)
    cache.set("a", 1, ttl=1000)
    timers.set_timer("a", 1, 1000)
    gone = [weakref.ref(cache), weakref.ref(timers)]
    del cache, timers
    deadline = time.monotonic() + SOON
    while any(ref() is not None for ref in gone):
        gc.collect()
        assert time.monotonic() < deadline


def test_a_mass_expiry_holds_the_lock_for_one_batch_at_a_time(clock, monkeypatch):
    cache = Cache(clock=clock, jitter=0, log_interval=None, sample_interval=None)
    cache.set_many(dict.fromkeys(range(10_000), 0), ttl=5)
    held = []

    class Lock:
        def __enter__(self):
            self.before = len(cache.entries)

        def __exit__(self, *exc_info):
            held.append(self.before - len(cache.entries))

    monkeypatch.setattr(cache, "_lock", Lock())
    clock.advance(5)
    assert len(cache) == 0
    assert sum(held) == 10_000
    assert max(held) <= 1024


def test_a_listener_that_writes_when_all_is_overdue_does_not_recurse(monkeypatch):
    monkeypatch.setattr("wheelcache.driven.wheel_thread", WheelThread())
    monkeypatch.setattr(WheelThread, "wake", lambda thread: None)
    now = [0.0]
    cache = Cache(clock=lambda: now[0], jitter=0, log_interval=None, sample_interval=None)
    cache.set_many(dict.fromkeys(range(50_000), 0), ttl=5)
    cache._on_removal = lambda key, value, cause: cause is RemovalCause.EXPIRED and cache.set(("again", key), 1, ttl=5)
    now[0] = 60.0
    for _ in range(5):
        cache.advance(60.0)
    assert len(cache) == 50_000
    assert sum(type(key) is tuple for key in cache.keys()) > 5_000 - 10


def test_a_listener_that_exits_does_not_end_the_thread(caplog, monkeypatch):
    monkeypatch.setattr("wheelcache.runtime.wheel_thread.PAUSE_AFTER_ERROR", 0.01)
    thread = WheelThread()
    monkeypatch.setattr("wheelcache.driven.wheel_thread", thread)
    exits = Cache("exits", interval=0.01, on_removal=lambda *removal: sys.exit())
    left = threading.Event()
    other = Cache(interval=0.01, on_removal=lambda *removal: left.set())
    exits.set("a", 1, ttl=0.02)
    other.set("b", 1, ttl=0.1)
    assert left.wait(SOON)
    assert thread.is_alive()
    assert "SystemExit" in caplog.text
    thread.stop()


def test_a_clock_that_is_advanced_by_what_it_advances_says_so(clock, caplog):
    timers = Timers(1, 8, print, clock=clock)
    timers.every(1, lambda: clock.advance(1))
    clock.advance(1)
    assert "cannot be advanced by what it advances" in caplog.text


def test_a_write_after_hours_of_idleness_is_not_taken_for_lag(monkeypatch, caplog):
    monkeypatch.setattr("wheelcache.driven.wheel_thread", WheelThread())
    monkeypatch.setattr(WheelThread, "wake", lambda thread: None)
    now = [0.0]
    cache = Cache(clock=lambda: now[0], jitter=0)
    for hours in (0, 12, 40):
        now[0] = hours * 3600.0 + 5
        cache.set_many(dict.fromkeys(range(1500), hours), ttl=600)
        assert cache.lag == 0
        assert now[0] < cache.wake_at <= now[0] + 601
        now[0] += 700
        while cache.wake_at <= now[0]:
            cache.advance(now[0])
        assert len(cache) == 0
        caplog.clear()
    assert "behind" not in caplog.text


def test_without_a_thread_writes_of_many_keep_up_with_what_they_add(monkeypatch):
    monkeypatch.setattr("wheelcache.driven.wheel_thread", WheelThread())
    monkeypatch.setattr(WheelThread, "wake", lambda thread: None)
    now = [0.0]
    cache = Cache(clock=lambda: now[0], interval=0.1, log_interval=None, sample_interval=None)
    for batch in range(100):
        cache.set_many({(batch, number): 0 for number in range(500)}, ttl=0.5)
        now[0] += 0.2
    assert len(cache) < 5_000


def test_a_job_that_exits_takes_no_other_with_it(clock):
    ran = []
    timers = Timers(1, 8, lambda key, value: ran.append(key), clock=clock)
    timers.every(1, sys.exit)
    timers.every(1, lambda: ran.append("job"))
    event = timers.after(1)
    for _ in range(2):
        with pytest.raises(SystemExit):
            clock.advance(1)
    clock._now += 1
    with pytest.raises(SystemExit):
        timers.advance(clock())
    assert event.is_set()
    assert ran.count("job") == 3
    timers.stop()


def test_a_listener_that_exits_is_heard_after_the_others_were_told(clock):
    told = []

    def listener(key, value, cause):
        told.append(key)
        if key == 0:
            sys.exit()

    cache = Cache(clock=clock, on_removal=listener, log_interval=None, sample_interval=None)
    cache.set_many(dict.fromkeys(range(10), 0))
    with pytest.raises(SystemExit):
        cache.clear()
    assert told == list(range(10))
