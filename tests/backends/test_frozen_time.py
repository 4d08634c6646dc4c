"""Time that tests move: the same script has the same answers on a cache of the framework's own and on ours."""

import pytest

from tests.time_travel import FAR, LIBRARIES, LONG_AGO, in_real_time


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


class Both:
    """LocMemCache or SimpleCache, and a WheelCache. Every call goes to both, and must have the same answer."""

    def __init__(self, adapter):
        self.caches = adapter.beside(), adapter.make()

    def __getattr__(self, name):
        def call(*args, **kwargs):
            expected, answer = (_answer(getattr(cache, name), args, kwargs) for cache in self.caches)
            assert answer == expected, (name, args)
            return answer

        return call


def _answer(method, args, kwargs):
    try:
        return method(*args, **kwargs)
    except ValueError:
        return ValueError


@pytest.fixture
def both(adapter):
    return Both(adapter)


# Scripts get a pair of caches, and the library that freezes the time. None looks for a key that has expired and again
# when the time was moved back: LocMemCache removes an expired entry when it finds it, the others return it again.


def set_before(both, library):
    both.set("a", 1, 300)
    both.set("b", 1, 600)
    both.set("always", 1, None)
    with library.freeze(LONG_AGO) as time_:
        assert both.get("a") == 1
        time_.shift(86_400 * 365)
        assert both.get("a") == 1
    with library.freeze(in_real_time(302)):
        assert both.get_many(["a", "b", "always"]) == {"b": 1, "always": 1}
    assert both.get_many(["b", "always"]) == {"b": 1, "always": 1}


def set_in_it(both, library):
    for moment, after in ((FAR, 1), (LONG_AGO, None)):
        with library.freeze(moment) as time_:
            for key in "ab":
                both.set(key, 1, 300)
            both.set("long", 1, 86_400 * 365 * 60)
            time_.shift(299)
            assert both.get("a") == 1
            time_.shift(1)
            assert both.get("a") is None
        assert (both.get("b"), both.get("long")) == (after, 1)


SCRIPTS = (set_before, set_in_it)


@pytest.mark.pairs
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_has_the_answers_of_the_frameworks_own_cache(script, library, both):
    script(both, library)
