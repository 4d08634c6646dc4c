"""The adaptive policy of the compiled core: which keys it evicts."""

import random
import tracemalloc
from itertools import count
from zlib import crc32

import pytest

from tests.core.cores import EVICTED, compiled
from tests.memory import traced
from wheelcache.core.contract import MORE

pytestmark = compiled

SIZE = 60
IN_MAIN = 16
"""A part of a standing."""


@pytest.fixture
def make_adaptive(make):
    return lambda size=SIZE, seed=7, **options: make(max_entries=size, policy="adaptive", seed=seed, **options)


def request(core, key, ttl=None):
    """Ask for a key and store it if it is missing, as sites do. Return whether it was there."""
    if core.find(key) is None:
        core.set(key, key + 1, ttl)
        return False
    return True


def loop(core):
    """Ask for more keys than there is room for, again and again, which is bad for LRU."""
    return sum(request(core, key) for _ in range(60) for key in range(10**6, 10**6 + 4 * SIZE // 3))


def main_part(core):
    return {key for key in core.keys() if core.peek(key).standing & IN_MAIN}


def work(core, clock, seed, weights):
    """Look up keys of a loop, a skewed stream and a scan, and store the missing ones. Return the hits and evictions."""
    chance, removed = random.Random(seed), []
    phases = [lambda step: step % (SIZE * 4 // 3), lambda step: int(chance.random() ** -1.5) % 300, lambda step: step]
    for step in range(5400):
        clock.now = step / 10
        key = phases[step // 600 % 3](step) if chance.random() < 0.9 else int(chance.random() * 10)
        store = core.add if chance.random() < 0.25 else core.set
        if core.find(key) is None or chance.random() < 0.05:
            ttl, weight = (50.0 if chance.random() < 0.3 else None), int(chance.random() * weights)
            while store(key, 1, ttl, weight=weight, removed=removed) & MORE and core.evict(removed=removed):
                pass
        elif chance.random() < 0.05:
            core.delete(key + 1)
            core.replace(key, 1, None, 1)
        if step == 2000:
            core.clear()
    return core.counts().hits, [key for key, _, cause in removed if cause is EVICTED]


@pytest.mark.parametrize(("max_weight", "hits", "checksum"), [(None, 78032, 2106626446), (3 * SIZE, 75432, 3416371574)])
def test_the_evictions_are_those_of_the_policy_that_was_measured(make_adaptive, clock, max_weight, hits, checksum):
    """Before you record others, run ``benchmarks/policy.py``."""
    weights = 7 if max_weight else 1
    done = [work(make_adaptive(seed=seed, max_weight=max_weight), clock, seed, weights) for seed in range(30)]
    assert (sum(hit for hit, _ in done), crc32(repr([evicted for _, evicted in done]).encode())) == (hits, checksum)


def test_a_loop_is_answered_from_the_cache_which_lru_never_does(make, make_adaptive):
    assert loop(make(max_entries=SIZE)) == 0
    assert loop(make_adaptive()) > 0.3 * 60 * SIZE * 4 / 3


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("mode", ["set", "add"])
def test_a_key_survives_until_a_fifth_of_further_keys_are_stored(make_adaptive, learned, mode):
    core, keys = make_adaptive(), count()
    if learned:
        loop(core)
        assert main_part(core)
    for _ in range(SIZE):
        promised = next(keys)
        getattr(core, mode)(promised, "value", None)
        for _ in range(SIZE // 5):
            core.set(next(keys), 1, None)
        assert core.find(promised) == "value"


@pytest.mark.alone
def test_memory_of_the_policy_is_bounded_per_entry(make, make_adaptive):
    tracemalloc.start()
    try:
        core = make_adaptive(size=100_000)
        policy = traced(__file__)
        exact = make(max_entries=100_000)
        assert policy - (traced(__file__) - policy) < 12 * 100_000
    finally:
        tracemalloc.stop()
    del core, exact
