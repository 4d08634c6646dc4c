"""Forks: before and after the first use, during work, and from a loader."""

import threading

import pytest

from tests.caches import ticking
from tests.engine import invariants
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, join, start, until


@pytest.fixture
def make(closed):
    """Make a cache with a wheel thread, which is closed in the end."""
    return lambda **options: closed(ticking(0.01)(**{"jitter": 0, **options}))


def test_a_child_reads_what_it_inherited_and_expires_and_evicts_on_its_own(make):
    cache = make(max_entries=3)
    cache.set("for ever", 1)
    cache.set("short", 1, ttl=0.2)

    def child():
        assert threading.active_count() == 1
        assert cache.get("for ever") == 1
        cache.set("mine", 1, ttl=0.05)
        assert threading.active_count() == 2
        assert until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)
        cache.set_many(dict.fromkeys(range(10)))
        assert cache.keys() == [7, 8, 9]
        assert cache.stats().evictions > 0

    assert fork(child)
    assert until(lambda: cache.keys() == ["for ever"] and len(cache) == 1)


@pytest.mark.deep
def test_children_forked_in_the_middle_of_other_threads_work_never_deadlock_and_find_the_cache_whole(make):
    cache = make(max_entries=200)
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            number += 7
            cache.set(number % 300, number, ttl=0.001 + number % 5 / 100)
            cache.get(number % 100)
            cache.get_or_load(number % 90, lambda: 1, ttl=0.01)
            cache.get_or_load(("timed", number % 20), lambda: 1, ttl=0.001, grace=5, timeout=PATIENCE)
            cache.delete(number % 50)

    def child():
        invariants.check(cache)
        for number in range(300):
            cache.set(number, number, ttl=5)
            cache.get_or_load(("mine", number), lambda: 1, ttl=5)
        assert cache.get_or_load("timed", lambda: 1, timeout=PATIENCE) == 1
        invariants.check(cache)

    threads = [start(work, number) for number in range(4)]
    try:
        assert [fork(child) for _ in range(20)] == [True] * 20
    finally:
        stop.set()
        join(*threads)


def test_a_child_forked_by_a_loader_loads_for_itself(make, in_thread):
    cache = make()

    def child():
        assert cache.get_or_load("k", lambda: "child's") == "child's"

    def loader():
        # In a thread of its own, as a pool's would be: the loader's context says that it is loading "k".
        assert in_thread(fork, child).result(PATIENCE)
        return "parent's"

    assert (cache.get_or_load("k", loader), cache.get("k")) == ("parent's", "parent's")
