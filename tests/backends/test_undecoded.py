"""A value that cannot be decoded, as after a deploy that moved its class, is a miss, and is deleted."""

import signal

import pytest

from tests.backends.adapters import WITH_ASYNC
from tests.backends.test_memoize import ALL
from tests.backends.undecoded import CALLS, ERRORS, Moved, TimeLimit, load_while_three_wait
from tests.flask_backend.conftest import BEFORE_2_5
from tests.guests import needs
from tests.waiting import until
from wheelcache.django_backend import memoized_functions


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", [{}, pytest.param({"fill_wait": 1}, marks=needs("fill_waits"))], ids=str)
def test_it_is_a_miss_that_counts_once_and_the_cache_heals(make, deploy, undecoded, call, options):
    cache = make(**options)
    cache.set_many({"key": Moved(1), "other": 1})
    deploy()
    before = cache.engine.stats()
    assert CALLS[call](cache)
    after = cache.engine.stats()
    # Numbers are not looked up.
    counted = {"get": (0, 1), "get_many": (1, 1), "load": (0, 1), "count": (0, 0)}[call]
    assert (after.hits - before.hits, after.misses - before.misses) == counted
    assert after.deletions - before.deletions == 1
    (line,) = undecoded()
    assert repr(cache.key("key")) in line
    assert repr(Moved.error) in line
    cache.set("key", "repaired")
    assert cache.get("key") == "repaired"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_these_exceptions_show_that_a_value_cannot_be_decoded(make, deploy, error):
    cache = make()
    cache.set("key", Moved(1))
    deploy(error)
    assert cache.get("key", "default") == "default"
    assert not cache.has("key")


def test_a_line_names_one_of_them_at_most_once_a_minute(make, deploy, undecoded, clock):
    cache, other = make(), make()
    cache.set_many({key: Moved(1) for key in "abc"})
    other.set("d", Moved(1))
    deploy()
    for each, key in ((cache, "a"), (cache, "b"), (other, "d")):
        assert each.get(key) is None
    assert [cache.key(key) in line for key, line in zip("ad", undecoded(), strict=True)] == [True, True]
    clock.advance(60)
    assert cache.get("c") is None
    assert len(undecoded()) == 3


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("call", CALLS)
def test_a_value_that_another_caller_has_set_in_its_place_stays(make, deploy, monkeypatch, call):
    cache = make()
    cache.set_many({"key": Moved(1), "other": 1})
    deploy()
    monkeypatch.setattr(Moved, "meanwhile", lambda: cache.for_any_code().set("key", ["replaced"]))
    if call == "count":
        with pytest.raises(TypeError):
            cache.count("key")
    else:
        CALLS[call](cache)
    assert cache.get("key") == ["replaced"]


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", ["signal", MemoryError(), RecursionError()], ids=str)
def test_an_exception_that_is_not_about_the_value_passes_through_and_the_value_stays(
    make, deploy, undecoded, monkeypatch, call, error
):
    cache = make()
    cache.set("key", Moved(1))

    def limit(number, frame):
        raise TimeLimit

    before = signal.signal(signal.SIGUSR1, limit)
    try:
        deploy(None if error == "signal" else error)
        if error == "signal":
            monkeypatch.setattr(Moved, "meanwhile", lambda: signal.raise_signal(signal.SIGUSR1))
        with pytest.raises(TimeLimit if error == "signal" else type(error)):
            CALLS[call](cache)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    assert cache.get("key") == Moved(1)
    assert undecoded() == []


# Values that pickle and do not unpickle. Whoever computes one has the object.


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
def test_callers_that_wait_for_a_value_that_is_not_decoded_load_their_own(make, deploy, in_thread):
    cache = make()
    deploy()
    load_while_three_wait(cache, in_thread)
    assert not cache.has("key")
    stats = cache.engine.stats()
    assert (stats.hits, stats.misses, stats.loads) == (0, 4, 4)


def test_a_stale_value_that_is_not_decoded_is_loaded_again_and_a_previous_one_is_none(make, deploy, clock):
    cache = make()
    cache.load("key", lambda: Moved(1), 10, grace=100)
    clock.advance(11)
    deploy()
    given = []
    assert cache.load("key", lambda previous: given.append(previous) or ["new"], 10, grace=100) == ["new"]
    # The thread that has computed it may not have stored it yet.
    assert until(lambda: cache.get("key") == ["new"])
    assert set(given) == {None}


# Memoized functions.


SITES = [name for name in ALL if "django" in name or not BEFORE_2_5]


@pytest.fixture
def site(request):
    memoized_functions._undecoded.cache_clear()
    made = ALL[request.param]()
    with made.active:
        yield made


@pytest.mark.parametrize("site", SITES, indirect=True)
def test_the_result_of_a_memoized_function_is_computed_again(site, deploy, undecoded):
    runs = []

    @site.memoize(60)
    def value(number):
        runs.append(number)
        return Moved(number) if len(runs) == 1 else [number]

    assert [value(7), value(7)] == [Moved(7)] * 2
    deploy()
    assert [value(7), value(7)] == [[7]] * 2
    assert len(runs) == 2
    assert len(undecoded()) == 1
