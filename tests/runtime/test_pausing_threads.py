"""Idle threads of wheelcache end before a fork, so Python >= 3.12 does not warn, and start again after it."""

import pytest

from tests.runtime.forking import run_noting

pytestmark = pytest.mark.deep


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
