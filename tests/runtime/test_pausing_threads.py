"""Threads of timers and of Redis tracking end before a fork if they are idle, and start again when they are needed."""

import pytest

from tests.engine.test_fork_threads import run, run_noting
from tests.redis_server import RedisServer

TIMERS = """
executed = []
begun, go_on = threading.Event(), threading.Event()

def execute(key, value):
    executed.append(key)
    if key == "slow":
        begun.set()
        assert go_on.wait(20)

timers = Timers(0.01, 8, execute)

def use(key):
    timers.set_timer(key, 1, 0.02)
    until(lambda: key in executed)

def of_timers():
    return [thread for thread in threads() if thread.startswith("wheelcache-timers")]
"""


def test_idle_threads_of_timers_end_before_a_fork_and_start_again_when_a_timer_is_due():
    assert run_noting(f"""{TIMERS}
use("before")
print(len(of_timers()))

def child():
    assert of_timers() == []
    use("child's")
    timers.stop()

# A thread is idle a moment after the call has returned.
until(lambda: seen_by_forks.clear() or in_child(child) == 0 and seen_by_forks == [1])
print(len(of_timers()))
use("after")
print("child's" in executed)
""") == ["1", "0", "False"]


def test_a_fork_while_a_timer_executes_leaves_it_to_the_parent():
    assert run(f"""{TIMERS}
warnings.simplefilter("ignore", DeprecationWarning)
use("before")
timers.set_timer("slow", 1, 0.02)
assert begun.wait(20)
for number in range(8):
    timers.set_timer(("waits", number), 1, 0.02)

def child():
    executed.clear()
    use("child's")
    assert executed == ["child's"]

print(in_child(child))
go_on.set()
until(lambda: len(executed) == 10)
use("after")
print(len(executed))
""") == ["0", "11"]


def test_timers_that_are_due_at_the_exit_execute():
    assert (
        run(f"""{TIMERS}
def last(key, value):
    time.sleep(0.2)
    print("executed", flush=True)

last_ones = Timers(0.01, 8, last)
for number in range(6):
    last_ones.set_timer(number, 1, 0.02)
until(lambda: len(last_ones) == 0)
""")
        == ["executed"] * 6
    )


@pytest.fixture(scope="module")
def server():
    with RedisServer() as server:
        yield server


def test_the_tracking_thread_ends_before_a_fork_and_goes_on_after_it_on_the_same_connection(server):
    assert run_noting(f"""
import redis
from wheelcache.near_cache.redis_tracking import Tracking, connect_like

told = []

class Listener:
    def trust(self, trusted): told.append(trusted)
    def flushed(self): told.append("flushed")
    def invalidated(self, keys): told.extend(keys)

client = redis.Redis(port={server.port})
tracking = Tracking(connect_like(client), [b"fork:"], Listener())
tracking.start()
until(lambda: told == [True])
(before,) = client.client_list(_type="pubsub")
for number in range(20):
    client.set(f"fork:{{number}}", 1)
    assert in_child(lambda: None) == 0
    assert tracking.trusted_until > time.monotonic()
until(lambda: len(told) == 21)
assert told[1:] == [b"fork:%d" % number for number in range(20)]
print(*set(seen_by_forks), *threads())
(after,) = client.client_list(_type="pubsub")
print(after["id"] == before["id"])
# PINGs go on.
asked = tracking.trusted_until
until(lambda: tracking.trusted_until > asked)
tracking.stop()
print(told[21:], *threads())
""") == ["1", "wheelcache-tracking", "True", "[False]"]


def test_a_tracking_thread_that_waits_to_reconnect_ends_before_a_fork_too():
    assert run_noting("""
from wheelcache.near_cache.redis_tracking import Tracking
logging.getLogger("wheelcache").setLevel(logging.ERROR)
tries = []

def connect(timeout):
    tries.append(1)
    raise ConnectionError("no server")

class Listener:
    def trust(self, trusted): pass

tracking = Tracking(connect, [b"fork:"], Listener())
tracking.start()
until(lambda: len(tries) >= 3)
print(in_child(lambda: None), *seen_by_forks, *threads())
before = len(tries)
until(lambda: len(tries) > before)
tracking.stop()
print(*threads())
""") == ["0", "1", "wheelcache-tracking"]


def test_a_fork_while_the_tracking_thread_is_stopped_leaves_it_stopped(server):
    assert run_noting(f"""
import redis
from wheelcache.near_cache.redis_tracking import Tracking, connect_like

class Listener:
    def trust(self, trusted): pass

client = redis.Redis(port={server.port})
tracking = Tracking(connect_like(client), [b"fork:"], Listener())
tracking.start()
until(lambda: tracking.trusted_until > 0)
# Between the end of the thread and the fork.
in_hook.append(tracking.stop)
print(in_child(lambda: None), *seen_by_forks)
until(lambda: not client.client_list(_type="pubsub"))
print(*threads())
""") == ["0", "1"]
