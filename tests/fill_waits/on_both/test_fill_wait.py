"""fill_wait: which calls take, fill and give up a lease, and which keys are waited for. Leases are the engine's."""

from fractions import Fraction
from types import MappingProxyType

import pytest

from tests.backends.on_django import OnDjango
from tests.caches import is_leased
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache.runtime.request_scope import end_request

LONG = 1000
"""Seconds of a fill_wait that ends after any test: a result within PATIENCE did not wait for it."""

SHORT = 0.05
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def cache(make):
    return make(fill_wait=LONG)


def leased(cache, *keys):
    """Return the keys that the running thread must fill."""
    return [key for key in keys if is_leased(cache.engine, cache.key(key))]


TAKES = "a number of seconds >= 0, or a dict of 'pages', 'fragments' and key prefixes (strings) to such numbers"

# Wrong values, and the part that the error shows: the number, for a dict with a wrong number.
WRONG = [
    *((wrong, wrong) for wrong in (-1, "5", None, True, False, NAN, INF, 10**400, [5])),
    *(({"right": 5, "wrong": wrong}, wrong) for wrong in (-1, None, True, {}, INF)),
    *((wrong, wrong) for wrong in ({1: 5}, {"a": 5, ("b",): 5})),
]


@pytest.mark.parametrize("option", ["fill_wait", "grace"])
def test_a_wrong_number_of_seconds_is_an_error_that_names_the_option_what_it_takes_and_got(adapter, option):
    for wrong, shown in WRONG:
        with pytest.raises(adapter.refused) as refused:
            adapter.make(**{"fill_wait": 5, option: wrong})
        for part in (adapter.spelled(option), TAKES, f"not {repr(shown)[:200]}"):
            assert part in str(refused.value)


@pytest.mark.parametrize("off", [0, {}, {"": 0, "key": 0.0}, {"pages": 0, "fragments": 0}])
def test_without_fill_wait_no_caller_has_a_lease(make, off):
    cache = make(fill_wait=off)
    for key in ("key", "views.decorators.cache.cache_page", "view/", "template.cache.", "_template_fragment_cache_"):
        assert cache.get(key) is None
        assert leased(cache, key) == []


@pytest.mark.parametrize("waits", [0.5, Fraction(1, 3), {"k": 5}, MappingProxyType({"key": 5, "k": 0})], ids=str)
def test_any_real_number_and_any_mapping_is_taken(make, waits):
    cache = make(fill_wait=waits)
    cache.get("key")
    assert leased(cache, "key") == ["key"]


def test_of_the_prefixes_of_a_key_the_longest_says_how_long_is_waited(make, in_thread, clock):
    cache = make(fill_wait={"": 0, "page:": LONG, "page:short:": SHORT, "page:short:never:": 0})
    waits = {"other": 0, "page:short:never:one": 0, "page:short:one": SHORT, "page:one": LONG}
    for key in waits:
        cache.get(key)
    for key, wait in waits.items():
        asking = in_thread(cache.get, key)
        if wait:
            until_waiting()
            clock.advance(SHORT)
        if wait == LONG:
            assert waiting() == 1
            cache.set(key, "value")
        assert asking.result(PATIENCE) == ("value" if wait == LONG else None)


def test_by_default_callers_wait_for_pages_and_fragments_and_for_no_other_key(adapter, in_thread):
    of_django = ("views.decorators.cache.cache_header..en-us.UTC", "template.cache.name.1")
    of_flask = ("view//a", "_template_fragment_cache_name")
    waited_for = of_django if issubclass(adapter, OnDjango) else of_flask
    cache = adapter.make()
    for key in (*of_django, *of_flask, "maintenance"):
        assert cache.get(key) is None
        assert leased(cache, key) == ([key] if key in waited_for else [])
    waiter = in_thread(cache.get, waited_for[0])
    until_waiting()
    cache.set(waited_for[0], "value")
    assert waiter.result(PATIENCE) == "value"


FILLS = {
    "set": lambda cache: cache.set("key", [1]),
    "set that soon expires": lambda cache: cache.set("key", [1], 0.001),
    "add": lambda cache: cache.add("key", [1]),
    "set_many": lambda cache: cache.set_many({"other": 1, "key": [1]}),
    "load": lambda cache: cache.load("key", lambda: [1]),
}


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("by_another", [False, True], ids=["by holder", "by another"])
def test_all_waiters_get_what_is_set_each_its_own(cache, in_thread, fill, by_another):
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(2)]
    until_waiting(2)
    if by_another:
        in_thread(fill, cache).result(PATIENCE)
    else:
        fill(cache)
    values = [waiter.result(PATIENCE) for waiter in waiters]
    assert values == [[1], [1]]
    assert values[0] is not values[1]
    assert leased(cache, "key") == []


@pytest.mark.parametrize("value", [None, [], "x" * 3000], ids=["none", "empty", "too big"])
def test_a_none_and_a_value_that_is_too_big_are_values_for_waiters(make, in_thread, value):
    cache = make(fill_wait=LONG, max_bytes=2000)
    cache.get("key")
    waiter = in_thread(lambda: (cache.get("key"), leased(cache, "key")))
    until_waiting()
    cache.set("key", value)
    assert waiter.result(PATIENCE) == (value, [])
    if not value:
        # A hit takes no lease.
        assert cache.get("key") == value
        assert cache.has("key")
        assert leased(cache, "key") == []


def test_a_later_set_by_a_caller_that_waited_is_no_computation(cache, in_thread):
    cache.get("key")
    waiter = in_thread(lambda: (cache.get("key"), cache.set("key", "changed")))
    until_waiting()
    cache.set("key", "computed")
    assert waiter.result(PATIENCE) == ("computed", None)
    assert cache.engine.stats().loads == 1


GIVES_UP = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["other", "key"]),
    "set that is over at once": lambda cache: cache.set("key", 1, -1),
    "add that is over at once": lambda cache: cache.add("key", 1, -1),
    "set_many that is over at once": lambda cache: cache.set_many({"key": 1}, -1),
    "touch that is over at once": lambda cache: (
        cache.touch("key", 0) if hasattr(cache, "touch") else cache.delete("key")
    ),
    "the end of the request": lambda cache: end_request(),
}


@pytest.mark.pairs(full="adapter", of="adapter")
@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_when_the_holder_gives_up_one_of_the_waiters_goes_on(cache, in_thread, give_up):
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(2)]
    until_waiting(2)
    # Another caller cannot give it up.
    in_thread(give_up, cache).result(PATIENCE)
    assert waiting() == 2
    give_up(cache)
    until_waiting(1)
    assert until(lambda: any(waiter.done() for waiter in waiters))
    cache.set("key", "filled")
    assert sorted(str(waiter.result(PATIENCE)) for waiter in waiters) == ["None", "filled"]


def test_a_value_that_is_outdated_when_it_is_set_ends_the_lease(cache, in_thread):
    assert cache.get("k") is None
    waiter = in_thread(cache.get, "k", "computes it now")
    until_waiting()
    in_thread(cache.backend.delete_tags, "a").result(PATIENCE)
    cache.backend.set("k", "outdated", tags=["a"])
    still_leased = leased(cache, "k")
    # If the lease had not ended, the waiter would wait for its end.
    end_request()
    assert waiter.result(PATIENCE) == "computes it now"
    assert not still_leased


ASKS = {
    "has": lambda cache: cache.has("key"),
    "get_many": lambda cache: cache.get_many(["key", "other"]),
    "add": lambda cache: cache.add("key", 1),
    "set_many": lambda cache: cache.set_many({"key": 1}),
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "load": lambda cache: cache.load("key", lambda: 1),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.pairs(full="adapter", of="adapter")
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_only_get_takes_a_lease_and_only_get_waits_for_one(cache, in_thread, ask):
    ask(cache)
    assert leased(cache, "key") == []
    cache.delete("key")
    cache.get("key")
    assert leased(cache, "key") == ["key"]
    in_thread(ask, cache).result(PATIENCE)
    assert cache.engine.stats().coalesced == 0
