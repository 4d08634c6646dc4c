"""A value that cannot be decoded, as after a deploy that moved its class, is a miss, and is deleted."""

import asyncio
import logging
import pickle
import signal
import zlib

import pytest

from tests.backends.adapters import WITH_ASYNC
from tests.backends.test_memoize import ALL, SHARING
from tests.flask_backend.conftest import BEFORE_2_5
from tests.near_cache.tiers import SERVERS
from tests.near_cache.tiers import TIERS as SYNC
from tests.near_cache.tiers import WITH_ASYNC as TIERS
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache.django_backend import memoized_functions
from wheelcache.near_cache import store_tags

ERRORS = [
    *(pickle.UnpicklingError("truncated"), EOFError(), ModuleNotFoundError("No module named 'shop.old'")),
    *(AttributeError("moved"), TypeError("a new argument"), ValueError("no member"), KeyError("app")),
    *(ZeroDivisionError(), zlib.error("incorrect header")),
]


class Moved:
    """A value whose decoding raises ``error``, if there is one, after calling ``meanwhile``."""

    error = None
    meanwhile = staticmethod(lambda: None)

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _decoded, (self.number,)

    def __str__(self):
        return "moved"

    def __eq__(self, other):
        return type(other) is Moved and other.number == self.number

    __hash__ = None


def _decoded(number):
    Moved.meanwhile()
    if Moved.error is not None:
        raise Moved.error
    return Moved(number)


@pytest.fixture
def deploy(monkeypatch):
    """From the call on, no ``Moved`` can be decoded."""
    return lambda error=ERRORS[2]: monkeypatch.setattr(Moved, "error", error)


@pytest.fixture
def lines(caplog):
    """Return the lines of the log about values that cannot be decoded."""
    caplog.set_level(logging.WARNING, "wheelcache")
    return lambda: [line for line in caplog.messages if "cannot be decoded" in line]


def missed(cache, count):
    """Return whether a ``count`` found no number: Django raises, and Flask counts from 0."""
    try:
        return count() == 1
    except ValueError:
        return True


CALLS = {
    "get": lambda cache: cache.get("key", "default") == "default",
    "get_many": lambda cache: cache.get_many(["key", "other"]) == {"other": 1},
    "load": lambda cache: cache.load("key", lambda: ["new"]) == ["new"],
    "count": lambda cache: missed(cache, lambda: cache.count("key")),
}


# In memory.


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", [{}, {"fill_wait": 1}], ids=str)
def test_it_is_a_miss_that_counts_once_and_the_cache_heals(make, deploy, lines, call, options):
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
    (line,) = lines()
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


def test_a_line_names_one_of_them_at_most_once_a_minute(make, deploy, lines, clock):
    cache, other = make(), make()
    cache.set_many({key: Moved(1) for key in "abc"})
    other.set("d", Moved(1))
    deploy()
    for each, key in ((cache, "a"), (cache, "b"), (other, "d")):
        assert each.get(key) is None
    assert [cache.key(key) in line for key, line in zip("ad", lines(), strict=True)] == [True, True]
    clock.advance(60)
    assert cache.get("c") is None
    assert len(lines()) == 3


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


class TimeLimit(Exception):
    """Raised by a signal handler, as Celery's SoftTimeLimitExceeded."""


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", ["signal", MemoryError(), RecursionError()], ids=str)
def test_an_exception_that_is_not_about_the_value_passes_through_and_the_value_stays(
    make, deploy, lines, monkeypatch, call, error
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
    assert lines() == []


def test_the_figures_do_not_decrease_when_a_hit_is_taken_back(make, deploy, monkeypatch):
    cache, read = make(), []
    cache.set("key", Moved(1))
    deploy()
    monkeypatch.setattr(Moved, "meanwhile", lambda: read.append(cache.engine.stats()))
    assert cache.get("key") is None
    read.append(cache.engine.stats())
    cache.set("key", "value")
    cache.get("key")
    read.append(cache.engine.stats())
    assert [each.hits for each in read] == [1, 1, 1]


# Values that pickle and do not unpickle. Whoever computes one has the object.


def load_while_three_wait(cache, in_thread):
    """Load a key by four callers, of which three wait for the first. Each must load its own value."""
    loads = []

    def load():
        loads.append(1)
        if len(loads) == 1:
            until_waiting(3)
        return Moved(1)

    calls = [in_thread(cache.load, "key", load) for _ in range(4)]
    assert [each.result(PATIENCE) for each in calls] == [Moved(1)] * 4
    assert len(loads) == 4


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)
def test_callers_that_wait_for_a_value_that_is_not_decoded_load_their_own(make, deploy, in_thread):
    cache = make()
    deploy()
    load_while_three_wait(cache, in_thread)
    assert not cache.has("key")
    stats = cache.engine.stats()
    assert (stats.hits, stats.misses, stats.loads) == (0, 4, 4)


def test_callers_that_wait_for_a_set_of_such_a_value_go_on_as_after_a_miss(make, deploy, in_thread):
    cache = make(fill_wait=1000)
    cache.get("key")
    waiters = [in_thread(cache.get, "key", "default") for _ in range(2)]
    until_waiting(2)
    deploy()
    cache.set("key", Moved(1))
    assert [each.result(PATIENCE) for each in waiters] == ["default"] * 2
    assert not cache.has("key")


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
@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine function"])
def test_the_result_of_a_memoized_function_is_computed_again(site, deploy, lines, is_async):
    runs = []

    def value(number):
        runs.append(number)
        return Moved(number) if len(runs) == 1 else [number]

    async def avalue(number):
        return value(number)

    memoized = site.memoize(60)(avalue if is_async else value)

    async def awaited():
        return await memoized(7)

    call = (lambda: asyncio.run(awaited())) if is_async else (lambda: memoized(7))
    assert [call(), call()] == [Moved(7)] * 2
    deploy()
    assert [call(), call()] == [[7]] * 2
    assert len(runs) == 2
    assert len(lines()) == 1


@pytest.mark.parametrize("site", [name for name in ALL if "django" in name], indirect=True)
def test_a_version_of_a_memoized_function_that_cannot_be_decoded_is_made_again(site, deploy, monkeypatch):
    runs = []

    @site.memoize(60)
    def value():
        runs.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(memoized_functions.secrets, "token_hex", lambda size: Moved(1))
        value()
    deploy()
    value()
    before = len(runs)
    value()
    assert len(runs) == before


@pytest.mark.parametrize("site", [name for name in SITES if name in SHARING], indirect=True)
def test_callers_that_wait_for_such_a_result_compute_their_own(site, deploy, in_thread):
    runs = []
    deploy()

    @site.memoize(60)
    def value():
        runs.append(1)
        if len(runs) == 1:
            until_waiting(3)
        return Moved(1)

    calls = [in_thread(site.anywhere(value)) for _ in range(4)]
    assert [each.result(PATIENCE) for each in calls] == [Moved(1)] * 4
    assert len(runs) == 4


# In front of a store, whose client raises the errors.


@pytest.fixture(params=TIERS.values(), ids=TIERS)
def tier(request, over, tmp_path):
    def make(kind, **options):
        place = request.getfixturevalue(SERVERS[kind]) if kind in SERVERS else tmp_path / "files"
        return over(request.param, kind, place, **options)

    return make


@pytest.mark.pairs(full="call")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["memory", "files", pytest.param("redis", marks=pytest.mark.servers)])
@pytest.mark.parametrize("error", ERRORS[2:6], ids=lambda error: type(error).__name__)
def test_it_is_deleted_from_the_store(tier, deploy, lines, call, kind, error):
    cache = tier(kind)
    cache.behind.set_many({"key": Moved(1), "other": 1})
    deploy(error)
    if call == "count" and kind == "redis":
        # It counts by itself, and decodes nothing.
        cache.get("key")
    assert CALLS[call](cache)
    (line,) = lines()
    assert cache.key("key") in line
    assert repr(error) in line
    # Nothing is left that cannot be decoded.
    cache.behind.get_many(["key"])
    cache.set("key", "repaired")
    assert cache.get("key") == "repaired"


def test_a_value_that_another_process_has_set_in_its_place_stays_in_the_store(tier, deploy, lines, monkeypatch):
    cache = tier("files")
    cache.behind.set("key", Moved(1))
    deploy()
    monkeypatch.setattr(Moved, "meanwhile", lambda: cache.behind.set("key", ["replaced"]))
    assert cache.get("key") == cache.behind.get("key") == ["replaced"]
    assert lines() == []


@pytest.mark.parametrize("tier", [TIERS[name] for name in TIERS if "django" in name], indirect=True)
def test_a_touch_that_decodes_a_value_finds_none(tier, deploy, lines):
    cache = tier("files")
    cache.behind.set("key", Moved(1))
    deploy()
    assert not cache.touch("key", 10)
    assert len(lines()) == 1
    cache.set("key", 1)
    assert cache.touch("key", 10)


@pytest.mark.parametrize("kind", ["memory", "files", pytest.param("redis", marks=pytest.mark.servers)])
def test_a_tag_whose_token_cannot_be_decoded_counts_as_dropped(tier, deploy, lines, monkeypatch, kind):
    cache = tier(kind)
    with monkeypatch.context() as patch:
        patch.setattr(store_tags, "first_token", lambda: Moved(1))
        for key in ("key", "other"):
            cache.backend.set(key, "old", tags=["a"])
    deploy()
    assert cache.get("key", "default") == "default"
    assert cache.get_many(["other"]) == {}
    assert len(lines()) == 1
    # Not a key that was missed: its new value may be from before the drop.
    cache.backend.set("new", "repaired", tags=["a"])
    assert cache.get("new") == "repaired"


@pytest.mark.parametrize("tier", SYNC.values(), ids=SYNC, indirect=True)
@pytest.mark.parametrize("error", ["signal", MemoryError()], ids=str)
def test_an_exception_while_the_store_is_read_that_is_not_about_the_value_passes_through(
    tier, deploy, lines, monkeypatch, error
):
    cache = tier("memory")
    cache.behind.set("key", Moved(1))

    def limit(number, frame):
        raise TimeLimit

    before = signal.signal(signal.SIGUSR1, limit)
    try:
        deploy(None if error == "signal" else error)
        if error == "signal":
            monkeypatch.setattr(Moved, "meanwhile", lambda: signal.raise_signal(signal.SIGUSR1))
        for call in ("get", "get_many", "load"):
            with pytest.raises(TimeLimit if error == "signal" else type(error)):
                CALLS[call](cache)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    assert cache.get("key") == Moved(1)
    assert lines() == []


def test_callers_that_wait_for_a_load_of_a_tier_that_is_not_decoded_load_their_own(tier, deploy, in_thread):
    cache = tier("memory")
    deploy()
    load_while_three_wait(cache, in_thread)
    assert cache.get("key") is None
