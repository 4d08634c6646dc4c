"""The adaptive policy of the compiled core: which keys it evicts. Its model is in ``adaptive_model.py``."""

import random
import tracemalloc
from itertools import count

import pytest

from tests.core.cores import compiled
from tests.core.model import ABSENT, ANY, Model
from tests.memory import traced
from wheelcache.core.contract import MISSING, MORE, WAKE

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


def loop(core, rounds=60, size=SIZE):
    """Ask for more keys than there is room for, again and again, which is bad for LRU."""
    return sum(request(core, key) for _ in range(rounds) for key in range(10**6, 10**6 + 4 * size // 3))


def main_part(core):
    return {key for key in core.keys() if core.peek(key).standing & IN_MAIN}


@pytest.mark.parametrize("max_weight", [None, 3 * SIZE])
@pytest.mark.parametrize("seed", range(3))
def test_a_core_evicts_the_keys_that_the_model_evicts(make_adaptive, clock, max_weight, seed):
    chance = random.Random(seed)
    core = make_adaptive(seed=seed, max_weight=max_weight)
    model = Model(SIZE, max_weight, policy="adaptive", seed=seed)
    phases = [lambda step: step % (SIZE * 4 // 3), lambda step: int(chance.paretovariate(0.6)) % 300, lambda step: step]
    for step in range(1800):
        clock.now = model.now = step / 10
        key = phases[step // 600](step) if chance.random() < 0.9 else chance.randrange(10)
        ttl, weight = chance.choice([None, None, 50.0]), chance.randrange(7) if max_weight else 0
        mode = chance.choice([ANY, ANY, ANY, ABSENT])
        found = core.find(key, MISSING)
        assert found is model.find(key, MISSING)
        if found is MISSING or chance.random() < 0.05:
            removed = []
            outcome = getattr(core, mode)(key, step, ttl, weight=weight, removed=removed)
            while outcome & MORE and core.evict(removed=removed):
                pass
            assert outcome & ~(MORE | WAKE) == model.set(key, step, ttl, weight=weight, mode=mode)
            assert removed == model.left[-len(removed) :] or not removed
        elif chance.random() < 0.02:
            assert core.delete(key) == model.delete(key)
        if step % 20 == 0:
            assert core.keys() == [key for key in model.adaptive.order.keys if model.live(key)]
    assert core.counts().hits == model.hits


def test_a_loop_is_answered_from_the_cache_which_lru_never_does(make, make_adaptive):
    assert loop(make(max_entries=SIZE)) == 0
    assert loop(make_adaptive()) > 0.3 * 60 * SIZE * 4 / 3


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("mode", [ANY, ABSENT])
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
