"""Random calls: over time, they have the results of LocMemCache and SimpleCache, except for documented differences.

A call takes a short way through the compiled core if its key and value are usual. It has the same result as the long
way, which every call takes with a clock of the test.
"""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.adapters import ADAPTERS, use_clock
from tests.flask_backend.conftest import BEFORE_2_5
from wheelcache import ManualClock


def calls(key, value, ttl, delta):
    """Return random calls, without those that depend on the time."""
    return st.one_of(
        st.tuples(st.sampled_from(["get", "has", "delete"]), st.tuples(key)),
        st.tuples(st.sampled_from(["set", "add"]), st.tuples(key, value, ttl)),
        st.tuples(st.sampled_from(["set", "add"]), st.tuples(key, value)),
        st.tuples(st.just("touch"), st.tuples(key, ttl)),
        st.tuples(st.just("count"), st.tuples(key, delta)),
        st.tuples(st.just("get_many"), st.tuples(st.lists(key, max_size=5))),
        st.tuples(st.just("set_many"), st.tuples(st.dictionaries(key, value, max_size=5), ttl)),
    )


LASTING = calls(
    st.sampled_from(["a", "b", "\u00e9", "a_memver", "x" * 249, "x" * 300]),
    st.sampled_from([0, 41, 2**70, True, None, "text", 1.5, [1], {"a": 1}]),
    st.sampled_from([None, 1000, 250.5, -1]),
    st.sampled_from([1, -5, 2**70, 0.5, "x"]),
)
EXPIRING = st.one_of(
    calls(
        st.sampled_from("abc"),
        st.sampled_from([-1, 0, 3, "x", "é", None, True, [1], (1, [2]), 1.5]),
        st.sampled_from([None, 1, 5, 20, True, False]),
        st.integers(-2, 2),
    ),
    st.tuples(st.just("clear"), st.just(())),
    st.tuples(st.just("delete_many"), st.tuples(st.lists(st.sampled_from("abc"), max_size=4))),
    st.tuples(st.just("wait"), st.tuples(st.sampled_from([1, 2.5, 4, 30]))),
)


def answer(cache, name, arguments):
    try:
        found = getattr(cache, name)(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)
    # The result of clear differs between frameworks and is tested there.
    return None if name == "clear" else found


# In a cachelib of the time before Flask-Caching 2.5, ``add`` fails until the next pruning if an entry has expired.
COMPARABLE = {name: each for name, each in ADAPTERS.items() if not (BEFORE_2_5 and "flask" in name)}


@pytest.mark.parametrize("adapter", COMPARABLE.values(), ids=COMPARABLE)
@given(calls=st.lists(EXPIRING, max_size=30))
def test_random_calls_have_the_answers_of_the_frameworks_own_cache(adapter, calls):
    clock = ManualClock(1000.0)
    with pytest.MonkeyPatch.context() as patched:
        use_clock(patched, clock)
        for module in ("django.core.cache.backends.locmem", "django.core.cache.backends.base"):
            patched.setattr(f"{module}.time", SimpleNamespace(time=clock))
        patched.setattr("cachelib.simple.time", clock)
        ours, theirs = adapter.make(), adapter.documented()
        for name, arguments in calls:
            if name == "wait":
                clock.advance(*arguments)
            elif hasattr(ours, name):
                assert answer(ours, name, arguments) == answer(theirs, name, arguments)


@pytest.mark.filterwarnings("ignore:.*:django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
@given(calls=st.lists(LASTING, max_size=30))
def test_both_ways_have_the_same_results(adapter, calls):
    short = adapter.make()
    with pytest.MonkeyPatch.context() as patched:
        use_clock(patched, ManualClock())
        long = adapter.make()
    for name, arguments in calls:
        if hasattr(short, name):
            assert answer(short, name, arguments) == answer(long, name, arguments)
    found = [each.engine.stats() for each in (short, long)]
    one, other = [(stats.hits, stats.misses, stats.puts, stats.removals) for stats in found]
    assert one == other
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
