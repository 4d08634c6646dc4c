"""The real thread: starts lazily, parks, survives errors; and writes do its work where it cannot run."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from tests.scripts import FORKING
from tests.waiting import until
from wheelcache import Cache, RemovalCause, Timers

SOON = 10

WITHOUT_A_THREAD = """
import logging, sys, threading
from wheelcache import Cache, RemovalCause
# What it says of its lag and of the thread; errors go to stderr.
logging.getLogger("wheelcache").setLevel(logging.ERROR)
if sys.argv[1] == "refused":
    def start(thread):
        raise RuntimeError("can't start new thread")
else:
    # As in a server that never runs its threads.
    def start(thread):
        pass
threading.Thread.start = start
now = [0.0]

def make(**options):
    given = {"jitter": 0, "log_interval": None, "sample_interval": None, **options}
    return Cache(clock=lambda: now[0], **given)
"""
NO_THREAD = pytest.mark.parametrize("thread", ["refused", "starved"])


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


def without_a_thread(script, thread):
    return in_python(WITHOUT_A_THREAD + script, thread)


def test_a_thread_that_cannot_start_is_logged_once():
    words = without_a_thread(
        """
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
logging.getLogger("wheelcache").setLevel(logging.WARNING)
for name in "abc":
    make(name=name).set("a", 1, ttl=5)
""",
        "refused",
    )
    assert " ".join(words) == (
        "The wheel thread cannot start (can't start new thread); writes advance the wheels instead."
    )


@NO_THREAD
def test_without_a_thread_nothing_expired_is_returned_and_writes_reclaim_some_at_a_time(thread):
    assert without_a_thread(
        """
cache = make()
cache.set_many(dict.fromkeys(range(50_000), 0), ttl=5)
now[0] = 5.0
print(cache.get(1), cache.keys(), len(cache) > 40_000)
now[0] = 60.0
cache.set("a", 1)
print(len(cache) > 40_000)
writes = 0
while len(cache) > 1:
    cache.set("a", 1)
    writes += 1
print(writes <= 50_000)
""",
        thread,
    ) == ["None", "[]", "True", "True", "True"]


@NO_THREAD
def test_without_a_thread_a_listener_that_writes_when_all_is_overdue_does_not_recurse(thread):
    """Nor does an error reach the log, which is stderr here."""
    assert without_a_thread(
        """
cache = make()
cache.set_many(dict.fromkeys(range(10_000), 0), ttl=5)
told = []
def listener(key, value, cause):
    if cause is RemovalCause.EXPIRED:
        told.append(key)
        cache.set(("again", key), 1)
cache.on_removal = listener
now[0] = 60.0
writes = 0
while len(told) < 10_000 and writes < 10_000:
    cache.set("a", 1)
    writes += 1
print(len(cache))
""",
        thread,
    ) == ["10001"]


@NO_THREAD
def test_without_a_thread_writes_of_many_keep_up_with_what_they_add(thread):
    assert without_a_thread(
        """
cache = make(interval=0.1)
for batch in range(100):
    cache.set_many({(batch, number): 0 for number in range(500)}, ttl=0.5)
    now[0] += 0.2
print(len(cache) < 5_000)
""",
        thread,
    ) == ["True"]


def test_when_all_is_gone_and_no_caller_comes_the_jobs_rest_and_the_thread_is_parked():
    assert in_python(
        """
import time
from wheelcache import Cache
cache = Cache(interval=0.01, log_interval=0.02, sample_interval=0.02)
cache.set("a", 1, ttl=0.03)
deadline = time.monotonic() + 10
while cache.figures().thread != "parked" and time.monotonic() < deadline:
    time.sleep(0.01)
print(cache.figures().thread, len(cache))
"""
    ) == ["parked", "0"]


def test_a_clock_that_raises_in_the_thread_does_not_stop_the_other_wheels(caplog):
    asked = threading.Event()

    def clock():
        if threading.current_thread().name == "wheelcache-wheel":
            asked.set()
            raise OSError("no clock")
        return time.monotonic()

    broken = Cache(clock=clock, log_interval=None, sample_interval=None)
    broken.set("a", 1, ttl=0.02)
    assert asked.wait(SOON)
    left = threading.Event()
    cache = Cache(interval=0.01, on_removal=lambda *removal: left.set())
    cache.set("a", 1, ttl=0.05)
    assert left.wait(SOON)
    assert "OSError: no clock" in caplog.text
    broken.close()


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


def test_of_a_mass_expiry_the_listener_is_told_batch_by_batch(clock):
    cache = Cache(clock=clock, jitter=0, log_interval=None, sample_interval=None)
    cache.set_many(dict.fromkeys(range(10_000), 0), ttl=5)
    sizes = []
    cache.on_removal = lambda *removal: sizes.append(len(cache))
    clock.advance(5)
    assert len(sizes) == 10_000
    assert all(size >= 10_000 - 1024 - told for told, size in enumerate(sizes))


def test_a_listener_that_exits_does_not_end_the_thread(caplog):
    exits = Cache("exits", interval=0.01, on_removal=lambda *removal: sys.exit())
    left = threading.Event()
    other = Cache(interval=0.01, on_removal=lambda *removal: left.set())
    exits.set("a", 1, ttl=0.02)
    assert until(lambda: "SystemExit" in caplog.text)
    other.set("b", 1, ttl=0.02)
    assert left.wait(SOON)
    assert other.figures().thread in ("running", "parked")


def test_a_clock_that_is_advanced_by_what_it_advances_says_so(clock, caplog):
    timers = Timers(1, 8, print, clock=clock)
    timers.every(1, lambda: clock.advance(1))
    clock.advance(1)
    assert "cannot be advanced by what it advances" in caplog.text


def test_a_write_after_hours_of_idleness_is_not_taken_for_lag(clock, caplog):
    cache = Cache(clock=clock, jitter=0, log_interval=None, sample_interval=None)
    for hours in (0, 12, 40):
        clock.advance(hours * 3600.0)
        cache.set_many(dict.fromkeys(range(1500), hours), ttl=600)
        assert cache.lag == 0
        clock.advance(700)
        assert len(cache) == 0
    assert "behind" not in caplog.text


def test_a_job_that_exits_takes_no_other_with_it(clock):
    ran = []
    timers = Timers(1, 8, lambda key, value: ran.append(key), clock=clock)
    timers.every(1, sys.exit)
    timers.every(1, lambda: ran.append("job"))
    event = timers.after(1)
    for _ in range(3):
        with pytest.raises(SystemExit):
            clock.advance(1)
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
    assert sorted(told) == list(range(10))
