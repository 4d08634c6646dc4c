"""Many threads at the same time: counters are exact, the bound holds, and no entry is lost."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.caches import ticking
from tests.waiting import PATIENCE, until
from wheelcache import Cache, RemovalCause

THREADS = 8


pytestmark = pytest.mark.usefixtures("hasty_interpreter")


def in_threads(work):
    """Run ``work(number)`` in eight threads that start together. An exception in one of them is raised here."""
    start = threading.Barrier(THREADS)

    def run(number):
        start.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_threads_together_keep_exact_counters_and_the_bound_and_tell_of_every_removal():
    causes = {cause: [] for cause in RemovalCause}

    def listener(key, value, cause):
        causes[cause].append(None)

    cache = ticking(0.01)(max_entries=50, ttl=1000, on_removal=listener)

    def work(number):
        choose = random.Random(number)
        requests = added = 0
        for _ in range(3000):
            key, what = choose.randrange(100), choose.random()
            if what < 0.7:
                cache.get(key)
                requests += 1
            elif what < 0.85:
                cache.set(key, number, ttl=choose.choice((0.02, 1, 1000)))
                added += 1
            elif what < 0.95:
                cache.delete(key)
            else:
                assert len(cache.get_many([key, key + 1])) <= 2
                requests += 2
            assert len(cache) <= 50
        return requests, added

    done = in_threads(work)
    stats = cache.stats()
    assert stats.hits + stats.misses == sum(requests for requests, _ in done)
    assert stats.hits > 0
    assert sum(stats.removals.values()) + stats.size == sum(added for _, added in done), "every entry left once"
    assert until(lambda: cache.stats().removals == {cause.value: len(told) for cause, told in causes.items()})
    cache.close()


def test_readers_never_miss_while_others_grow_and_shrink_the_cache_around_them():
    cache = Cache(ttl=1000)
    cache.set_many(dict.fromkeys("abcdefgh", 1))
    is_done = threading.Event()

    def work(number):
        if number == 0:
            for _ in range(3):
                cache.set_many(dict.fromkeys(range(3_000), 0))
                cache.delete_many(range(3_000))
            is_done.set()
        while not is_done.is_set():
            for key in "abcdefgh":
                assert cache.get(key) == 1

    in_threads(work)
    assert cache.stats().misses == 0
    cache.close()


def test_clearing_while_others_read_tells_of_every_entry():
    told = []
    cache = Cache(on_removal=lambda key, value, cause: told.append((key, cause)))
    is_done = threading.Event()

    def work(number):
        if number > 1:
            while not is_done.is_set():
                cache.get_many(range(1990, 2000))
                cache.get(1999)
        elif number == 0:
            for _ in range(5):
                cache.set_many(dict.fromkeys(range(2000), 0))
                cache.clear()
                # The wheel thread may have removed some entries, and notifies the listener.
                assert until(lambda: len(told) == 2000)
                assert sorted(told, key=lambda each: each[0]) == [(key, RemovalCause.CLEARED) for key in range(2000)]
                told.clear()
            is_done.set()

    in_threads(work)
    cache.close()
