"""Many threads at the same time: counters are exact, the bound holds, and no entry is lost."""

import random
import threading

import pytest

from tests.caches import ticking
from tests.waiting import until
from wheelcache import Cache, RemovalCause

pytestmark = pytest.mark.usefixtures("hasty_interpreter")


def test_threads_together_keep_exact_counters_and_the_bound_and_tell_of_every_removal(together, closed):
    causes = {cause: [] for cause in RemovalCause}
    cache = closed(ticking(0.01)(max_entries=50, ttl=1000))
    cache.on_removal = lambda key, value, cause: causes[cause].append(None)

    def work(number):
        choose = random.Random(number)
        requests = added = 0
        for _ in range(800):
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

    done = together(work)
    stats = cache.stats()
    assert stats.hits + stats.misses == sum(requests for requests, _ in done)
    assert stats.hits > 0
    assert sum(stats.removals.values()) + stats.size == sum(added for _, added in done), "every entry left once"
    assert until(lambda: cache.stats().removals == {cause.value: len(told) for cause, told in causes.items()})


def test_clearing_while_others_read_tells_of_every_entry(together, closed):
    told, is_done = [], threading.Event()
    cache = closed(Cache(on_removal=lambda key, value, cause: told.append((key, cause))))

    def work(number):
        if number:
            while not is_done.is_set():
                cache.get_many(range(1990, 2000))
                cache.get(1999)
            return
        for _ in range(2):
            cache.set_many(dict.fromkeys(range(2000), 0))
            cache.clear()
            # The wheel thread may have removed some entries, and notifies the listener.
            assert until(lambda: len(told) == 2000)
            assert sorted(told, key=lambda each: each[0]) == [(key, RemovalCause.CLEARED) for key in range(2000)]
            told.clear()
        is_done.set()

    assert together(work) == [None] * 32
