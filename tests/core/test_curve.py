"""The curve of the compiled core: the misses that other sizes, or W-TinyLFU, would have, for a sample of the keys."""

import random
from itertools import chain, islice

import pytest

from benchmarks.policy_streams import STREAMS
from tests.core.curve_model import CurveModel
from tests.core.implementations import COMPILED, CORES
from tests.core.labels import labels
from wheelcache.core.contract import LEAST_CURVE, GroupRule
from wheelcache.engine.stats import SAMPLE

SIZE = LEAST_CURVE
WINDOW = 19
"""The numbers of a window: five counts of the cache, then seven of each half of the sample."""


@pytest.fixture(params=[COMPILED])
def core_class(request):
    return CORES[request.param]


@pytest.fixture
def make_core(make):
    return lambda size=SIZE, seed=7, **options: make(max_entries=size, seed=seed, **options)


def visit(core, clock, requests):
    """Ask for keys, and store those that are missing, as sites do."""
    for time, key, lifetime in requests:
        clock.now = time
        if core.find(key) is None:
            core.count_miss(key)
            core.set(key, 1, lifetime)


def stream(name, length, size=SIZE, seed=1):
    return islice(STREAMS[name](random.Random(seed), size), length * size)


def windows(core):
    sample = core.sample()
    return [sample[start : start + WINDOW] for start in range(0, len(sample), WINDOW)]


def misses(core):
    """Return the misses of the miniatures in all windows: five sizes, W-TinyLFU, and the disagreements."""
    return [sum(window[place] + window[place + 7] for window in windows(core)) for place in range(5, 12)]


def test_there_are_no_numbers_before_four_windows_of_five_requests_per_entry(make_core, clock):
    core = make_core()
    visit(core, clock, stream("uniform", 19))
    assert not any(core.sample())
    visit(core, clock, stream("uniform", 2))
    for hits, answered, stored, evictions, invalidated, *halves in windows(core):
        assert 5 * SIZE <= hits + stored < 5.5 * SIZE
        assert answered == stored
        assert 0 < evictions <= stored
        assert invalidated == 0
        assert min(halves[:2] + halves[7:9]) > 0


def test_a_small_or_unlimited_core_has_no_numbers_and_no_miniatures(make, make_core):
    small = make(max_entries=SIZE - 1)
    for core in (small, make()):
        for key in range(21 * SIZE):
            core.set(key, 1, None)
        assert not any(core.sample())
    assert small.__sizeof__() < make(max_entries=SIZE).__sizeof__() + SIZE * 500


def test_misses_of_a_loop_end_where_there_is_room_for_it(make_core, clock):
    core = make_core()
    visit(core, clock, stream("loop", 21))
    half, same, twice, *larger, tiny_lfu, disagreements = misses(core)
    assert half == same == disagreements + tiny_lfu
    assert twice == sum(larger) == 0
    assert 0.4 * same < tiny_lfu < 0.8 * same


def test_lifetimes_limit_the_hits_of_larger_sizes(make_core, clock):
    core = make_core()
    visit(core, clock, ((number / SIZE, number % (SIZE // 2), 0.2) for number in range(21 * SIZE)))
    assert min(misses(core)[:6]) > 0
    assert len(set(misses(core)[:6])) == 1


def test_deletes_and_clears_are_misses_of_every_size(make_core, clock):
    core = make_core()
    for number in range(21):
        visit(core, clock, ((0, key, None) for key in range(SIZE)))
        if number % 2:
            core.clear()
        else:
            for key in range(SIZE):
                core.delete(key)
    assert len(set(misses(core)[1:6])) == 1
    assert misses(core)[1] > 0


def test_entries_that_are_deleted_or_lose_a_tag_are_counted(make_core, clock):
    core = make_core()
    for number in range(30):
        for key in range(SIZE):
            if core.find(key) is None:
                core.count_miss(key)
                core.set(key, 1, None, labels=labels(("tag",) if key % 4 == 0 else ()))
        core.delete(number)
        core.drop_tag("tag")
        if number % 2:
            core.drain(SIZE)
    # In an overwritten entry, the tag is noticed by the write; all others leave in the sweep.
    for _, answered, *_, invalidated in (each[:5] for each in windows(core)):
        assert answered >= 5 * SIZE // 4
        assert abs(invalidated - answered) < SIZE // 3


def test_keys_that_were_evicted_are_forgotten_by_a_clear_of_an_empty_core(make_core, clock):
    core = make_core()
    for _ in range(21):
        visit(core, clock, ((0, key, None) for key in range(SIZE)))
        while core.evict(SIZE, size=0):
            pass
        core.clear()
    assert len(set(misses(core)[1:6])) == 1
    assert misses(core)[1] > 0


def test_the_reference_core_has_no_numbers(python_core, clock):
    core = python_core(max_entries=SIZE, clock=clock)
    visit(core, clock, stream("loop", 21))
    assert core.sample() == (0,) * len(SAMPLE)


def test_a_value_that_is_written_again_is_no_miss(make_core, clock):
    core = make_core()
    for _ in range(22):
        for key in range(SIZE - 100):
            core.set(key, 1, None)
            core.find(key)
    assert misses(core) == [misses(core)[0], 0, 0, 0, 0, 0, 0]


def test_weights_limit_the_miniatures(make_core, clock):
    core = make_core(max_weight=10 * SIZE // 2)
    for number in range(42 * SIZE):
        key = number % (SIZE * 3 // 4)
        if core.find(key) is None:
            core.set(key, 1, None, weight=10)
    _, same, twice, *_ = misses(core)
    assert same > 0
    assert twice == 0


def test_a_switch_of_the_policy_begins_the_windows_again(make_core, clock):
    core = make_core(policy="adaptive")
    visit(core, clock, stream("loop", 21))
    assert not any(core.sample())
    visit(core, clock, stream("loop", 21))
    assert any(core.sample())


def test_the_child_of_a_fork_counts_from_zero(make_core, clock):
    core = make_core()
    visit(core, clock, stream("loop", 21))
    core.before_fork()
    core.after_fork(in_child=True)
    assert not any(core.sample())
    visit(core, clock, stream("loop", 21))
    assert misses(core)[0] > 0


@pytest.mark.parametrize(
    ("policy", "requests"), [("lru", [("web", 45)]), ("adaptive", [("recency", 22), ("loop", 22)])]
)
def test_it_has_the_numbers_of_the_model(make_core, clock, policy, requests):
    model = CurveModel(make_core(seed=3, max_weight=4 * SIZE, policy=policy), SIZE, 4 * SIZE, 3)
    chance = random.Random(5)
    for time, key, lifetime in chain.from_iterable(stream(*each) for each in requests):
        clock.now = max(clock.now, time)
        drawn = chance.random()
        if drawn < 0.02:
            model.delete(key)
        elif model.find(key) is None or drawn < 0.04:
            model.set(key, 1, lifetime, key % 7, is_uncontested=drawn > 0.9)
    assert any(model.sample())
    assert model.core.sample() == model.sample()
    assert model.joined == 2 if policy == "lru" else not model.arms[0].order.is_lru


@pytest.mark.parametrize("policy", ["lru", "adaptive"])
def test_all_measurements_take_12_bytes_an_entry_and_100_kb(make, policy):
    """The miniatures, the departed keys and the groups, after a key has left."""
    core = make(max_entries=10**6, policy=policy)
    core.set("key", 1, None)
    core.delete("key")
    core.group_by([GroupRule("", "", ":")])
    for number in range(100):
        core.count_miss(f"{number}:")
    assert core.__sizeof__() - make().__sizeof__() < 12 * 10**6 + 100_000
