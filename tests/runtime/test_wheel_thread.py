"""The real wheel thread: it starts lazily, parks, and survives errors. If it cannot run, writes do its work."""

import gc
import sys
import threading
import time
import weakref

import pytest

from tests.caches import ticking
from tests.guests import Timers, needs
from tests.scripts import FORKING, run
from tests.waiting import PATIENCE, until
from wheelcache import Cache, ManualClock, RemovalCause
from wheelcache.runtime.wheel_thread import WheelThread


@pytest.fixture
def clock():
    return ManualClock()


def in_python(script, *arguments):
    """Run a script in its own interpreter. Return its output; stderr must be empty."""
    return run(script, *arguments, options=("-W", "error", *FORKING)).split()


def test_an_expired_entry_leaves_memory_by_the_thread_alone():
    left = threading.Event()
    cache = ticking(0.01)(on_removal=lambda key, value, cause: cause is RemovalCause.EXPIRED and left.set())
    cache.set("a", 1, ttl=0.02)
    assert left.wait(PATIENCE)
    assert len(cache) == 0
    cache.close()


@needs("timers")
def test_the_thread_starts_with_the_first_write_and_not_before():
    assert in_python(
        """
import threading, wheelcache
from wheelcache.timers import Timers
cache = wheelcache.Cache()
cache.get("a")
print(threading.active_count())
cache.set("a", 1)
print(threading.active_count())
wheelcache.Cache().set("b", 1, ttl=5)
Timers(1, print).after(5)
print(*(thread.name for thread in threading.enumerate()))
"""
    ) == ["1", "2", "MainThread", "wheelcache-wheel"]


@needs("watch")
def test_the_thread_is_parked_when_all_is_gone_and_the_jobs_are_paused():
    """Its CPU time and its context switches do not grow: it waits without a timeout."""
    assert in_python(
        """
import threading
from tests.caches import ticking
from wheelcache.engine.stats_log import StatsLog
from wheelcache.watch import recorder

# A cache is idle after two runs of the job with the longest period.
recorder.STEP = recorder.Recorder.period = StatsLog.period = 0.02
cache = ticking(0.01)(figures_dir=None)
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
assert parked.wait(60)
print(len(cache), cache.engine.observed.thread_state, max(timeout for timeout in waits if timeout) <= 0.05)
"""
    ) == ["0", "parked", "True"]


@needs("timers")
@pytest.mark.parametrize("busy", ["False", "True"])
def test_the_interpreter_exits_cleanly_with_timers_pending_and_work_in_progress(busy):
    assert in_python(
        """
import sys
from tests.caches import ticking
from wheelcache.timers import Timers
cache = ticking(0.001)()
timers = Timers(0.001, lambda key, value: None)
timers.every(0.001, lambda: None)
for i in range(20_000 if sys.argv[1] == "True" else 10):
    cache.set(i, i, ttl=0.001 + i / 1e5)
    timers.set_timer(i, i, 0.001 + i / 1e5)
print("done")
""",
        busy,
    ) == ["done"]


# Without the thread.

WITHOUT_A_THREAD = """
import logging, sys, threading
from wheelcache import Cache, RemovalCause
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
if sys.argv[1] == "refused":
    def start(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = start
elif sys.argv[1] == "isolated":
    # As in an isolated subinterpreter: the constructor raises, and so does the attribute.
    class Thread(threading.Thread):
        def __init__(self, *args, daemon=None, **kwargs):
            if daemon:
                raise RuntimeError("no daemon threads")
            super().__init__(*args, daemon=daemon, **kwargs)

        def __setattr__(self, name, value):
            if name == "daemon" and value:
                raise RuntimeError("no daemon threads")
            super().__setattr__(name, value)
    threading.Thread = Thread
else:
    # As in a server that never runs its threads.
    threading.Thread.start = lambda thread: None
now = 0.0

def make(**options):
    global now
    now = 0.0
    given = {"jitter": 0, **options}
    return Cache(clock=lambda: now, **given)

make().set("a", 1, ttl=5)
# Else what is said of the lag. Errors go to stderr.
logging.basicConfig(force=True, level=logging.ERROR)

cache = make()
cache.set_many(dict.fromkeys(range(50_000), 0), ttl=5)
now = 5.0
print("expired:", cache.get(1), cache.keys(), len(cache) > 40_000)
now = 60.0
cache.set("a", 1)
print("a write takes a batch:", len(cache) > 40_000)
writes = 0
while len(cache) > 1:
    cache.set("a", 1)
    writes += 1
print("writes take all:", writes <= 50_000)

cache = make()
cache.set_many(dict.fromkeys(range(10_000), 0), ttl=5)
told = []
def listener(key, value, cause):
    if cause is RemovalCause.EXPIRED:
        told.append(key)
        cache.set(("again", key), 1)
cache.on_removal = listener
now = 60.0
writes = 0
while len(told) < 10_000 and writes < 10_000:
    cache.set("a", 1)
    writes += 1
print("a listener that writes:", len(cache))

Cache._interval = 0.1
cache = make()
for batch in range(100):
    cache.set_many({(batch, number): 0 for number in range(500)}, ttl=0.5)
    now += 0.2
print("writes keep up:", len(cache) < 5_000)
"""


@pytest.mark.parametrize(
    ("thread", "reason"),
    [("refused", "can't start new thread"), ("isolated", "no daemon threads"), ("starved", None)],
    ids=["refused", "isolated", "starved"],
)
@pytest.mark.deep
def test_where_no_thread_runs_nothing_expired_is_returned_and_writes_reclaim_some_at_a_time(thread, reason):
    """A failed start is logged once. A listener that writes while all timers are overdue does not recurse."""
    said = [f"The wheel thread cannot start ({reason}); writes advance the wheels instead."]
    assert " ".join(in_python(WITHOUT_A_THREAD, thread)) == " ".join(
        [
            *(said if reason else []),
            "expired: None [] True",
            "a write takes a batch: True",
            "writes take all: True",
            "a listener that writes: 10001",
            "writes keep up: True",
        ]
    )


# Its calls and its references.


def test_a_clock_that_raises_in_the_thread_does_not_stop_the_other_wheels(caplog):
    asked = threading.Event()

    def clock():
        if threading.current_thread().name == "wheelcache-wheel":
            asked.set()
            raise OSError("no clock")
        return time.monotonic()

    broken = Cache(clock=clock)
    broken.set("a", 1, ttl=0.02)
    assert asked.wait(PATIENCE)
    left = threading.Event()
    cache = ticking(0.01)(on_removal=lambda *removal: left.set())
    cache.set("a", 1, ttl=0.05)
    assert left.wait(PATIENCE)
    assert "OSError: no clock" in caplog.text
    broken.close()


@needs("timers")
def test_caches_and_timers_that_are_not_referenced_go_away_with_timers_pending():
    cache, timers = Cache(), Timers(1, print)
    cache.set("a", 1, ttl=1000)
    timers.set_timer("a", 1, 1000)
    gone = [weakref.ref(cache), weakref.ref(timers)]
    del cache, timers
    assert until(lambda: gc.collect() >= 0 and not any(ref() for ref in gone))


def test_of_a_mass_expiry_the_listener_is_told_batch_by_batch(clock):
    cache = Cache(clock=clock, jitter=0)
    cache.set_many(dict.fromkeys(range(5_000), 0), ttl=5)
    sizes = []
    cache.on_removal = lambda *removal: sizes.append(len(cache))
    clock.advance(5)
    assert len(sizes) == 5_000
    assert all(size >= 5_000 - 1024 - told for told, size in enumerate(sizes))


def test_a_thread_that_was_refused_once_is_there_when_it_can_start(monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    thread = WheelThread()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        thread.wake()
        thread.wake()
        assert thread.state == "refused"
    thread.wake()
    assert thread.state in ("running", "parked")
    assert caplog.text.count("cannot start (can't start new thread)") == 1
    thread.stop()
    assert thread.state == "not started"


def test_a_listener_that_exits_does_not_end_the_thread(caplog):
    exits = ticking(1)("exits", on_removal=lambda *removal: sys.exit())
    left = threading.Event()
    other = ticking(0.01)(on_removal=lambda *removal: left.set())
    # A write that is over two intervals late would itself call the listener.
    exits.set("a", 1, ttl=0.02)
    assert until(lambda: "SystemExit" in caplog.text)
    other.set("b", 1, ttl=0.02)
    assert left.wait(PATIENCE)
    assert other.engine.observed.thread_state in ("running", "parked")


def test_a_write_after_hours_of_idleness_is_not_taken_for_lag(clock, caplog):
    cache = Cache(clock=clock, jitter=0)
    for hours in (0, 12, 40):
        clock.advance(hours * 3600.0)
        cache.set_many(dict.fromkeys(range(1500), hours), ttl=600)
        assert cache.engine.observed.lag == 0
        clock.advance(700)
        assert len(cache) == 0
    assert "behind" not in caplog.text
