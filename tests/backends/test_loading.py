"""``get_or_set``, ``aget_or_set``, ``get_or_load``: options other than the timeout. The effects are the engine's."""

import asyncio
import threading

import pytest

from tests.backends.adapter import DEFAULT
from tests.backends.adapters import ADAPTERS
from tests.waiting import PATIENCE, until
from wheelcache import KEEP, LoadTimeout

pytestmark = pytest.mark.pairs(full="way", of="policy")

LONG = 60


class Boom(Exception):
    pass


class Loader:
    """A loader that returns or raises the given outcomes, one per call. It continues when ``free`` is set."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0
        self.free = threading.Event()
        self.free.set()

    def __call__(self):
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        assert self.free.wait(PATIENCE)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


WAYS = ["django", "django async", "flask"]


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture
def adapter(way):
    return ADAPTERS[way.split()[0]]


@pytest.fixture
def ask(way, loop):
    """``ask(cache, loader, ttl, ...)`` for "key", with threads and with coroutines."""

    def ask_either(cache, loader, ttl=DEFAULT, **policy):
        if way == "django async":

            async def aloader():
                while not loader.free.is_set():
                    await asyncio.sleep(0.001)
                return loader()

            given = aloader if isinstance(loader, Loader) else loader
            return loop(lambda: cache.backend.aget_or_set("key", given, **cache.timeout(ttl), **policy))
        return cache.load("key", loader, ttl, **policy)

    return ask_either


SECONDS = "a number of seconds > 0, or None"
NAN, INF = float("nan"), float("inf")
WRONG = [
    *(("grace", wrong, SECONDS) for wrong in (0, -1, "5", True, NAN, INF)),
    *(("refresh_ahead", wrong, "a fraction, 0 < fraction < 1, or None") for wrong in (0, 1, -0.5, "0.5", True)),
    *(("load_timeout", wrong, SECONDS) for wrong in (0, -1, "5", False, [], INF)),
    *(("negative_ttl", wrong, SECONDS) for wrong in (0, -1, "5", True, {})),
    *(("fail_safe", wrong, SECONDS) for wrong in (0, -1, "5", True, INF)),
]


def test_a_wrong_option_is_an_error_that_names_it_as_it_is_spelled_here(make, ask):
    cache = make()
    for is_there in (False, True):
        for option, wrong, takes in WRONG:
            for ttl in (10, -1):
                with pytest.raises((TypeError, ValueError)) as refused:
                    ask(cache, pytest.fail, ttl, **{option: wrong})
                assert str(refused.value) == f"{option} must be {takes}, not {wrong!r}"
        with pytest.raises(TypeError, match="ttl_"):
            ask(cache, pytest.fail, 10, ttl_=1)
        assert cache.has("key") is is_there
        cache.set("key", 1)


async def coroutine():
    return {"a": 1}


def generator():
    yield 1


POLICIES = [{}, {"grace": 5}, {"refresh_ahead": 0.5}, {"load_timeout": 5}, {"negative_ttl": 5}]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_missing_value_is_loaded_once_and_stored_for_its_timeout(make, ask, clock, policy):
    cache = make(timeout=50)
    loader = Loader(["first"], ["second"], ["third"])
    assert [ask(cache, loader, 10, **policy) for _ in range(3)] == [["first"]] * 3
    assert cache.ttl_left("key") == 10
    cache.delete("key")
    assert ask(cache, loader, **policy) == cache.get("key") == ["second"]
    assert cache.ttl_left("key") == 50
    assert ask(cache, pytest.fail, -1, **policy) == ["second"]
    cache.delete("key")
    assert ask(cache, loader, -1, **policy) == ["third"]
    assert not cache.has("key")


def test_within_its_grace_a_value_is_served_each_its_own_while_it_is_loaded_anew(make, ask, clock):
    cache, loader = make(), Loader(["first"], ["second"], ["third"])
    assert ask(cache, loader, 10, grace=20) == ["first"]
    clock.advance(15)
    loader.free.clear()
    stale = [cache.load("key", loader, 10, grace=20) for _ in range(3)]
    assert stale == [["first"]] * 3
    assert len(set(map(id, stale))) == 3
    # For any other call the value is not there.
    assert (cache.get("key"), cache.has("key"), cache.get_many(["key"])) == (None, False, {})
    loader.free.set()
    assert until(lambda: cache.get("key") == ["second"])
    assert cache.engine.stats().stale_hits == 3
    clock.advance(30)
    assert len(cache.engine) == 0
    assert ask(cache, loader, 10, grace=20) == ["third"]


def test_past_a_fraction_of_its_timeout_a_hit_has_the_value_loaded_anew(make, ask, clock):
    cache, loader = make(), Loader("first", "second")
    for seconds in (0, 7, 1.5):
        clock.advance(seconds)
        assert ask(cache, loader, 10, refresh_ahead=0.8) == "first"
    assert until(lambda: cache.get("key") == "second")
    assert cache.ttl_left("key") == 10
    assert loader.calls == 2


def test_a_caller_waits_no_longer_than_load_timeout_and_what_is_loaded_is_kept(make, ask, clock):
    cache, loader = make(), Loader("first", "second")
    loader.free.clear()
    with pytest.raises(LoadTimeout, match=rf"the loader of '{cache.key('key')}' takes longer than 0\.05 s"):
        ask(cache, loader, 10, grace=LONG, load_timeout=0.05)
    loader.free.set()
    assert until(lambda: cache.get("key") == "first")
    clock.advance(10)
    loader.free.clear()
    assert ask(cache, loader, 10, grace=LONG, load_timeout=0.05) == "first"
    loader.free.set()
    assert until(lambda: cache.get("key") == "second")


def test_a_none_is_kept_for_negative_ttl_and_other_values_for_their_timeout(make, ask, clock):
    cache, loader = make(), Loader(None, ["value"])
    for seconds in (0, 4):
        clock.advance(seconds)
        assert ask(cache, loader, 100, negative_ttl=5, grace=LONG) is None
        assert cache.has("key")
    assert loader.calls == 1
    clock.advance(1)
    # A None has no grace.
    assert ask(cache, loader, 100, negative_ttl=5, grace=LONG) == ["value"]
    assert cache.ttl_left("key") == 100


# The value decides.


def test_a_timeout_may_be_a_function_of_the_value(make, clock, ask):
    cache = make()
    assert ask(cache, lambda: {"expires_in": 7}, lambda token: token["expires_in"]) == {"expires_in": 7}
    assert cache.ttl_left("key") == 7
    cache.delete("key")
    for seconds in (None, 0, -1):
        assert ask(cache, lambda: [1], lambda value, seconds=seconds: seconds) == [1]
        assert len(cache.engine) == 0


def test_a_loader_receives_a_copy_of_the_previous_value_and_may_keep_it(make, clock, ask):
    cache = make()
    received = []

    def load(previous=None):
        received.append(previous)
        return KEEP if previous else ["value"]

    assert ask(cache, load, 10, grace=50) == ["value"]
    clock.advance(10)
    assert ask(cache, load, 10, grace=50) == ["value"]
    assert until(lambda: cache.has("key"))
    assert received == [None, ["value"]]
    assert cache.ttl_left("key") == 10
    received[1].append("changed")
    assert cache.get("key") == ["value"]


# Results that can be read only once. An async caller awaits a coroutine.

READ_ONCE = [("django", coroutine), ("flask", coroutine), *((way, generator) for way in WAYS)]


@pytest.mark.pairs(full="way", of="way, function")
@pytest.mark.parametrize("ttl", [10, -1])
@pytest.mark.parametrize("policy", [*POLICIES, {"timeout": lambda value: 5}], ids=lambda policy: "".join(policy))
@pytest.mark.parametrize(("way", "function"), READ_ONCE, indirect=["way"])
def test_a_result_that_can_be_read_only_once_is_an_error_and_not_stored(make, ask, function, policy, ttl):
    cache = make()
    for loader in (function, lambda: function(), lambda previous: function()):
        with pytest.raises(TypeError, match="only once, so it is not cached"):
            ask(cache, loader, **({"ttl": ttl} if "timeout" not in policy else {}), **policy)
        assert not cache.has("key")


@pytest.mark.parametrize("method", ["set", "add"])
def test_a_coroutine_is_not_set_either(make, method):
    cache = make()
    with pytest.raises(TypeError, match="can be awaited only once, so it is not cached"):
        getattr(cache, method)("key", coroutine())
    assert not cache.has("key")
