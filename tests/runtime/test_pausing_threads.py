"""Idle threads of wheelcache end before a fork, so Python >= 3.12 does not warn, and start again after it."""

import textwrap

import pytest

from tests.scripts import run

pytestmark = pytest.mark.deep

# The hook is registered before wheelcache's own, so Python calls it after them: it sees the state that the fork copies.
PRELUDE = """
import logging, os, threading
seen_by_forks = []

def os_threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()

os.register_at_fork(before=lambda: seen_by_forks.append(os_threads()))

from tests.caches import ticking
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, until

# On a busy machine, a wheel may be late.
logging.getLogger("wheelcache").addFilter(lambda record: "behind" not in record.msg)
cache = ticking(0.01)()

def threads(name):
    return [thread.name for thread in threading.enumerate() if thread.name == f"wheelcache-{name}"]
"""


def printed(script):
    """Run a script, which must write nothing to stderr. Return the words that it printed."""
    # Not with ``-W error``: CPython 3.13 drops the error that it makes of the warning of a fork.
    return run(PRELUDE + textwrap.dedent(script), options=["-W", "always"]).split()


def test_a_hundred_forks_and_their_childrens_forks_all_see_one_thread_and_it_goes_on_after_them():
    """join() returns shortly before the kernel removes the thread from the list that Python counts."""
    assert printed("""
        cache.set("long", 1, ttl=3600)

        def child(depth):
            assert threads("wheel") == []
            cache.set(f"of {depth}", 1, ttl=0.02)
            assert len(threads("wheel")) == 1
            if depth < 3:
                assert fork(lambda: child(depth + 1))
                assert set(seen_by_forks) == {1}, seen_by_forks
            until(lambda: cache.keys() == ["long"] and len(cache) == 1)

        assert fork(lambda: child(1))
        for _ in range(100):
            assert fork()
        # Timers are pending, so it runs again without any write.
        print(len(seen_by_forks), *set(seen_by_forks), *threads("wheel"))
        """) == ["101", "1", "wheelcache-wheel"]


def test_idle_threads_of_pools_end_before_a_fork_and_start_again_when_needed():
    assert printed("""
        from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

        def use(value):
            assert cache.get_or_load(("timed", value), lambda: value, timeout=PATIENCE) == value
            cache.delete("stale")
            cache.get_or_load("stale", lambda: "old", ttl=0.001, grace=60)
            until(lambda: cache.get("stale") is None)
            cache.get_or_load("stale", lambda: value, ttl=60, grace=60)
            until(lambda: cache.get("stale") == value)

        def child():
            assert threads("refresh") == []
            use("child's")

        use("before")
        print(len(threads("refresh")))
        # A thread becomes idle shortly after its value is stored.
        until(lambda: refresh_pool.pending == timed_load_pool.pending == 0)
        assert fork(child)
        print(*seen_by_forks, len(threads("refresh")))
        use("after")
        """) == ["2", "1", "0"]
