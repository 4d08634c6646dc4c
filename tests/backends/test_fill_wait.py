"""fill_wait: of all callers that miss a key at once with ``get``, one fills it, and the others get what it sets.

Leases themselves are the engine's. Here: which calls take, fill and give up one, and which keys are waited for.
"""

import threading
import time

import pytest

from tests.waiting import PATIENCE, THREADS, until_waiting, waiting

LONG = 60
"""Seconds of a fill_wait that no caller comes to the end of; what takes less than PATIENCE did not wait for it."""

SHORT = 0.3
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def cache(make):
    return make(fill_wait=LONG)


TAKES = "a number of seconds >= 0, or a dict of key prefixes (strings) to such numbers"

# What is wrong, and what of it the error shows: of a dict with a wrong number, the number.
WRONG = [
    *((wrong, wrong) for wrong in (-1, "5", None, True, False, NAN, INF, 10**400, [5], ("a", 5))),
    *(({"right": 5, "wrong": wrong}, wrong) for wrong in (-1, "5", None, True, {}, NAN, INF, [5])),
    *((wrong, wrong) for wrong in ({1: 5}, {None: 5}, {b"a": 5}, {"a": 5, ("b",): 5})),
]


@pytest.mark.parametrize(("wrong", "shown"), WRONG, ids=lambda value: repr(value)[:40])
def test_a_wrong_fill_wait_is_an_error_that_names_it_and_what_it_takes_and_got(adapter, wrong, shown):
    with pytest.raises(adapter.refused) as refused:
        adapter.make(fill_wait=wrong)
    for part in (adapter.spelled("fill_wait"), TAKES, f"not {shown!r}"):
        assert part in str(refused.value)


@pytest.mark.parametrize("off", [None, {"fill_wait": 0}, {"fill_wait": {}}, {"fill_wait": {"": 0, "key": 0.0}}])
def test_without_fill_wait_no_caller_has_a_lease_and_none_waits(make, together, off):
    cache = make(**(off or {}))
    assert together(lambda number: (cache.get("key"), cache.engine.is_leased("key"))) == [(None, False)] * THREADS


def test_of_the_prefixes_of_a_key_the_longest_says_how_long_is_waited(make, in_thread):
    cache = make(fill_wait={"": 0, "page:": LONG, "page:short:": SHORT, "page:short:never:": 0})
    waits = {"other": 0, "page:short:never:one": 0, "page:short:one": SHORT, "page:one": LONG}
    for key in waits:
        cache.get(key)
    for key, wait in waits.items():
        began = time.monotonic()
        asking = in_thread(cache.get, key)
        if wait == LONG:
            until_waiting()
            cache.set(key, "value")
            assert asking.result(PATIENCE) == "value"
        else:
            assert asking.result(PATIENCE) is None
            assert wait * 0.9 <= time.monotonic() - began < wait + PATIENCE / 2


# Which calls fill.

FILLS = {
    "set": lambda cache: cache.set("key", [1]),
    "set for ever": lambda cache: cache.set("key", [1], None),
    "add": lambda cache: cache.add("key", [1]),
    "set_many": lambda cache: cache.set_many({"other": 1, "key": [1]}),
    "load": lambda cache: cache.load("key", lambda: [1]),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("by_another", [False, True], ids=["by holder", "by another"])
def test_all_who_wait_get_what_is_set_each_its_own(cache, in_thread, fill, by_another):
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(4)]
    until_waiting(4)
    if by_another:
        in_thread(fill, cache).result(PATIENCE)
    else:
        fill(cache)
    values = [waiter.result(PATIENCE) for waiter in waiters]
    assert values == [[1]] * 4
    assert len(set(map(id, values))) == 4
    assert not cache.engine.is_leased(cache.key("key"))


def test_of_all_who_miss_together_one_goes_on_and_the_others_get_what_it_sets(cache, together):
    misses = []

    def ask(number):
        value = cache.get("key")
        if value is None:
            misses.append(number)
            until_waiting(THREADS - 1)
            value = ["computed", number]
            cache.set("key", value)
        return value

    values = together(ask)
    assert values == [["computed", misses[0]]] * THREADS
    assert len(set(map(id, values))) == THREADS
    stats = cache.engine.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (THREADS - 1, 1, THREADS - 1)


def test_a_none_that_is_set_is_a_value_for_the_waiter_and_is_there(cache, in_thread):
    cache.get("key")
    waiter = in_thread(lambda: (cache.get("key"), cache.has("key"), cache.engine.is_leased(cache.key("key"))))
    until_waiting()
    cache.set("key", None)
    assert waiter.result(PATIENCE) == (None, True, False)
    assert in_thread(cache.get, "key").result(PATIENCE) is None


def test_a_waiter_gets_a_value_that_is_too_big_or_leaves_at_once(make, in_thread):
    cache = make(fill_wait=LONG, max_bytes=2000)
    for value, ttl in (("x" * 3000, 60), ("value", 0.001)):
        cache.get("key")
        waiter = in_thread(cache.get, "key")
        until_waiting()
        cache.set("key", value, ttl)
        assert waiter.result(PATIENCE) == value
        cache.delete("key")


# Which calls give up.

GIVES_UP = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["other", "key"]),
    "set that is over at once": lambda cache: cache.set("key", 1, -1),
    "add that is over at once": lambda cache: cache.add("key", 1, -1),
    "set_many that is over at once": lambda cache: cache.set_many({"key": 1}, -1),
}


@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_when_the_holder_gives_up_exactly_one_of_those_who_wait_is_the_next(cache, in_thread, give_up):
    cache.get("key")
    go_on = threading.Event()

    def fill():
        found = cache.get("key")
        if found is None:
            assert go_on.wait(PATIENCE)
            cache.set("key", "filled")
        return found

    waiters = [in_thread(fill) for _ in range(4)]
    until_waiting(4)
    # What another caller gives up is not the holder's.
    in_thread(give_up, cache).result(PATIENCE)
    assert waiting() == 4
    give_up(cache)
    until_waiting(3)
    go_on.set()
    assert sorted(str(waiter.result(PATIENCE)) for waiter in waiters) == ["None", "filled", "filled", "filled"]


def test_a_thread_that_ends_gives_up_its_lease(cache, in_thread):
    holder = threading.Thread(target=cache.get, args=("key",))
    holder.start()
    holder.join(PATIENCE)
    assert in_thread(cache.get, "key").result(PATIENCE) is None


# Which calls wait.

ASKS = {
    "has": lambda cache: cache.has("key"),
    "get_many": lambda cache: cache.get_many(["key", "other"]),
    "add": lambda cache: cache.add("key", 1),
    "set": lambda cache: cache.set("key", 1),
    "set_many": lambda cache: cache.set_many({"key": 1}),
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "load": lambda cache: cache.load("key", lambda: 1),
    "clear": lambda cache: cache.clear(),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_only_get_takes_a_lease_and_only_get_waits_for_one(cache, in_thread, ask):
    ask(cache)
    assert not cache.engine.is_leased(cache.key("key"))
    cache.delete("key")
    cache.get("key")
    assert cache.engine.is_leased(cache.key("key"))
    in_thread(ask, cache).result(PATIENCE)
    assert cache.engine.stats().coalesced == 0


def test_a_hit_takes_no_lease_even_if_it_finds_a_none(cache):
    cache.set_many({"none": None, "list": []})
    assert (cache.get("none"), cache.get("list")) == (None, [])
    assert not any(cache.engine.is_leased(cache.key(key)) for key in ("none", "list"))


def test_a_loader_and_a_holder_do_not_wait_for_what_another_is_to_fill(cache, in_thread):
    cache.get("key")
    loading = in_thread(lambda: cache.load("other", lambda: [cache.get("key")]))
    assert loading.result(PATIENCE) == [None]
    holding = in_thread(lambda: (cache.get("mine"), cache.get("mine"), cache.get("key")))
    assert holding.result(PATIENCE) == (None, None, None)
