"""A call of a backend takes a short way through the compiled core if its key and value are usual. It has the same
result as the long way, which every call takes with a clock of the test."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.adapters import ADAPTERS, IN_PROCESS, use_clock
from wheelcache import ManualClock

KEY = st.sampled_from(["a", "b", "\u00e9", "a_memver", "x" * 249, "x" * 300])
VALUE = st.sampled_from([0, 41, 2**70, True, None, "text", 1.5, [1], {"a": 1}])
TTL = st.sampled_from([None, 1000, 250.5, -1])
CALL = st.one_of(
    st.tuples(st.sampled_from(["get", "has", "delete"]), st.tuples(KEY)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEY, VALUE, TTL)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEY, VALUE)),
    st.tuples(st.just("touch"), st.tuples(KEY, TTL)),
    st.tuples(st.just("count"), st.tuples(KEY, st.sampled_from([1, -5, 2**70, 0.5, "x"]))),
    st.tuples(st.just("get_many"), st.tuples(st.lists(KEY, max_size=5))),
    st.tuples(st.just("set_many"), st.tuples(st.dictionaries(KEY, VALUE, max_size=5), TTL)),
)


def answer(cache, name, arguments):
    try:
        return getattr(cache, name)(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)


def counts(cache):
    stats = cache.stats()
    return stats.hits, stats.misses, stats.puts, stats.removals


@pytest.mark.filterwarnings("ignore:.*:django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
@settings(max_examples=100)
@given(calls=st.lists(CALL, max_size=30))
def test_both_ways_have_the_same_results(adapter, calls):
    short = adapter.make()
    with pytest.MonkeyPatch.context() as patched:
        use_clock(patched, ManualClock())
        long = adapter.make()
    for name, arguments in calls:
        if name != "touch" or hasattr(short, "touch"):
            assert answer(short, name, arguments) == answer(long, name, arguments)
    assert counts(short.engine) == counts(long.engine)
    assert short.engine.keys() == long.engine.keys()


class Acting:
    """A value that calls ``act`` when it is serialized."""

    def __init__(self, act):
        self.act = act

    def __reduce__(self):
        self.act()
        return str, ("acted",)


@pytest.mark.parametrize("count", [2, 400])
def test_each_value_of_many_stays_with_its_key_if_serializing_one_changes_the_dict(make, count):
    cache = make()
    # A dict keeps the places of deleted entries until it grows, so that a new dict has fewer.
    values = {f"gone{number}": number for number in range(5000)}
    for key in list(values):
        del values[key]

    def change():
        values.clear()
        values.update({f"other{number}": "other" for number in range(count)})

    wanted = {f"key{number}": f"key{number}" for number in range(1, count)}
    values.update({"key0": Acting(change), **wanted})
    # The long way fails before it stores anything, as iterating a dict does.
    with suppress(KeyError, RuntimeError):
        cache.set_many(values)
    assert cache.get_many(["key0", *wanted]).items() <= {"key0": "acted", **wanted}.items()


@pytest.mark.parametrize("adapter", IN_PROCESS.values(), ids=IN_PROCESS)
@pytest.mark.parametrize("name", ["set", "add"])
def test_a_listener_that_is_set_while_a_value_is_serialized_is_told_of_what_the_value_displaces(make, name):
    cache, removed = make(max_entries=1), []

    def listen():
        cache.engine.on_removal = lambda key, value, cause: removed.append(value)

    cache.set("a", "first")
    try:
        getattr(cache, name)("b", Acting(listen))
    finally:
        # Other tests look for listeners in the whole process.
        cache.engine.on_removal = None
    assert removed == ["first"]
