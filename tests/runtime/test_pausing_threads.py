"""Idle threads of wheelcache end before a fork, so Python >= 3.12 does not warn, and start again after it."""

import pytest

from tests.runtime.forking import run_noting, run_warned

pytestmark = pytest.mark.deep


def test_a_parked_wheel_thread_starts_again_with_the_next_timer_only():
    assert run_noting("""
        from wheelcache.engine.stats_log import StatsLog

        # A cache is idle after two runs of the job with the longest period.
        StatsLog.period = 0.02
        cache = ticking(0.01)()
        cache.set("short", 1, ttl=0.02)
        until(lambda: cache.engine.observed.thread_state == "parked")
        print(in_child(lambda: None), *seen_by_forks, *threads())
        cache.set("short", 1, ttl=0.02)
        print(*threads())
        until(lambda: len(cache) == 0)
        """) == ["0", "1", "wheelcache-wheel"]


def test_a_hundred_forks_and_their_childrens_forks_all_see_one_thread_and_it_goes_on_after_them():
    """join() returns shortly before the kernel removes the thread from the list that Python counts."""
    assert run_noting("""
        cache = ticking(0.01)()
        cache.set("long", 1, ttl=3600)

        def child(depth):
            assert threads() == []
            cache.set(f"of {depth}", 1, ttl=0.02)
            assert threads() == ["wheelcache-wheel"]
            if depth < 3:
                assert in_child(lambda: child(depth + 1)) == 0
                assert set(seen_by_forks) == {1}, seen_by_forks
            until(lambda: cache.keys() == ["long"] and len(cache) == 1)

        print(in_child(lambda: child(1)))
        for _ in range(100):
            assert in_child(lambda: None) == 0
        # Timers are pending, so it runs again without any write.
        print(len(seen_by_forks), *set(seen_by_forks), *threads())
        """) == ["0", "101", "1", "wheelcache-wheel"]


def test_a_fork_while_a_listener_waits_for_a_lock_of_the_forking_thread_does_not_hang():
    assert run_warned("""
        lock = threading.Lock()
        waits = threading.Event()

        def listener(key, value, cause):
            waits.set()
            with lock:
                pass

        cache = ticking(0.01)(on_removal=listener)
        with lock:
            cache.set("short", 1, ttl=0.02)
            assert waits.wait(PATIENCE)
            with warnings.catch_warnings():
                # The listener's thread runs the user's code and cannot be ended.
                warnings.simplefilter("ignore", DeprecationWarning)
                print(in_child(lambda: cache.set("child's", 1, ttl=5)))
        cache.set("next", 1, ttl=0.02)
        until(lambda: len(cache) == 0)
        print(*threads())
        """) == ["0", "wheelcache-wheel"]


def test_a_child_of_a_listener_ends_when_the_listener_returns():
    """The listener forks in the wheel thread, which cannot end itself, and must not continue as one in the child."""
    assert run_warned("""
        pids = []
        parent = os.getpid()

        def listener(key, value, cause):
            if key == "forks" and os.getpid() == parent:
                pids.append(os.fork())

        warnings.simplefilter("ignore", DeprecationWarning)
        cache = ticking(0.01)(on_removal=listener)
        cache.set("forks", 1, ttl=0.02)
        until(lambda: pids)
        until(lambda: os.waitpid(pids[0], os.WNOHANG)[0] == pids[0])
        cache.set("after", 1, ttl=0.02)
        until(lambda: len(cache) == 0)
        print(*threads())
        """) == ["wheelcache-wheel"]


def test_a_write_between_the_end_of_the_thread_and_the_fork_is_served_after_it():
    """A hook of another library, which Python runs after wheelcache's, does this."""
    assert run_noting("""
        cache = ticking(0.01)()
        cache.set("long", 1, ttl=3600)
        in_hook.append(lambda: cache.set("hook's", 1, ttl=0.02))
        print(in_child(lambda: None), *seen_by_forks)
        in_hook.clear()
        until(lambda: cache.keys() == ["long"] and len(cache) == 1)
        print(*threads())
        """) == ["0", "1", "wheelcache-wheel"]


def test_idle_threads_of_pools_end_before_a_fork_and_start_again_when_needed():
    assert run_noting("""
        from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

        cache = ticking(0.01)()

        def use(cache, value):
            assert cache.get_or_load(("timed", value), lambda: value, timeout=PATIENCE) == value
            cache.delete("stale")
            cache.get_or_load("stale", lambda: "old", ttl=0.001, grace=60)
            until(lambda: cache.get("stale") is None)
            cache.get_or_load("stale", lambda: value, ttl=60, grace=60)
            until(lambda: cache.get("stale") == value)

        def idle():
            return [thread for thread in threads() if thread == "wheelcache-refresh"]

        use(cache, "before")
        print(len(idle()))

        def child():
            assert idle() == []
            use(cache, "child's")

        # A thread becomes idle shortly after its value is stored.
        until(lambda: refresh_pool.pending == timed_load_pool.pending == 0)
        print(in_child(child), *seen_by_forks, len(idle()))
        use(cache, "after")
        """) == ["2", "0", "1", "0"]
