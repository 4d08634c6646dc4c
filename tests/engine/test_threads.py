"""Many threads at the same time: counters are exact, the bound holds, and no entry is lost."""

import random

import pytest

from tests.caches import ticking
from tests.waiting import until
from wheelcache import RemovalCause

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
