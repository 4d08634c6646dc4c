"""``get_or_set``, ``aget_or_set``, ``get_or_load``: what they take beside a timeout. The effects are the engine's."""

import threading

import pytest

from tests.backends.adapter import DEFAULT
from tests.backends.adapters import ADAPTERS
from tests.waiting import PATIENCE, until
from wheelcache import LoadDeadlock, LoadTimeout

LONG = 60


class Boom(Exception):
    pass


class Loader:
    """Returns or raises what it is given, one after the other. It goes on when it is ``free``."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0
        self.threads = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self):
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        self.threads.append(threading.current_thread())
        assert self.free.wait(PATIENCE)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture(params=["django", "django async", "flask"])
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
            return loop(lambda: cache.backend.aget_or_set("key", loader, **cache.timeout(ttl), **policy))
        return cache.load("key", loader, ttl, **policy)

    return ask_either


SECONDS = "a number of seconds > 0, or None"
NAN, INF = float("nan"), float("inf")
WRONG = [
    *(("grace", wrong, SECONDS) for wrong in (0, -1, "5", True, NAN, INF)),
    *(("refresh_ahead", wrong, "a fraction, 0 < fraction < 1, or None") for wrong in (0, 1, -0.5, "0.5", True)),
    *(("load_timeout", wrong, SECONDS) for wrong in (0, -1, "5", False, [], INF)),
    *(("negative_ttl", wrong, SECONDS) for wrong in (0, -1, "5", True, {})),
    *(("fail_safe", wrong, "True or False") for wrong in (1, 0, None, "yes")),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG)
def test_a_wrong_option_is_an_error_that_names_it_as_it_is_spelled_here(make, ask, option, wrong, takes):
    for ttl, is_there in ((10, False), (-1, False), (10, True), (-1, True)):
        cache = make()
        if is_there:
            cache.set("key", 1)
        with pytest.raises((TypeError, ValueError)) as refused:
            ask(cache, pytest.fail, ttl, **{option: wrong})
        assert str(refused.value) == f"{option} must be {takes}, not {wrong!r}"
        assert cache.has("key") is is_there


@pytest.mark.parametrize(("given", "message"), [({"fail_safe": True}, "fail_safe needs grace"), ({"ttl_": 1}, "ttl_")])
def test_fail_safe_without_grace_and_what_is_unknown_are_errors(make, ask, given, message):
    with pytest.raises(TypeError, match=message):
        ask(make(), pytest.fail, 10, **given)


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


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_an_error_of_the_loader_is_the_callers_and_stores_nothing(make, ask, policy):
    cache = make()
    with pytest.raises(KeyError, match="mine"):
        ask(cache, Loader(KeyError("mine")), 10, **policy)
    assert not cache.has("key")
    assert ask(cache, lambda: 1, 10, **policy) == 1


def test_a_loader_that_asks_for_its_own_key_is_told_so_and_other_keys_are_fine(make):
    cache = make()
    with pytest.raises(LoadDeadlock, match="key"):
        cache.load("key", lambda: cache.load("key", lambda: 1))
    assert cache.load("key", lambda: cache.load("other", lambda: 1) + 1) == 2


def test_what_is_set_or_removed_while_the_loader_runs_wins(make):
    cache = make()
    assert cache.load("key", lambda: cache.set("key", ["set"]) or ["loaded"]) == ["loaded"]
    assert cache.get("key") == ["set"]
    for remove in (cache.delete, lambda key: cache.delete_many([key]), lambda key: cache.clear()):
        cache.delete("key")
        assert cache.load("key", lambda remove=remove: [remove("key")] and "old") == "old"
        assert not cache.has("key")


def test_within_its_grace_a_value_is_served_while_one_thread_loads_it_anew(make, clock):
    cache, loader = make(), Loader(["first"], ["second"])
    assert cache.load("key", loader, 10, grace=LONG) == ["first"]
    clock.advance(10)
    loader.free.clear()
    stale = [cache.load("key", loader, 10, grace=LONG) for _ in range(3)]
    assert stale == [["first"]] * 3
    # Each caller has its own, and for any other call the value is not there.
    assert len(set(map(id, stale))) == 3
    assert (cache.get("key"), cache.has("key"), cache.get_many(["key"])) == (None, False, {})
    loader.free.set()
    assert until(lambda: cache.get("key") == ["second"])
    assert cache.engine.stats().stale_hits == 3
    assert loader.calls == 2
    assert loader.threads[1] is not threading.current_thread()


def test_a_stale_value_is_refreshed_and_past_its_grace_it_is_gone(make, ask, clock):
    cache, loader = make(), Loader("first", "second", "third")
    ask(cache, loader, 10, grace=20)
    clock.advance(15)
    assert ask(cache, loader, 10, grace=20) == "first"
    assert until(lambda: cache.get("key") == "second")
    clock.advance(30)
    assert len(cache.engine) == 0
    assert ask(cache, loader, 10, grace=20) == "third"


def test_past_a_fraction_of_its_timeout_a_hit_has_the_value_loaded_anew(make, ask, clock):
    cache, loader = make(), Loader("first", "second")
    for seconds in (0, 7, 1.5):
        clock.advance(seconds)
        assert ask(cache, loader, 10, refresh_ahead=0.8) == "first"
    assert until(lambda: cache.get("key") == "second")
    assert cache.ttl_left("key") == 10
    assert loader.calls == 2


@pytest.mark.parametrize("fail_safe", [True, False])
def test_with_fail_safe_a_stale_value_outlives_a_failed_refresh(make, ask, clock, caplog, fail_safe):
    cache, loader = make(), Loader("first", Boom("down"))
    policy = {"grace": 100, "fail_safe": fail_safe}
    ask(cache, loader, 10, **policy)
    clock.advance(15)
    assert ask(cache, loader, 10, **policy) == "first"
    # The failure is known once it is logged.
    assert until(lambda: f"Loading '{cache.key('key')}' into the cache" in caplog.text)
    if fail_safe:
        assert ask(cache, loader, 10, **policy) == "first"
        # The next try waits.
        assert loader.calls == 2
    else:
        with pytest.raises(Boom):
            ask(cache, loader, 10, **policy)


def test_a_caller_waits_no_longer_than_load_timeout_and_what_is_loaded_is_kept(make, clock):
    cache, loader = make(), Loader("first", "second")
    loader.free.clear()
    with pytest.raises(LoadTimeout, match=rf"the loader of '{cache.key('key')}' takes longer than 0\.05 s"):
        cache.load("key", loader, 10, grace=LONG, load_timeout=0.05)
    loader.free.set()
    assert until(lambda: cache.get("key") == "first")
    clock.advance(10)
    loader.free.clear()
    assert cache.load("key", loader, 10, grace=LONG, load_timeout=0.05) == "first"
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


def test_what_never_expires_is_never_refreshed(make, ask, clock):
    cache, loader = make(), Loader("first", "second")
    for _ in range(3):
        assert ask(cache, loader, None, refresh_ahead=0.01, grace=5) == "first"
        clock.advance(10**6)
    assert loader.calls == 1


ALL = {"grace": LONG, "refresh_ahead": 0.5, "fail_safe": True, "load_timeout": LONG, "negative_ttl": 5}


def test_a_timeout_that_is_over_at_once_stores_nothing_whatever_else_is_asked_for(make, ask):
    cache, loader = make(), Loader("first", "second")
    for expected in ("first", "second"):
        assert ask(cache, loader, -1, **ALL) == expected
        assert not cache.has("key")
