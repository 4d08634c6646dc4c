"""The adaptive policy on the streams of requests of the benchmark."""

import random
from itertools import islice
from statistics import mean

import pytest

from benchmarks.policy import AdaptiveCache, LruCache, hit_ratio, optimum
from benchmarks.policy_streams import STREAMS

SIZE = 60
SECRETS = 8
"""In so small a cache, one secret of 40 costs 1.6 to 1.9 points."""


@pytest.mark.compiled
@pytest.mark.parametrize("name", STREAMS)
def test_it_is_never_much_worse_than_lru_nor_better_than_the_optimum(name):
    requests = list(islice(STREAMS[name](random.Random(1), SIZE), 60 * SIZE))
    adaptive = mean(hit_ratio(AdaptiveCache(SIZE), requests) for _ in range(SECRETS))
    assert hit_ratio(LruCache(SIZE), requests) - 0.015 <= adaptive <= optimum(requests, SIZE)
