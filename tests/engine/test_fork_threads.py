"""Forks while wheelcache's threads run: idle threads end before the fork, so Python >= 3.12 has nothing to warn of."""

import subprocess
import sys
import textwrap

import pytest

from tests.engine.test_fork import PRELUDE

HELPERS = """
import logging, warnings

def threads():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("wheelcache"))

def os_threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()

seen_by_forks = []
"""


# Registered before wheelcache's own hooks, so Python calls it after them: it sees what the fork copies.
NOTE_THREADS = """
import os
in_hook = []

def note():
    seen_by_forks.append(os_threads())
    for hook in in_hook:
        hook()

os.register_at_fork(before=note)
"""


def run(script, before=""):
    """Run ``script`` where every warning is shown, and none may be; what it printed.

    Not with ``-W error``: CPython 3.13 drops the error that it makes of the warning of a fork.
    """
    outcome = subprocess.run(
        [sys.executable, "-W", "always", "-c", before + PRELUDE + HELPERS + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stderr == ""
    return outcome.stdout.split()


def run_noting(script):
    """As ``run``, with the number of threads at each fork in ``seen_by_forks``: this tells on any version of Python."""
    return run(script, NOTE_THREADS)


def test_the_wheel_thread_ends_before_a_fork_and_goes_on_after_it():
    assert run_noting("""
        cache = Cache(interval=0.01)
        cache.set("short", 1, ttl=0.5)
        print(*threads())

        def child():
            assert threads() == []
            cache.set("mine", 1, ttl=0.02)
            assert threads() == ["wheelcache-wheel"]
            until(lambda: len(cache) == 0)

        print(in_child(child), *seen_by_forks)
        # Timers are pending, so it runs again without any write.
        print(*threads())
        until(lambda: len(cache) == 0)
        """) == ["wheelcache-wheel", "0", "1", "wheelcache-wheel"]


def test_a_parked_wheel_thread_starts_again_with_the_next_timer_only():
    assert run_noting("""
        cache = Cache(interval=0.01, log_interval=None, sample_interval=None)
        cache.set("short", 1, ttl=0.02)
        until(lambda: cache.figures().thread == "parked")
        print(in_child(lambda: None), *seen_by_forks, *threads())
        cache.set("short", 1, ttl=0.02)
        print(*threads())
        until(lambda: len(cache) == 0)
        """) == ["0", "1", "wheelcache-wheel"]


def test_hundreds_of_forks_all_see_one_thread():
    """join() returns a little before the kernel takes the thread off its list, which is what Python counts."""
    assert run_noting("""
        cache = Cache(interval=0.01)
        cache.set("long", 1, ttl=3600)
        for _ in range(300):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        print(len(seen_by_forks), *set(seen_by_forks), *threads())
        """) == ["300", "1", "wheelcache-wheel"]


def test_children_of_children_fork_without_threads_too():
    assert run_noting("""
        cache = Cache(interval=0.01)
        cache.set("long", 1, ttl=3600)

        def child(depth):
            cache.set(f"of {depth}", 1, ttl=0.02)
            assert threads() == ["wheelcache-wheel"]
            if depth < 3:
                assert in_child(lambda: child(depth + 1)) == 0
                assert set(seen_by_forks) == {1}, seen_by_forks
            until(lambda: cache.keys() == ["long"] and len(cache) == 1)

        print(in_child(lambda: child(1)), *seen_by_forks)
        print(*threads())
        """) == ["0", "1", "wheelcache-wheel"]


def test_idle_refresh_threads_end_before_a_fork_and_start_again_when_needed():
    assert run_noting("""
        from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

        cache = Cache(interval=0.01, log_interval=None, sample_interval=None)

        def use(cache, value):
            assert cache.take(("timed", value), lambda: value, timeout=5) == value
            cache.delete("stale")
            cache.take("stale", lambda: "old", ttl=0.001, grace=60)
            until(lambda: cache.get("stale") is None)
            cache.take("stale", lambda: value, ttl=60, grace=60)
            until(lambda: cache.get("stale") == value)

        def idle():
            return [thread for thread in threads() if thread == "wheelcache-refresh"]

        use(cache, "before")
        print(len(idle()))

        def child():
            assert idle() == []
            use(cache, "child's")

        # A thread is idle a moment after its value is there.
        until(lambda: refresh_pool.pending == timed_load_pool.pending == 0)
        print(in_child(child), *seen_by_forks, len(idle()))
        use(cache, "after")
        """) == ["2", "0", "1", "0"]


def test_the_thread_that_waits_to_save_at_the_exit_ends_before_a_fork_and_is_there_again():
    assert run_noting("""
        import pathlib, tempfile
        cache = Cache("kept", interval=0.01, snapshot_dir=pathlib.Path(tempfile.mkdtemp()))
        cache.set("a", 1, ttl=3600)
        print(*threads())
        print(in_child(lambda: None), *seen_by_forks)
        print(*threads())
        """) == ["wheelcache-save", "wheelcache-wheel", "0", "1", "wheelcache-save", "wheelcache-wheel"]


def test_a_fork_while_a_listener_waits_for_a_lock_of_the_forking_thread_does_not_hang():
    assert run("""
        lock = threading.Lock()
        waits = threading.Event()

        def listener(key, value, cause):
            waits.set()
            with lock:
                pass

        cache = Cache(interval=0.01, on_removal=listener)
        with lock:
            cache.set("short", 1, ttl=0.02)
            assert waits.wait(10)
            began = time.monotonic()
            with warnings.catch_warnings():
                # This thread runs the user's code and cannot be ended.
                warnings.simplefilter("ignore", DeprecationWarning)
                print(in_child(lambda: cache.set("child's", 1, ttl=5)))
            print(time.monotonic() - began < 5)
        cache.set("next", 1, ttl=0.02)
        until(lambda: len(cache) == 0)
        print(*threads())
        """) == ["0", "True", "wheelcache-wheel"]


def test_a_listener_that_forks():
    """In the wheel thread, which cannot end itself; the child ends when its listener returns."""
    assert run("""
        codes = []
        parent = os.getpid()

        def listener(key, value, cause):
            if key == "forks" and os.getpid() == parent:
                codes.append(in_child(lambda: cache.set("child's", 1, ttl=0.01)))

        warnings.simplefilter("ignore", DeprecationWarning)
        cache = Cache(interval=0.01, on_removal=listener)
        cache.set("forks", 1, ttl=0.02)
        until(lambda: codes)
        print(*codes)
        cache.set("after", 1, ttl=0.02)
        until(lambda: len(cache) == 0)
        print(*threads())
        """) == ["0", "wheelcache-wheel"]


def test_a_child_of_a_listener_that_returns_ends_instead_of_going_on_as_a_wheel_thread():
    assert (
        run("""
        pids = []
        parent = os.getpid()

        def listener(key, value, cause):
            if os.getpid() == parent:
                pids.append(os.fork())

        warnings.simplefilter("ignore", DeprecationWarning)
        cache = Cache(interval=0.01, on_removal=listener)
        cache.set("forks", 1, ttl=0.02)
        until(lambda: pids)
        until(lambda: os.waitpid(pids[0], os.WNOHANG)[0] == pids[0])
        """)
        == []
    )


def test_a_job_of_the_refresh_pool_that_forks():
    assert run("""
        codes = []
        warnings.simplefilter("ignore", DeprecationWarning)
        cache = Cache(interval=0.01)

        def child():
            assert cache.take("child's", lambda: 1, timeout=5) == 1

        def load():
            codes.append(in_child(child))
            return "loaded"

        print(cache.take("k", load, timeout=20), *codes)
        print(cache.take("l", lambda: "again", timeout=5))
        """) == ["loaded", "0", "again"]


def test_forks_of_many_threads_at_once_leave_one_wheel_thread():
    assert run("""
        warnings.simplefilter("ignore", DeprecationWarning)
        cache = Cache(interval=0.01)
        cache.set("long", 1, ttl=3600)

        def work():
            for _ in range(25):
                assert in_child(lambda: cache.set("mine", 1, ttl=1)) == 0
                cache.set("short", 1, ttl=0.01)

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        until(lambda: cache.keys() == ["long"] and len(cache) == 1)
        print(*threads())
        """) == ["wheelcache-wheel"]


def test_a_write_between_the_end_of_the_thread_and_the_fork_is_served_after_it():
    """By a hook of another library, which Python runs after wheelcache's."""
    assert run_noting("""
        cache = Cache(interval=0.01, log_interval=None, sample_interval=None)
        cache.set("long", 1, ttl=3600)
        in_hook.append(lambda: cache.set("hook's", 1, ttl=0.02))
        print(in_child(lambda: None), *seen_by_forks)
        in_hook.clear()
        until(lambda: cache.keys() == ["long"] and len(cache) == 1)
        print(*threads())
        """) == ["0", "1", "wheelcache-wheel"]


@pytest.mark.parametrize("listener", ["None", "lambda *removal: None"])
def test_forks_in_the_middle_of_a_mass_expiry_lose_no_timer(listener):
    assert (
        run(f"""
        cache = Cache(interval=0.001, on_removal={listener}, log_interval=None, sample_interval=None)
        for round in range(10):
            cache.set_many(dict.fromkeys(range(20_000), 0), ttl=0.01)
            for _ in range(5):
                print(in_child(lambda: None))
            until(lambda: len(cache) == 0)
        """)
        == ["0"] * 50
    )
