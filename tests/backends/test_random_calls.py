"""Over time, random calls return the results of LocMemCache and SimpleCache, except for documented differences."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.adapters import ADAPTERS, use_clock
from wheelcache import ManualClock

KEY = st.sampled_from("abc")
VALUE = st.sampled_from([-1, 0, 3, "x", "é", None, True, [1], (1, [2]), 1.5])
TTL = st.sampled_from([None, 1, 5, 20, True, False])
CALL = st.one_of(
    st.tuples(st.sampled_from(["get", "has", "delete"]), st.tuples(KEY)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEY, VALUE, TTL)),
    st.tuples(st.just("set"), st.tuples(KEY, VALUE)),
    st.tuples(st.just("touch"), st.tuples(KEY, TTL)),
    st.tuples(st.just("count"), st.tuples(KEY, st.integers(-2, 2))),
    st.tuples(st.sampled_from(["get_many", "delete_many"]), st.tuples(st.lists(KEY, max_size=4))),
    st.tuples(st.just("set_many"), st.tuples(st.dictionaries(KEY, VALUE, max_size=4), TTL)),
    st.tuples(st.just("clear"), st.just(())),
    st.tuples(st.just("wait"), st.tuples(st.sampled_from([1, 2.5, 4, 30]))),
)


def answer(cache, name, arguments):
    try:
        found = getattr(cache, name)(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)
    # The result of clear differs between frameworks and is tested there.
    return None if name == "clear" else found


@pytest.mark.deep
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
@settings(max_examples=150)
@given(calls=st.lists(CALL, max_size=30))
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
            elif name != "touch" or hasattr(ours, "touch"):
                assert answer(ours, name, arguments) == answer(theirs, name, arguments)
