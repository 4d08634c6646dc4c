"""``memoize`` of both frameworks, in the words of ``Site``, over each kind of cache. The engine's is tested in
``tests/engine/loading``."""

import asyncio
import math
from functools import partial
from itertools import count
from types import MappingProxyType

import flask
import pytest
from django.core.cache import caches
from django.test import override_settings

from tests.backends.adapter import QUIET, names
from tests.django_backend.conftest import LOCMEM
from tests.engines import engine, noted
from tests.guests import has, needs
from tests.waiting import PATIENCE, THREADS, auntil_waiting, until_waiting
from wheelcache import flask_backend
from wheelcache.django_backend import memoize


class DjangoSite:
    """
    Attributes:
        memoize: the decorator.
        keeping_none: the options of the decorator by which a None is a value.
    """

    memoize = staticmethod(memoize)
    keeping_none = MappingProxyType({})

    def __init__(self, backend, **options):
        options = {name.upper(): value for name, value in {**QUIET, **options}.items()}
        second = {"BACKEND": LOCMEM, "LOCATION": next(names)}
        self.active = override_settings(
            CACHES={"default": {"BACKEND": backend, "LOCATION": next(names), "OPTIONS": options}, "second": second}
        )

    def anywhere(self, function):
        """Return ``function`` for any thread."""
        return function

    def engine(self):
        return engine(caches["default"])

    def delete(self, memoized, *args):
        memoized.cache_delete(*args)

    def clear(self, memoized):
        memoized.cache_clear()

    def delete_tags(self, *tags):
        caches["default"].delete_tags(*tags)


class FlaskSite:
    keeping_none = MappingProxyType({"cache_none": True})

    def __init__(self, backend, **options):
        self.app = flask.Flask(__name__)
        # Otherwise, Flask-Caching logs some exceptions and goes on.
        self.app.debug = self.app.testing = True
        # Not imported above: it needs a newer Flask-Caching than other modules that use these sites.
        cache = flask_backend.Cache(self.app, config={"CACHE_TYPE": backend, "CACHE_OPTIONS": {**QUIET, **options}})
        self.active = self.app.app_context()
        self.memoize = cache.memoize
        self.delete = self.clear = self.anywhere(cache.delete_memoized)
        self.delete_tags = self.anywhere(cache.delete_tags)
        made = noted(cache.cache)
        self.engine = lambda: engine(made)

    def anywhere(self, function):
        def in_context(*args):
            with self.app.app_context():
                return function(*args)

        return in_context


WITH_TAGS = {
    "django": lambda: DjangoSite("wheelcache.django_backend.WheelCache"),
    "flask": lambda: FlaskSite("wheelcache.flask_backend.WheelCache"),
}
if has("host_cache"):
    WITH_TAGS |= {
        "django host": lambda: DjangoSite("wheelcache.django_backend.HostCache"),
        "flask host": lambda: FlaskSite("wheelcache.flask_backend.HostCache", location=next(names)),
    }
SHARING = dict(WITH_TAGS)
if has("near_cache"):
    SHARING |= {
        "django tiered": lambda: DjangoSite("wheelcache.django_backend.TieredCache", l2="second"),
        "flask tiered": lambda: FlaskSite("wheelcache.flask_backend.TieredCache", l2="SimpleCache"),
    }
"""The sites whose callers that miss a value together share its computation."""
ALL = {**SHARING, "django locmem": lambda: DjangoSite(LOCMEM)}


@pytest.fixture(params=ALL)
def site(request):
    made = ALL[request.param]()
    with made.active:
        yield made


@pytest.fixture(params=[name for name in ALL if "django" in name])
def django_site(request):
    made = ALL[request.param]()
    with made.active:
        yield made


def on(sites):
    return pytest.mark.parametrize("site", sites, indirect=True)


# Calls and keys.


def test_calls_that_mean_the_same_share_a_value_and_values_are_isolated(site):
    computed = []

    @site.memoize(60)
    def load(a, b=2, *rest, flag=False, **names):
        computed.append((a, b, rest, flag, names))
        return [len(computed)]

    assert [load(1), load(1, 2), load(b=2, a=1), load(1, b=2, flag=False)] == [[1]] * 4
    assert [load(1, 3), load(b=3, a=1)] == [[2]] * 2
    assert [load(1, 2, 3), load(1, x=1, y=2), load(1, y=2, x=1)] == [[3], [4], [4]]
    assert load(1) is not load(1)
    load(1).append("changed")
    assert load(1) == [1]
    assert load.uncached(5) == [5]


def test_a_value_is_deleted_or_all_of_the_function_are(site):
    numbers = count()
    load = site.memoize(60)(lambda key: [next(numbers)])

    @site.memoize(60)
    def other(key):
        return [next(numbers)]

    for _ in range(2):
        assert [load("a"), load("b"), other("a")] == [[0], [1], [2]]
    site.delete(load, "a")
    assert [load("a"), load("b")] == [[3], [1]]
    site.clear(load)
    assert [load("a"), load("b"), other("a")] == [[4], [5], [2]]


def made_by_factory(memoize, n):
    @memoize(60)
    def function():
        return [n]

    return function


class Bound:
    def __init__(self, number):
        self.number = number

    def price(self):
        return [self.number]

    def __repr__(self):
        return f"Bound {self.number}"


def lambda_of(memoize, n):
    return memoize(60)((lambda: [1]) if n == 1 else (lambda: [2]))


def bound_method(memoize, n):
    return memoize(60)(Bound(n).price)


@pytest.mark.parametrize("make", [made_by_factory, lambda_of, bound_method])
def test_functions_of_one_name_have_values_of_their_own(site, make):
    functions = [make(site.memoize, n) for n in (1, 2)]
    for _ in range(2):
        assert [function() for function in functions] == [[1], [2]]


def test_a_none_is_a_value(site):
    computed = []
    load = site.memoize(60, **site.keeping_none)(lambda key: computed.append(key))
    assert load("a") is load("a") is None
    assert computed == ["a"]


def test_a_timeout_may_be_a_function_of_the_value(site):
    values = iter([None, 0, -1, 60, math.inf])
    load = site.memoize(lambda value: value, **site.keeping_none)(lambda: next(values))
    assert [load() for _ in range(5)] == [None, 0, -1, 60, 60]
    site.clear(load)
    assert [load(), load()] == [math.inf] * 2


class WithAddress:
    """Has no ``__repr__``."""


class Named:
    def __repr__(self):
        return "named"


@needs("host_cache")
@on(["flask host"])
def test_workers_of_a_machine_do_not_share_the_values_of_an_address(site, monkeypatch):
    thing, computed = object(), []
    load = site.memoize(60)(lambda value: computed.append(value) or 1)
    for process in ("one", "other"):
        monkeypatch.setattr("wheelcache.flask_backend.function_keys._PROGRAM", process)
        load(thing), load("text")
    assert computed == [thing, "text", thing]


@on([pytest.param("flask tiered", marks=needs("near_cache"))])
@pytest.mark.parametrize("argument", [WithAddress(), lambda: 1, Named().__repr__, partial(lambda: 1)])
def test_flask_refuses_an_address_where_machines_share_values(site, argument):
    class Shop:
        @site.memoize(60)
        def load(self, value):
            return 1

    for value in (argument, [argument], {"a": (argument,)}, {argument: "a"}):
        with pytest.raises(
            TypeError, match=r"an argument of .*Shop.load has no text that is the same in every process"
        ):
            Shop().load(value)
    assert [Shop().load(value) for value in (Named(), [Named()], len, Named, partial(int, base=8))] == [1] * 5


# Loading.


@on(SHARING)
def test_a_value_is_computed_once_for_all_callers_that_miss_it_together(site, in_thread):
    computed = []

    @site.memoize(60)
    def load(key):
        # All others wait.
        until_waiting(THREADS - 1)
        computed.append(key)
        return [key]

    calls = [in_thread(site.anywhere(load), "a") for _ in range(THREADS)]
    values = [call.result(PATIENCE) for call in calls]
    assert values == [["a"]] * THREADS
    # No two callers share an object.
    assert len(set(map(id, values))) == THREADS
    assert computed == ["a"]
    assert site.engine().stats().loads == 1


@on(SHARING)
@pytest.mark.parametrize("args", [(), ("a",)], ids=["all", "one"])
def test_a_deletion_reaches_a_value_that_is_being_computed(site, in_thread, args):
    numbers, delete = count(), site.delete if args else site.clear

    @site.memoize(60)
    def load(key):
        number = next(numbers)
        if not number:
            in_thread(delete, load, *args).result(PATIENCE)
        return number

    assert [load("a") for _ in range(3)] == [0, 1, 1]


def test_async_functions_are_awaited(site):
    computed = []

    @site.memoize(60)
    async def load(key, b=2):
        computed.append(key)
        await asyncio.sleep(0)
        return [key]

    async def main():
        assert await load("a") == await load("a", 2) == await load(key="a") == ["a"]
        site.delete(load, "a")
        assert await load("a") == ["a"]

    asyncio.run(main())
    assert computed == ["a", "a"]


async def awaited_once(key):
    return key


def wrapper(function):
    return lambda key: function(key)


@pytest.mark.pairs(full="site", of="site")
@pytest.mark.parametrize("timeout", [60, -1])
def test_a_function_that_only_returns_coroutines_is_an_error(site, timeout):
    load = site.memoize(timeout)(wrapper(awaited_once))

    async def main():
        load("a")

    for _ in range(2):
        with pytest.raises(TypeError, match=r"<coroutine object awaited_once at .* memoize a function"):
            load("a")
        with pytest.raises(TypeError, match=r"<coroutine object awaited_once at .* memoize a function"):
            asyncio.run(main())


@on(SHARING)
def test_tasks_that_miss_a_value_together_share_its_computation(site):
    computed = []

    @site.memoize(60)
    async def load(key):
        computed.append(key)
        await auntil_waiting(7)
        return [key]

    async def main():
        return await asyncio.gather(*(load("a") for _ in range(8)))

    assert asyncio.run(main()) == [["a"]] * 8
    assert computed == ["a"]
    assert site.engine().stats().loads == 1


# Tags.


@on(WITH_TAGS)
def test_values_leave_with_their_tags(site):
    called = []

    @site.memoize(60, tags=lambda user, **options: [f"user:{user}", "notes", *options])
    def note(user, **options):
        called.append(user)
        return user

    @site.memoize(60, tags=("notes",))
    def total():
        called.append("total")
        return "total"

    def computed():
        called.clear()
        note(1), note(2), note(3, long=True), total()
        return called[:]

    everything = [1, 2, 3, "total"]
    assert computed() == everything
    for tags, dropped in (((), []), (["user:1"], [1]), (["long", "never used"], [3]), (["notes"], everything)):
        site.delete_tags(*tags)
        assert [computed(), computed()] == [dropped, []]


@on(WITH_TAGS)
@pytest.mark.parametrize("tags", ["a", None, ("",), (7,)])
def test_wrong_tags_are_refused_where_a_function_is_decorated(site, tags):
    with pytest.raises((TypeError, ValueError), match="tags must be an iterable of at most 64 non-empty strings"):
        site.memoize(60, tags=tags)
