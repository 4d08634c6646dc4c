"""Many threads at once: counters exact, the bound held, nothing lost."""

import random
import sys
import threading

import pytest

from tests.waiting import until
from wheelcache import Cache, RemovalCause

THREADS = 8
OPERATIONS = 125_000


@pytest.fixture(autouse=True)
def hasty_interpreter():
    """Threads change places 500 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work):
    """``work(number)`` in eight threads that start together; an exception in one is raised here."""
    start = threading.Barrier(THREADS)
    errors = []

    def run(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.deep
def test_a_million_operations_keep_exact_counters_and_the_bound():
    causes = {cause: [] for cause in RemovalCause}
    cache = Cache(
        max_entries=50, ttl=1000, interval=0.01, on_removal=lambda key, value, cause: causes[cause].append(None)
    )
    requests = [0] * THREADS
    added = [0] * THREADS

    def work(number):
        choose = random.Random(number)
        for _ in range(OPERATIONS):
            key = choose.randrange(100)
            what = choose.random()
            if what < 0.8:
                cache.get(key)
                requests[number] += 1
            elif what < 0.9:
                cache.set(key, number, ttl=choose.choice((0.02, 1, 1000)))
                added[number] += 1
            elif what < 0.95:
                cache.delete(key)
            else:
                found = cache.get_many([key, key + 1])
                requests[number] += 2
                assert len(found) <= 2
            assert len(cache) <= 50

    in_threads(work)
    stats = cache.stats()
    assert stats.hits + stats.misses == sum(requests)
    assert stats.hits > 0
    assert stats.evictions == len(causes[RemovalCause.EVICTED])
    assert sum(stats.removals.values()) + stats.size == sum(added), "every entry left once"
    assert until(lambda: cache.stats().removals == {cause.value: len(told) for cause, told in causes.items()})
    cache.close()


def test_no_increment_is_lost():
    cache = Cache(ttl=1000)
    cache.set("n", 0)

    def work(number):
        for _ in range(5_000):
            cache.incr("n")

    in_threads(work)
    assert cache.get("n") == THREADS * 5_000
    cache.close()


def test_of_many_threads_that_add_a_key_one_does():
    cache = Cache(ttl=1000)
    winners = []

    def work(number):
        winners.extend(key for key in range(2_000) if cache.add(key, number))

    in_threads(work)
    assert sorted(winners) == list(range(2_000))
    cache.close()


@pytest.mark.deep
def test_readers_never_miss_while_others_evict_and_shrink_around_them():
    cache = Cache(ttl=1000)
    cache.set_many(dict.fromkeys("abcdefgh", 1))
    done = threading.Event()

    def work(number):
        if number == 0:
            for _ in range(20):
                cache.set_many(dict.fromkeys(range(3_000), 0))
                cache.delete_many(range(3_000))
            done.set()
            return
        while not done.is_set():
            for key in "abcdefgh":
                assert cache.get(key) == 1

    in_threads(work)
    assert cache.stats().misses == 0
    cache.close()
