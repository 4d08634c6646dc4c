"""The sample of computed keys: it is small, the same in every process, and shows how many keys processes share."""

import pytest

from tests.scripts import run_python
from wheelcache import Cache
from wheelcache.watch.computed_keys import PERIOD, SAMPLED, ComputedKeys, repeated_share


def sample_of(keys, time=0.0):
    computed = ComputedKeys()
    for key in keys:
        computed.add(key)
    return computed.recent(time)[1]


@pytest.mark.pairs
@pytest.mark.parametrize("key", ["page:{}", ":1:/articles/{}/comments/", "\udc80{}"])
@pytest.mark.parametrize("keys", [40, 3_000, 100_000])
@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
def test_the_share_of_repeated_keys_is_estimated_within_twelve_points(key, keys, common):
    first = round(keys * (1 - common))
    samples = [sample_of(key.format(number) for number in range(start, start + keys)) for start in (0, first)]
    assert repeated_share(samples) == pytest.approx(common / 2, abs=0.12)


def test_a_process_with_few_keys_is_compared_with_all_keys_of_a_busy_one():
    busy, idle = sample_of(map(str, range(10_000))), sample_of(map(str, range(5)))
    assert len(busy) == SAMPLED
    assert repeated_share([busy, idle]) < 0.1
    assert repeated_share([sample_of("abc"), sample_of("abcd")]) == pytest.approx(3 / 7)
    assert repeated_share([]) == 0.0


def test_keys_that_are_computed_again_count_once():
    assert sample_of(["a", "b"] * 1000) == sample_of(["b", "a"])


def test_a_sample_covers_the_present_period_and_the_one_before_it():
    computed = ComputedKeys()
    computed.add("a")
    assert computed.recent(10 * PERIOD) == (10, sample_of("a"))
    assert computed.recent(11 * PERIOD) == (11, sample_of("a"))
    computed.add("b")
    assert computed.recent(12 * PERIOD - 1.0) == (11, sample_of("ab"))
    assert computed.recent(12 * PERIOD) == (12, sample_of("b"))
    assert computed.recent(14 * PERIOD) == (14, ())


def test_another_process_has_the_same_hashes():
    keys = ["page:1", ("function", 1, None, 2.5, b"x", ("nested", True)), 7]
    script = f"from tests.engine.loading.test_computed_keys import sample_of; print(sample_of({keys!r}))"
    done = run_python("-c", script, check=True)
    assert done.stdout.strip() == repr(sample_of(keys))
    assert len(sample_of(keys)) == len(keys)


@pytest.mark.parametrize("key", [10**5000, ("f", 10**5000)], ids=["int", "in a tuple"])
def test_a_value_is_loaded_even_if_python_refuses_to_write_the_int_in_its_key(key):
    cache = Cache("pages", log_interval=None)
    assert cache.get_or_load(key, lambda: "value") == "value"
    assert cache.get(key) == "value"


def test_keys_with_a_repr_in_python_are_left_out():
    class Key:
        def __repr__(self):
            raise AssertionError("a load ran the code of a key")

    assert sample_of([Key(), ("a", Key()), ("a", ("b", Key()))]) == ()


def test_loads_are_computations_and_writes_are_not():
    cache = Cache("pages", log_interval=None)
    cache.get_or_load("loaded", lambda: 1)
    cache.set("written", 1)
    assert cache.observer.stats.computed.recent(0.0)[1] == sample_of(["loaded"])
