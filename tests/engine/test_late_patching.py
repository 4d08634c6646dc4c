"""gevent patches after wheelcache was imported, or used: no greenlet stops the others. Each test in its own process."""

import subprocess
import sys
import textwrap

import pytest

from tests.redis_server import RedisServer

PRELUDE = """
import pathlib, signal, sys, tempfile, threading, time
import wheelcache
from wheelcache import Cache
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

signal.alarm(30)

def patch():
    from gevent import monkey
    monkey.patch_all()

def until(condition):
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.005)

def turns(seconds=0.3):
    # Of a greenlet that only gives way: it has none where another one stops them all.
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)
        count += 1
    return count
"""

USES = {
    "made": "",
    "used": """
cache.set("before", 1, ttl=3600)
cache.set("before and short", 1, ttl=0.05)
assert cache.take("timed before", lambda: 1, timeout=10) == 1
""",
}


def run(script, *arguments):
    outcome = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr, outcome.stderr
    return outcome.stdout.split()


@pytest.fixture(params=USES)
def before(request):
    """What was done with ``cache`` before gevent patches."""
    return USES[request.param]


def in_order(*parts):
    return "\n".join(textwrap.dedent(part) for part in parts)


def test_entries_expire(before):
    assert run(
        in_order(
            "cache = Cache(interval=0.01)",
            before,
            """
            patch()
            cache.set("short", 1, ttl=0.05)
            until(lambda: set(cache.keys()) <= {"before", "timed before"} and len(cache) <= 2)
            print(turns() > 20, cache.thread_state)
            cache.set("short", 1, ttl=0.05)
            until(lambda: set(cache.keys()) <= {"before", "timed before"} and len(cache) <= 2)
            """,
        )
    ) == ["True", "running"]


def test_a_listener_that_waits_lets_the_others_go_on(before):
    assert run(
        in_order(
            """
            heard = []

            def listener(key, value, cause):
                if key == "slow":
                    heard.append(time.sleep(0.5))

            cache = Cache(interval=0.01, on_removal=listener)
            """,
            before,
            """
            patch()
            cache.set("slow", 1, ttl=0.02)
            print(turns() > 20)
            until(lambda: heard)
            """,
        )
    ) == ["True"]


def test_timed_loads_and_refreshes_run_beside_others(before):
    assert run(
        in_order(
            "cache = Cache(interval=0.01)",
            before,
            """
            patch()
            slow = lambda: time.sleep(0.3) or "loaded"
            loads = []

            def load():
                loads.append(1)
                return slow()

            values = []
            takers = [
                threading.Thread(target=lambda: values.append(cache.take("k", load, timeout=10))) for _ in range(10)
            ]
            for taker in takers:
                taker.start()
            print(turns() > 20)
            for taker in takers:
                taker.join()
            print(set(values), len(values), len(loads))
            until(lambda: timed_load_pool.pending == 0)
            print(turns() > 20)
            cache.take("stale", lambda: "old", ttl=0.02, grace=60)
            time.sleep(0.05)
            print(cache.take("stale", slow, ttl=60, grace=60))
            until(lambda: cache.get("stale") == "loaded")
            """,
        )
    ) == ["True", "{'loaded'}", "10", "1", "True", "old"]


def test_a_snapshot_is_saved_at_the_exit_and_its_thread_stops_nobody(before, tmp_path):
    saved = in_order(
        "cache = Cache('kept', interval=0.01, snapshot_dir=pathlib.Path(sys.argv[1]), snapshot_interval=0.1)",
        before,
        """
        patch()
        cache.set("kept", "value")
        print(turns() > 20)
        """,
    )
    tmp_path.chmod(0o700)
    assert run(saved, str(tmp_path)) == ["True"]
    assert run("print(Cache('kept', snapshot_dir=pathlib.Path(sys.argv[1])).get_many(['kept']))", str(tmp_path)) == [
        "{'kept':",
        "'value'}",
    ]


def test_a_fork_after_that_has_one_wheel_thread_in_each_process(before):
    assert run(
        in_order(
            "cache = Cache(interval=0.01)",
            before,
            """
            import os
            patch()
            cache.set("long", 1, ttl=3600)
            for depth in range(2):
                pid = os.fork()
                if pid == 0:
                    cache.set("child's", 1, ttl=0.02)
                    until(lambda: "child's" not in cache.keys() and cache.thread_state == "running")
                    names = [thread.name for thread in threading.enumerate()]
                    os._exit(0 if names.count("wheelcache-wheel") == 1 else 1)
                print(os.waitpid(pid, 0)[1])
            cache.set("short", 1, ttl=0.02)
            until(lambda: "short" not in cache.keys())
            """,
        )
    ) == ["0", "0"]


@pytest.fixture(scope="module")
def server():
    with RedisServer() as server:
        yield server


def test_writes_to_redis_are_told(server):
    """The tracking thread of a TieredCache: its lock and its event were made before."""
    assert run(
        """
        import redis
        from wheelcache.near_cache.redis_tracking import Tracking, connect_like

        told = []

        class Listener:
            def trust(self, trusted): told.append(trusted)
            def flushed(self): pass
            def invalidated(self, keys): told.append(keys)

        client = redis.Redis(port=int(sys.argv[1]))
        tracking = Tracking(connect_like(client), [b"late:"], Listener())
        client.close()
        patch()
        tracking.start()
        until(lambda: told == [True])
        print(turns() > 20)
        client = redis.Redis(port=int(sys.argv[1]))
        client.set("late:a", 1)
        until(lambda: [b"late:a"] in told)
        tracking.stop()
        """,
        str(server.port),
    ) == ["True"]


def test_a_tracking_thread_that_fails_at_once_stops_nobody():
    """Its first step is made while start() waits for it to be there."""
    assert run("""
        from wheelcache.near_cache.redis_tracking import Tracking

        class Listener:
            def trust(self, trusted): pass

        def connect(timeout):
            raise ConnectionError("no server")

        tracking = Tracking(connect, [b"late:"], Listener())
        patch()
        tracking.start()
        print(turns() > 20)
        tracking.stop()
        """) == ["True"]
