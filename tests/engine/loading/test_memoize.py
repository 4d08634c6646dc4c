"""``memoize`` of functions and coroutine functions: results by arguments. ``tests/backends`` has the promises that the
frameworks' decorators share."""

import asyncio
import functools
import inspect
import pickle
from types import MethodType

import pytest

from tests.engine.loading.test_read_once import async_generator, generator
from tests.runtime.background import is_idle, until_tasks_end
from tests.waiting import until
from wheelcache import MemoStats
from wheelcache.engine.loading.memoize import Groups

pytestmark = pytest.mark.pairs(full="memoize", of="memoize")


def figures(memoized):
    stats = memoized.cache_stats()
    return stats.hits, stats.misses, stats.calls


class Awaited:
    """A memoized coroutine function that is called as if it were a function."""

    def __init__(self, memoized, runner):
        self.memoized = memoized
        self.runner = runner

    def __call__(self, /, *args, **kwargs):
        return self.runner.run(self.memoized(*args, **kwargs))

    def __getattr__(self, name):
        return getattr(self.memoized, name)


@pytest.fixture(params=["function", "coroutine function"])
def memoize(cache, request):
    """Return ``cache.memoize`` for the function, or for a coroutine function with the same signature."""
    if request.param == "function":
        yield cache.memoize
        return
    with asyncio.Runner() as runner:

        def memoize(**options):
            def decorate(function):
                @functools.wraps(function)
                async def coroutine_function(*args, **kwargs):
                    await asyncio.sleep(0)
                    return function(*args, **kwargs)

                return Awaited(cache.memoize(**options)(coroutine_function), runner)

            return decorate

        yield memoize


# Keys.


def call(*args, **kwargs):
    return args, kwargs


NAMES = ["self", "func", "args", "kwargs", "key", "function", "load", "ttl", "made"]

# A function, and calls of it: those of a list have one value.
CALLS = {
    "defaults": (
        lambda a, b=2, *, c=3, d=4: (a, b, c, d),
        [call(1), call(1, 2), call(a=1), call(b=2, a=1), call(1, c=3), call(d=4, c=3, b=2, a=1), call(1, 2, d=4, c=3)],
        *([call(2)], [call(1, 3)], [call(1, c=4)], [call(1, d=3)]),
    ),
    "all by position": (lambda a, b: (a, b), [call(1, 2), call(1, b=2), call(b=2, a=1)], [call(2, 1)]),
    "positional only": (
        lambda a, /, b, *, c=1, **rest: (a, b, c, rest),
        [call(1, 2), call(1, b=2), call(1, c=1, b=2)],
        *([call(1, b=2, a=5)], [call(1, 2, x=1, y=2), call(1, 2, y=2, x=1)]),
    ),
    "any": (
        lambda *args, **kwargs: (args, kwargs),
        [call(a=1, b=2), call(b=2, a=1)],
        *([call()], [call(1, 2)], [call((1, 2))], [call(1, a=2)]),
        *([call(("a", 1), ("b", 2))], [call((("a", 1), ("b", 2)))]),
    ),
    "a partial": (functools.partial(lambda a, b=2: (a, b), 1), [call(), call(2), call(b=2)], [call(3)]),
    "any by position": (lambda *args: args, [call()], [call(1)], [call(1, 2)], [call((1, 2))]),
    "some and any": (lambda a, *args, b=1: (a, args, b), [call(1), call(1, b=1)], [call(1, 1)], [call(1, (1,))]),
    "names of memoize's own": (
        lambda self, func, args, kwargs, key, function, load, ttl, made: (self, func, args, kwargs, key, ttl, made),
        [call(*range(9)), call(**dict(zip(NAMES, range(9), strict=True)))],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_with_the_same_arguments_have_the_same_value_and_others_do_not(memoize, name):
    function, *groups = CALLS[name]
    memoized = memoize()(function)
    values = []
    for group in groups:
        found = [memoized(*args, **kwargs) for args, kwargs in group]
        args, kwargs = group[0]
        assert all(value is found[0] for value in found)
        assert found[0] == function(*args, **kwargs)
        values.append(found[0])
    assert len({id(value) for value in values}) == len(groups)
    calls = sum(map(len, groups))
    assert figures(memoized) == (calls - len(groups), len(groups), len(groups))
    assert memoized.cache_stats().hit_ratio == 1 - len(groups) / calls
    for group in groups:
        (first, named), (last, last_named) = group[0], group[-1]
        assert memoized.cache_delete(*last, **last_named)
        assert not memoized.cache_delete(*first, **named)


UNHASHABLE = (
    r"the arguments of .*function\(\) cannot be a key \(unhashable type: '(list|dict|set)'\); give memoize a key="
)
MISFIT = r"function\(\): (missing|too many|got an unexpected|multiple values)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((each, UNHASHABLE) for each in (lambda f: f([]), lambda f: f(1, b={}), lambda f: f(1, set()))),
        *((each, MISFIT) for each in (lambda f: f(), lambda f: f(1, 2, 3), lambda f: f(1, z=1), lambda f: f(1, a=1))),
    ],
)
def test_arguments_that_cannot_be_a_key_or_do_not_fit_are_an_error_that_names_the_function(
    cache, memoize, call, message
):
    def function(a, b=1):
        return 1

    memoized = memoize()(function)
    for wrong in (memoized, memoized.cache_delete):
        with pytest.raises(TypeError, match=message):
            call(wrong)
    assert len(cache) == 0


def test_a_key_function_makes_the_key_of_what_matters(memoize):
    page = memoize(key=lambda request, *, verbose=False: request["user"])(lambda request, *, verbose=False: object())
    other = memoize(key=lambda x: x)(lambda x: "other")
    assert page({"user": 1, "trace": 1}) is page({"user": 1, "trace": 2}, verbose=True)
    assert other(1) == "other"
    assert page.cache_delete({"user": 1})
    assert (page.cache_clear(), other.cache_clear()) == (0, 1)


# Functions that can be memoized.


class Service:
    """A class with memoized methods, in the body of which ``pickle`` finds them."""

    def __init__(self, factor=1):
        self.factor = factor

    def price(self, item, tax=0):
        """Return a price."""
        return self.factor * (item + tax)

    async def stock(self, item):
        return item


@pytest.fixture
def service(cache, monkeypatch):
    for name in ("price", "stock"):
        monkeypatch.setattr(Service, name, cache.memoize()(vars(Service)[name]))
    return Service


def test_methods_are_cached_by_instance_and_arguments(service):
    first, second = service(1), service(2)
    assert [first.price(5), second.price(5), first.price(item=5, tax=0), second.price(5)] == [5, 10, 5, 10]
    assert figures(service.price) == (2, 2, 2)
    assert service.price.cache_delete(first, 5)
    assert second.price.cache_delete(item=5)
    assert not first.price.cache_delete(5)
    assert second.price.uncached(5) == 10
    assert second.price.cache_clear() == 0
    assert second.price.cache_stats() == service.price.cache_stats()


def test_a_memoized_method_of_an_object_has_what_other_bound_methods_have(service):
    item = service(3)
    price, plain = item.price, MethodType(service.price.uncached, item)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__self__"):
        assert getattr(price, name) == getattr(plain, name)
    assert inspect.signature(price) == inspect.signature(plain)
    assert repr(price).startswith("<bound method Service.price of <")
    assert {price, item.price} == {price}
    assert service(3).price != price != plain
    assert pickle.loads(pickle.dumps(price))(5) == 15
    assert pickle.loads(pickle.dumps(service.price)) is service.price
    assert type("Shop", (), {"price": price})().price is price


def test_objects_that_are_compared_by_identity_are_reported_once_per_method(cache, caplog):
    class View:
        @cache.memoize()
        def body(self, page):
            return [page]

        @cache.memoize(key=lambda self, page: page)
        def head(self, page):
            return [page]

        @classmethod
        @cache.memoize()
        def of_class(cls, page):
            return [page]

    views = [View() for _ in range(10)]
    for view in views[:9]:
        for _ in range(2):
            view.body(1), view.head(1), view.of_class(view)
    assert caplog.messages == [], "there are nine"
    for _ in range(2):
        views[9].body(1), views[0].body(2)
    assert figures(View.head) == (17, 1, 1)
    (line,) = caplog.messages
    assert line.startswith(f"The results of {__name__}.{View.body.__qualname__}() are kept for each of many objects")
    assert "Give memoize a key=" in line


def test_classmethods_staticmethods_and_properties_are_memoized_below_their_decorators(cache):
    class Base:
        @classmethod
        @cache.memoize()
        def name(cls, suffix=""):
            return cls.__name__ + suffix

        @staticmethod
        @cache.memoize()
        def double(x):
            return 2 * x

        @property
        @cache.memoize()
        def of_property(self):
            return object()

    class Derived(Base):
        pass

    found = [Base.name(), Derived.name(), Derived.name(""), Derived().name(suffix="!")]
    assert found == ["Base", "Derived", "Derived", "Derived!"]
    assert [Base.double(2), Derived.double(x=2), Derived().double(2)] == [4, 4, 4]
    assert (figures(Base.name), figures(Base.double)) == ((1, 3, 3), (2, 1, 1))
    assert (base := Base()).of_property is base.of_property


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        *((above(len), "decorate a function, below any other decorators") for above in (classmethod, staticmethod)),
        *((thing, "memoize must decorate a function, below any other decorators, not") for thing in (property(len), 5)),
        (generator, "with reusable results, not the generator"),
        (async_generator, "with reusable results, not the generator"),
        (max, "give memoize a key="),
    ],
)
def test_what_cannot_be_memoized_is_refused(cache, thing, message):
    with pytest.raises(TypeError, match=message):
        cache.memoize()(thing)
    assert cache.memoize(key=lambda *numbers: numbers)(max)(1, 3, 2) == 3
    with pytest.raises(TypeError, match="key must be"):
        cache.memoize(key=5)


def test_the_function_keeps_its_name_its_doc_and_its_signature_and_can_be_called_uncached(cache):
    def add(a: int, b: int = 1) -> int:
        """The sum."""
        return a + b

    add.mark = "kept"
    memoized = cache.memoize()(add)
    assert (memoized.__name__, memoized.__doc__, memoized.__module__) == ("add", "The sum.", __name__)
    assert memoized.__wrapped__ is memoized.uncached is add
    assert inspect.signature(memoized) == inspect.signature(add)
    assert memoized.mark == "kept"
    assert memoized.uncached(1) == 2
    assert len(cache) == 0
    assert memoized.cache_stats() == MemoStats(hits=0, misses=0, hit_ratio=0.0, calls=0)


# Values.


def test_grace_and_refresh_ahead_are_as_for_take_and_a_stale_hit_is_a_hit(cache, clock, memoize):
    memoized = memoize(grace=5, refresh_ahead=0.5)(lambda: clock())
    found = []
    for seconds in (0, 6, 0, 10, 0):
        clock.advance(seconds)
        found.append(memoized())
        if isinstance(memoized, Awaited):
            memoized.runner.run(until_tasks_end())
        assert until(is_idle)
    assert found == [0, 0, 6, 6, 16]
    assert figures(memoized) == (4, 1, 3)
    assert (cache.stats().hits + cache.stats().stale_hits, cache.stats().misses) == (4, 1)


def test_keys_of_functions_whose_names_may_differ_between_processes_are_not_portable():
    groups = Groups()
    names = [groups.add(name) for name in ("f()", "f()", "g()", "<locals>.h()")]
    assert names == ["f()", "f()#2", "g()", "<locals>.h()"]
    portable = [groups.is_portable((name, 1)) for name in (*names, "<other>")]
    assert portable == [False, False, True, False, True]
    assert groups.is_portable("f()")
