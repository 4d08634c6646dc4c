"""memoize: what a function returned, by its arguments."""

import asyncio
import functools
import gc
import inspect
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.engine import invariants
from tests.runtime.background import is_idle
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import Cache, LoadTimeout, MemoStats


@pytest.fixture
def cache(clock):
    made = Cache(clock=clock, ttl=10, jitter=0, log_interval=None, sample_interval=None)
    yield made
    invariants.check(made)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as made:
        yield made


def figures(memoized):
    stats = memoized.cache_stats()
    return stats.hits, stats.misses, stats.calls


# What can be memoized.


def test_a_function_is_called_once_for_the_same_arguments(cache):
    calls = []

    @cache.memoize()
    def add(a, b):
        calls.append((a, b))
        return a + b

    assert [add(1, 2), add(1, 2), add(2, 1)] == [3, 3, 3]
    assert calls == [(1, 2), (2, 1)]
    assert add.cache_stats() == MemoStats(hits=1, misses=2, hit_ratio=1 / 3, calls=2)


def test_a_coroutine_function_stays_one(cache):
    @cache.memoize(ttl=5)
    async def add(a, b=1):
        await asyncio.sleep(0)
        return a + b

    assert inspect.iscoroutinefunction(add)
    assert asyncio.iscoroutinefunction(add)

    async def main():
        return [await add(1), await add(a=1, b=1), await add(2)]

    assert asyncio.run(main()) == [2, 2, 3]
    assert figures(add) == (1, 2, 2)


def test_methods_are_cached_by_instance_and_arguments(cache):
    class Shop:
        def __init__(self, factor):
            self.factor = factor

        @cache.memoize()
        def price(self, item, tax=0):
            return self.factor * (item + tax)

    first, second = Shop(1), Shop(2)
    assert [first.price(5), second.price(5), first.price(item=5, tax=0), second.price(5)] == [5, 10, 5, 10]
    assert figures(Shop.price) == (2, 2, 2)
    assert Shop.price.cache_delete(first, 5)
    assert first.price.cache_delete(second, 5)
    assert not Shop.price.cache_delete(first, 5)


def test_instances_that_are_equal_share_values_and_others_do_not(cache):
    @dataclass(frozen=True)
    class Point:
        x: int

        @cache.memoize()
        def doubled(self):
            return Point(2 * self.x)

    assert Point(1).doubled() is Point(1).doubled()
    assert Point(2).doubled() == Point(4)
    assert figures(Point.doubled) == (1, 2, 2)


def test_an_instance_lives_as_long_as_its_entry_and_no_longer(cache, clock):
    class Shop:
        @cache.memoize()
        def price(self):
            return 1

    shop = Shop()
    shop.price()
    reference = weakref.ref(shop)
    del shop
    gc.collect()
    assert reference() is not None
    clock.advance(10)
    gc.collect()
    assert reference() is None


def test_classmethods_and_staticmethods_are_memoized_below_their_decorators(cache):
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

    assert [Base.name(), Derived.name(), Derived.name(""), Derived().name(suffix="!")] == [
        "Base",
        "Derived",
        "Derived",
        "Derived!",
    ]
    assert Base.name.cache_stats().hits == 1
    assert [Base.double(2), Derived.double(x=2), Derived().double(2)] == [4, 4, 4]
    assert Base.double.cache_stats().calls == 1
    base = Base()
    assert base.of_property is base.of_property


@pytest.mark.parametrize("above", [classmethod, staticmethod, property])
def test_above_other_decorators_it_is_refused(cache, above):
    with pytest.raises(TypeError, match="memoize takes a function, and goes below other decorators, not <"):
        cache.memoize()(above(lambda: 1))


def test_what_is_read_only_once_is_refused(cache):
    def generator():
        yield 1

    async def async_generator():
        yield 1

    for function in (generator, async_generator, functools.partial(generator)):
        with pytest.raises(TypeError, match="results can be read again, not the generator"):
            cache.memoize()(function)

    async def work():
        return 1

    returned = []

    @cache.memoize()
    def returns_a_coroutine():
        returned.append(work())
        return returned[-1]

    for function in (cache.memoize()(lambda: generator()), returns_a_coroutine):
        with pytest.raises(TypeError, match="returns what can be read only once, and is no coroutine function"):
            function()
    for coroutine in returned:
        coroutine.close()
    assert len(cache) == 0


@pytest.mark.parametrize("thing", [5, "f", None, object()])
def test_what_cannot_be_called_is_refused(cache, thing):
    with pytest.raises(TypeError, match="memoize takes a function"):
        cache.memoize()(thing)


def test_without_parentheses_it_says_what_is_wrong(cache):
    with pytest.raises(
        TypeError, match=r"memoize is called before it decorates: @cache.memoize\(\), not @cache.memoize on <function"
    ):

        @cache.memoize
        def function():
            pass


@pytest.mark.parametrize("options", [{"ttl": -1}, {"grace": 0}, {"timeout": "1"}, {"key": 5}, {"refresh_ahead": 2}])
def test_wrong_options_are_errors_when_the_function_is_decorated(cache, options):
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(options))} must be"):
        cache.memoize(**options)
    with pytest.raises(TypeError, match="fail_safe needs grace"):
        cache.memoize(fail_safe=True)


def test_the_function_keeps_its_name_its_doc_and_its_signature(cache):
    def add(a: int, b: int = 1) -> int:
        """The sum."""
        return a + b

    add.mark = "kept"
    memoized = cache.memoize()(add)
    assert (memoized.__name__, memoized.__doc__, memoized.__module__) == ("add", "The sum.", __name__)
    assert memoized.__wrapped__ is memoized.uncached is add
    assert inspect.signature(memoized) == inspect.signature(add)
    assert memoized.mark == "kept"


def test_uncached_neither_looks_nor_stores(cache):
    calls = []
    memoized = cache.memoize()(lambda x: calls.append(x))
    memoized.uncached(1)
    memoized.uncached(1)
    assert calls == [1, 1]
    assert len(cache) == 0
    assert figures(memoized) == (0, 0, 0)


def test_partials_and_objects_that_can_be_called_are_memoized_apart(cache):
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return self.n + x

    one, two = (cache.memoize()(Adder(n)) for n in (1, 2))
    three, four = (cache.memoize()(functools.partial(lambda n, x: n + x, n)) for n in (3, 4))
    assert [f(10) for f in (one, two, three, four)] == [11, 12, 13, 14]
    assert [f(10) for f in (one, two, three, four)] == [11, 12, 13, 14]
    length = cache.memoize()(len)
    assert (length("abc"), length("abc")) == (3, 3)


def test_a_class_may_be_memoized(cache):
    @cache.memoize()
    class Singleton:
        def __init__(self, name):
            self.name = name

    assert Singleton("a") is Singleton(name="a")
    assert Singleton("a") is not Singleton("b")


# Keys.


def test_names_order_and_defaults_make_no_other_key(cache):
    @cache.memoize()
    def function(a, b=2, *, c=3, d=4):
        return object()

    first = function(1)
    for same in (
        function(1, 2),
        function(a=1),
        function(b=2, a=1),
        function(1, c=3),
        function(d=4, c=3, b=2, a=1),
        function(1, 2, d=4, c=3),
    ):
        assert same is first
    for other in (function(2), function(1, 3), function(1, c=4), function(1, d=3)):
        assert other is not first
    assert function.cache_delete(d=4, a=1)
    assert function(1) is not first


def test_positional_only_arguments(cache):
    @cache.memoize()
    def function(a, /, b, *, c=1, **rest):
        return a, b, c, rest

    assert function(1, 2) == (1, 2, 1, {})
    assert function(1, b=2) == (1, 2, 1, {})
    assert function(1, b=2, a=5) == (1, 2, 1, {"a": 5})
    assert figures(function) == (1, 2, 2)


def test_varargs_and_keywords(cache):
    @cache.memoize()
    def function(*args, **kwargs):
        return args, kwargs

    assert function() == ((), {})
    assert function(1, 2) == ((1, 2), {})
    assert function((1, 2)) == (((1, 2),), {})
    assert function(a=1, b=2) == function(b=2, a=1) == ((), {"a": 1, "b": 2})
    assert function(("a", 1), ("b", 2)) == ((("a", 1), ("b", 2)), {})
    assert function((("a", 1), ("b", 2))) == (((("a", 1), ("b", 2)),), {})
    assert function(1, a=2) != function(1, 2)
    assert figures(function) == (2, 7, 7)


def test_arguments_called_like_the_parts_of_memoize(cache):
    @cache.memoize()
    def function(self, func, args, kwargs, key, function, load, ttl, made):
        return self, func, args, kwargs, key, function, load, ttl, made

    names = ["self", "func", "args", "kwargs", "key", "function", "load", "ttl", "made"]
    named = dict(zip(names, range(9), strict=True))
    assert function(**named) == function(*range(9)) == tuple(range(9))
    assert function.cache_delete(**named)


def test_functions_of_the_same_name_are_kept_apart(cache):
    def make(n):
        @cache.memoize()
        def function(x):
            return n * x

        return function

    one, two = make(1), make(2)
    first, second = cache.memoize()(lambda x: ("first", x)), cache.memoize()(lambda x: ("second", x))
    assert [one(5), two(5), one(5), two(5)] == [5, 10, 5, 10]
    assert [first(5), second(5)] == [("first", 5), ("second", 5)]
    assert one.cache_clear() == 1
    assert one.cache_stats().calls == 1
    two(5)
    assert two.cache_stats().calls == 1


def test_two_caches_share_nothing(clock):
    def function(x):
        return object()

    caches = [Cache(clock=clock, log_interval=None, sample_interval=None) for _ in range(2)]
    first, second = (cache.memoize()(function) for cache in caches)
    assert first(1) is first(1)
    assert first(1) is not second(1)
    assert first.cache_clear() == 1
    assert [len(cache) for cache in caches] == [0, 1]


def test_values_that_others_set_are_not_mistaken_for_the_functions(cache):
    @cache.memoize()
    def function(x):
        return "computed"

    cache.set(1, "set")
    cache.set((1,), "set")
    assert function(1) == "computed"
    function.cache_clear()
    assert cache.get(1) == cache.get((1,)) == "set"


@pytest.mark.parametrize("call", [lambda f: f([]), lambda f: f(1, x={}), lambda f: f(1, *[set()])])
def test_arguments_that_cannot_be_hashed_are_a_clear_error(cache, call):
    def function(a, *args, **kwargs):
        return 1

    async def coroutine(a, *args, **kwargs):
        return 1

    clear = r"the arguments of .*\(\) make no key \(unhashable type: '(list|dict|set)'\); give memoize a key="
    memoized = cache.memoize()(function)
    with pytest.raises(TypeError, match=clear):
        call(memoized)
    with pytest.raises(TypeError, match=clear):
        call(memoized.cache_delete)
    with pytest.raises(TypeError, match=clear):
        asyncio.run(call(cache.memoize()(coroutine)))
    assert len(cache) == 0


def test_a_type_error_of_the_function_stays_what_it_is(cache):
    error = TypeError("mine")

    @cache.memoize()
    def function():
        raise error

    with pytest.raises(TypeError) as caught:
        function()
    assert caught.value is error


@pytest.mark.parametrize("call", [lambda f: f(), lambda f: f(1, 2, 3), lambda f: f(1, z=1), lambda f: f(1, a=1)])
def test_calls_that_do_not_fit_the_function_say_so_and_name_it(cache, call):
    @cache.memoize()
    def function(a, b=1):
        return 1

    with pytest.raises(TypeError, match=r"function\(\): (missing|too many|got an unexpected|multiple values)"):
        call(function)
    assert len(cache) == 0


def test_a_default_that_is_equal_to_everything_is_a_default(cache):
    class EqualToAll:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    equal_to_all = EqualToAll()
    function = cache.memoize()(lambda x, y=equal_to_all: x)
    assert [function(1), function(1, EqualToAll())] == [1, 1]
    assert figures(function) == (1, 1, 1)


def test_a_key_function_makes_the_key_of_what_matters(cache):
    calls = []

    @cache.memoize(key=lambda request, *, verbose=False: request["user"])
    def page(request, *, verbose=False):
        calls.append(request)
        return f"page of {request['user']}"

    @cache.memoize(key=lambda x: x)
    def other(x):
        return "other"

    assert page({"user": 1, "trace": 1}) == page({"user": 1, "trace": 2}, verbose=True) == "page of 1"
    assert other(1) == "other"
    assert len(calls) == 1
    assert page.cache_delete({"user": 1})
    assert page.cache_clear() == 0
    assert other.cache_clear() == 1


def test_arguments_with_an_equality_of_their_own(cache):
    class Name:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return isinstance(other, Name) and self.name.lower() == other.name.lower()

        def __hash__(self):
            return hash(self.name.lower())

    @cache.memoize()
    def function(name, times=1):
        return name.name

    assert function(Name("a")) == function(Name("A")) == function(name=Name("A"), times=1) == "a"
    assert function(Name("b")) == "b"
    assert function.cache_delete(Name("A"))
    assert function.cache_clear() == 1
    assert figures(function) == (2, 2, 2)


def test_an_argument_may_use_the_cache_when_it_is_compared(cache):
    class Hostile:
        def __eq__(self, other):
            cache.set("x", cache.take("y", lambda: 1))
            return True

        def __hash__(self):
            cache.get("x")
            return 1

    @cache.memoize()
    def function(hostile):
        return cache.get("x")

    function(Hostile())
    function(Hostile())
    assert figures(function) == (1, 1, 1)


# Values.


def test_none_is_a_value_like_any_other_unless_it_has_a_ttl_of_its_own(cache, clock):
    calls = []

    @cache.memoize()
    def function():
        calls.append("function")

    @cache.memoize(negative_ttl=2)
    def negative():
        calls.append("negative")

    for _ in range(3):
        assert function() is None
        assert negative() is None
    assert calls == ["function", "negative"]
    clock.advance(2)
    function()
    negative()
    assert calls == ["function", "negative", "negative"]


def test_exceptions_are_not_kept(cache):
    errors = [LookupError("first"), LookupError("second")]

    @cache.memoize()
    def function():
        if errors:
            raise errors.pop(0)
        return "value"

    for message in ("first", "second"):
        with pytest.raises(LookupError, match=message):
            function()
    assert function() == "value"
    assert figures(function) == (0, 3, 3)


def test_a_value_lasts_for_its_ttl(cache, clock):
    @cache.memoize(ttl=3)
    def function():
        return clock()

    @cache.memoize()
    def by_the_caches_own():
        return clock()

    assert (function(), by_the_caches_own()) == (0, 0)
    clock.advance(3)
    assert (function(), by_the_caches_own()) == (3, 0)
    clock.advance(7)
    assert by_the_caches_own() == 10


def test_grace_and_refresh_ahead_are_as_for_take(cache, clock):
    @cache.memoize(grace=5, refresh_ahead=0.5)
    def function():
        return clock()

    assert function() == 0
    clock.advance(6)
    assert function() == 0
    assert until(lambda: cache.get(*cache.keys()) == 6)
    assert until(is_idle)
    assert figures(function) == (1, 1, 2)
    clock.advance(10)
    assert function() == 6
    assert until(is_idle)
    assert function() == 16


def test_a_timeout_is_as_for_take(cache):
    go = threading.Event()

    @cache.memoize(timeout=0.02)
    def function():
        assert go.wait(PATIENCE)
        return 1

    with pytest.raises(LoadTimeout):
        function()
    go.set()
    assert until(is_idle)
    assert function() == 1
    assert figures(function) == (1, 1, 1)


def test_fail_safe_is_as_for_take(cache, clock, caplog):
    results = ["new", LookupError(), "old"]

    @cache.memoize(grace=50, fail_safe=True)
    def function():
        result = results.pop()
        if isinstance(result, Exception):
            raise result
        return result

    assert function() == "old"
    for _ in range(2):
        clock.advance(10)
        assert function() == "old"
        assert until(is_idle)
    assert function() == "new"
    assert caplog.text.count("failed; the next refresh") == 1


def test_a_stampede_of_threads_is_one_call(cache, together):
    both = threading.Barrier(2)

    @cache.memoize()
    def function(x):
        both.wait(PATIENCE)
        return object()

    def let_go():
        until_waiting(31)
        both.wait(PATIENCE)

    opener = threading.Thread(target=let_go)
    opener.start()
    values = together(lambda _: function(1))
    opener.join()
    assert all(value is values[0] for value in values)
    assert figures(function) == (0, 32, 1)


def test_a_stampede_of_tasks_is_one_call(cache):
    async def main():
        go = asyncio.Event()

        @cache.memoize()
        async def function(x):
            await go.wait()
            return object()

        tasks = [asyncio.create_task(function(1)) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        values = await asyncio.gather(*tasks)
        assert all(value is values[0] for value in values)
        return figures(function)

    assert asyncio.run(main()) == (0, 50, 1)


def test_recursion(cache):
    @cache.memoize()
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @cache.memoize()
    async def afibonacci(n):
        return n if n < 2 else await afibonacci(n - 1) + await afibonacci(n - 2)

    assert fibonacci(60) == asyncio.run(afibonacci(60)) == 1548008755920
    assert fibonacci.cache_stats().calls == afibonacci.cache_stats().calls == 61


def test_recursion_that_ends_in_an_error_leaves_nothing_that_waits(cache):
    is_endless = True

    @cache.memoize()
    def function(n):
        return function(n + 1) if is_endless else n

    for _ in range(2):
        with pytest.raises(RecursionError):
            function(0)
    assert len(cache) == 0
    is_endless = False
    assert [function(n) for n in range(1000)] == list(range(1000))


# Forgetting.


def test_cache_clear_forgets_this_functions_values_and_no_others(cache):
    @cache.memoize()
    def first(x):
        return x

    @cache.memoize()
    def second(x):
        return x

    for i in range(5):
        first(i)
        second(i)
    cache.set("mine", 1)
    assert first.cache_clear() == 5
    assert first.cache_clear() == 0
    assert len(cache) == 6
    second(1)
    assert figures(second) == (1, 5, 5)


@pytest.mark.parametrize("forget", [lambda f: f.cache_clear(), lambda f: f.cache_delete(1)], ids=["clear", "delete"])
def test_what_is_computed_while_it_is_forgotten_is_not_stored(cache, pool, forget):
    began, go = threading.Event(), threading.Event()

    @cache.memoize()
    def function(x):
        began.set()
        assert go.wait(PATIENCE)
        return object()

    first = pool.submit(function, 1)
    assert began.wait(PATIENCE)
    assert not forget(function)
    late = pool.submit(function, 1)
    until_waiting()
    go.set()
    assert first.result(PATIENCE) is not late.result(PATIENCE)
    assert function(1) is late.result()


def test_what_tasks_compute_while_it_is_forgotten_is_not_stored(cache):
    async def main():
        go = asyncio.Event()

        @cache.memoize()
        async def function(x):
            await go.wait()
            return object()

        first = asyncio.create_task(function(1))
        await asyncio.sleep(0)
        function.cache_clear()
        go.set()
        assert await function(1) is not await first

    asyncio.run(main())


def test_a_load_that_ends_in_the_middle_of_a_clearing_is_forgotten_too(cache, pool):
    began, go = threading.Semaphore(0), threading.Semaphore(0)

    @cache.memoize()
    def function(x):
        began.release()
        assert go.acquire(timeout=PATIENCE)
        return "old"

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(500):
            load = pool.submit(function, 1)
            assert began.acquire(timeout=PATIENCE)
            go.release()
            function.cache_clear()
            load.result(PATIENCE)
            assert len(cache) == 0
    finally:
        sys.setswitchinterval(before)


def test_the_figures_are_exact_under_many_threads(cache, together):
    @cache.memoize()
    def function(x):
        return x

    together(lambda number: [function(i % 50) for i in range(1000)])
    stats = function.cache_stats()
    assert stats.hits + stats.misses == 32_000
    assert stats.calls == 50
    assert stats.hit_ratio == stats.hits / 32_000
    assert cache.stats().hits == stats.hits


def test_there_is_no_ratio_without_calls(cache):
    assert cache.memoize()(len).cache_stats() == MemoStats(hits=0, misses=0, hit_ratio=0.0, calls=0)


def test_a_stale_hit_is_a_hit_of_the_function_too(cache, clock):
    @cache.memoize(grace=5)
    def function():
        return 1

    function()
    clock.advance(10)
    function()
    assert until(is_idle)
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (1, 1)
    assert figures(function) == (1, 1, 2)


def test_an_object_whose_call_is_a_coroutine_function_is_one(cache):
    class Doubles:
        calls = 0

        async def __call__(self, number):
            self.calls += 1
            return 2 * number

    doubles = Doubles()
    memoized = cache.memoize()(doubles)

    async def twice():
        return await memoized(3), await memoized(3)

    assert asyncio.run(twice()) == (6, 6)
    assert doubles.calls == 1


def test_what_has_no_signature_needs_a_key(cache):
    with pytest.raises(TypeError, match="give memoize a key="):
        cache.memoize()(max)
    assert cache.memoize(key=lambda *numbers: numbers)(max)(1, 3, 2) == 3
