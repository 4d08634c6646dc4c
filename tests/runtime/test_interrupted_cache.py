"""An exception at any point leaves the cache intact: locks, counts, timers, and keys."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from itertools import count
from time import sleep
from weakref import WeakKeyDictionary, ref

import pytest

from tests.leases.callers import get_or_lease
from tests.runtime.interruptions import Delivery, Worker, compiled_core, quiet
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.runtime.clock import ManualClock
from wheelcache.runtime.request_scope import end_request

pytestmark = [pytest.mark.deep, compiled_core]

KEYS = ("old", "kept", "stale", "forever", ("a", "tuple"))
NEW_KEYS = ("new", "newer")
TTL = 50
GRACE = 30
SILENT = {"log_interval": None, "sample_interval": None}

worker = Worker()
saved_as = None
"""A path for the running test."""


@pytest.fixture(autouse=True)
def path(tmp_path):
    global saved_as
    saved_as = tmp_path / "saved"


def weighed(clock, tmp_path):
    return Cache(
        **SILENT, clock=clock, ttl=TTL, jitter=0, max_weight=10, weigher=lambda key, value: 2, on_removal=lambda *_: 0
    )


def coherent(clock, tmp_path):
    return Cache(
        **SILENT,
        clock=clock,
        ttl=TTL,
        jitter=0,
        stamps=SharedStamps("test", tmp_path, slots=1024),
        max_entries=len(KEYS),
    )


clocks = WeakKeyDictionary()
"""The keys of the filled caches."""


def fill(cache, clock):
    """Store an entry of every kind."""
    clocks[cache] = clock
    cache.set("old", 1, 5)
    cache.set("kept", 2, 40)
    cache.get_or_load("stale", lambda: 3, 5, grace=GRACE)
    cache.set("forever", 4, None)
    cache.set(("a", "tuple"), 5, 600)
    clock.advance(2)


def lease(cache):
    get_or_lease(cache, "new", wait=1)
    cache.set("new", 7)


def memoized(cache):
    @cache.memoize(ttl=5, grace=GRACE)
    def square(number):
        return number * number

    square(3)


def take_and_fail(cache):
    def loader():
        raise LookupError

    with contextlib.suppress(LookupError):
        cache.get_or_load("new", loader)


def let_time_pass(cache):
    clocks[cache].advance(20)


class Seven:
    """An awaitable. A coroutine would warn if an interruption kept it from being awaited."""

    def __await__(self):
        return 7
        yield


def atake(cache):
    """Run a coroutine as a task does, but without asyncio, which must not be interrupted here."""
    loop = asyncio.new_event_loop()
    coroutine = cache.aget_or_load("new", Seven, 5, grace=GRACE)
    asyncio._set_running_loop(loop)
    try:
        with contextlib.suppress(StopIteration):
            coroutine.send(None)
    finally:
        asyncio._set_running_loop(None)
        coroutine.close()
        loop.close()


# The operations, the number of values that each may store, and the number of requests that it may count.
OPERATIONS = {
    "get": (lambda cache: cache.get("kept"), 0, 1),
    "get missing": (lambda cache: cache.get("new"), 0, 1),
    "set new": (lambda cache: cache.set("new", 7, 5), 1, 0),
    "set over": (lambda cache: cache.set("kept", 7, 400), 1, 0),
    "set over, sooner": (lambda cache: cache.set("kept", 7, 3), 1, 0),
    "set over, for ever": (lambda cache: cache.set("kept", 7, None), 1, 0),
    "set over one for ever": (lambda cache: cache.set("forever", 7, 5), 1, 0),
    "set over a graced one": (lambda cache: cache.set("stale", 7, 5), 1, 0),
    "set a tuple": (lambda cache: cache.set(("a", "new tuple"), 7), 1, 0),
    "set, far off": (lambda cache: cache.set("new", 7, 1e6), 1, 0),
    "add": (lambda cache: cache.add("new", 7), 1, 0),
    "add in vain": (lambda cache: cache.add("kept", 7), 0, 0),
    "touch": (lambda cache: cache.touch("kept", 300), 0, 0),
    "touch, sooner": (lambda cache: cache.touch("kept", 3), 0, 0),
    "touch, for ever": (lambda cache: cache.touch("kept", None), 0, 0),
    "touch one for ever": (lambda cache: cache.touch("forever", 5), 0, 0),
    "touch a graced one": (lambda cache: cache.touch("stale", 300), 0, 0),
    "touch a graced one, sooner": (lambda cache: cache.touch("stale", 1), 0, 0),
    "expires_in": (lambda cache: cache.expires_in("kept"), 0, 0),
    "incr": (lambda cache: cache.incr("kept"), 1, 0),
    "transform a graced one": (lambda cache: cache.update("stale", str), 1, 0),
    "pop": (lambda cache: cache.pop("kept"), 0, 0),
    "delete": (lambda cache: cache.delete("stale"), 0, 0),
    "delete missing": (lambda cache: cache.delete("new"), 0, 0),
    "get_many": (lambda cache: cache.get_many([*KEYS, *NEW_KEYS]), 0, 7),
    "set_many": (lambda cache: cache.set_many({"kept": 7, "new": 8, "newer": 9}), 3, 0),
    "delete_many": (lambda cache: cache.delete_many([*KEYS, "new"]), 0, 0),
    "delete_group": (lambda cache: cache.parts.delete_group("a"), 0, 0),
    "evict_to": (lambda cache: cache.parts.evict_to(1), 0, 0),
    "clear": (lambda cache: cache.clear(), 0, 0),
    "keys": (lambda cache: cache.keys(), 0, 0),
    "in": (lambda cache: "kept" in cache, 0, 0),
    "stats": (lambda cache: cache.stats(), 0, 0),
    "get_or_load": (lambda cache: cache.get_or_load("new", lambda: 7, 5, grace=GRACE), 1, 1),
    "take a failure": (take_and_fail, 0, 1),
    "take a hit": (lambda cache: cache.get_or_load("kept", lambda: 7), 0, 1),
    "aget_or_load": (atake, 1, 1),
    "memoize": (memoized, 1, 1),
    "get_or_lease": (lease, 1, 1),
    "let time pass": (let_time_pass, 0, 0),
    "save": (lambda cache: cache.save(saved_as), 0, 0),
}


def entered(stats):
    return sum(stats.removals.values()) + stats.size


def use_every_key(cache):
    for key in (*KEYS, *NEW_KEYS):
        cache.get(key)
        cache.delete(key)
        assert cache.get_or_load(key, lambda: 1, 5, grace=GRACE) == 1
        assert cache.get(key) == 1


def check(cache, clock, before, may_store, may_ask, *, is_weighed):
    """Check the invariants that users can observe, which hold after an interruption as well."""
    assert worker.does(cache.keys), "a lock is taken for ever"
    stats = cache.stats()
    assert 0 <= entered(stats) - entered(before) <= may_store
    assert 0 <= stats.requests - before.requests <= may_ask
    assert stats.size == len(cache)
    again = cache.stats()
    assert (again.hits, again.misses) == (stats.hits, stats.misses)

    # Each entry with a TTL leaves when it expires.
    clock.advance(4e6)
    forever = list(cache.get_many([*KEYS, *NEW_KEYS]))
    assert all(cache.expires_in(key) is None for key in forever)
    assert len(cache) == len(forever)
    assert entered(cache.stats()) == entered(stats)

    # Other threads and this one can use every key.
    assert worker.does(lambda: use_every_key(cache)), "a key is taken for ever"
    use_every_key(cache)
    clock.advance(4e6)
    assert len(cache) == 0
    last = cache.stats()
    assert last.weight == 0
    if not is_weighed:
        # Every deleted, replaced or expired entry was added once.
        assert entered(last) == entered(stats) + 2 * len((*KEYS, *NEW_KEYS))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("make", [weighed, coherent])
def test_an_exception_at_any_point_leaves_the_cache_whole(make, name, tmp_path):
    operation, may_store, may_ask = OPERATIONS[name]
    faults = []
    with quiet():
        # A sample of the thousands of points of a save, most of which are in its callees.
        for target in count(1, 7 if name == "save" else 1):
            clock = ManualClock()
            cache = make(clock, tmp_path)
            fill(cache, clock)
            before = cache.stats()
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: operation(cache))
            try:
                if name == "delete_group":
                    # It writes every stamp. Entries without a TTL then stay in memory until replaced or evicted.
                    cache.parts.discard_stale("forever")
                check(cache, clock, before, may_store, may_ask, is_weighed=make is weighed)
            except (Exception, AssertionError) as error:
                faults.append(f"{delivery.where}: {type(error).__name__} {str(error).splitlines()[:1]}")
                if "for ever" in str(error):
                    break
            else:
                cache.close()
            if not interrupted:
                break
    assert not faults, f"{len(faults)} of {target}:\n" + "\n".join(faults)
    # The only point of a hit in the compiled core is its call.
    assert target > (1 if name in ("get", "take a hit") else 2)


@pytest.mark.parametrize("make", [weighed, coherent])
def test_a_close_that_was_interrupted_is_finished_by_another_one(make, tmp_path):
    unfinished = []
    with quiet():
        for target in count(1):
            clock = ManualClock()
            cache = make(clock, tmp_path)
            fill(cache, clock)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: cache.close())
            cache.close()
            if len(cache) or not cache.is_closed:
                unfinished.append(f"{delivery.where}: {len(cache)} left")
            if not interrupted:
                break
    assert not unfinished, "\n".join(unfinished)
    assert target > 20


def set_sooner(cache):
    """Operations that must wake or start the wheel thread."""
    cache.set("new", 7, 5)


def refresh(cache):
    cache.get_or_load("stale", lambda: 8, 5, grace=GRACE, refresh_ahead=0.01)


@pytest.mark.parametrize("operation", [set_sooner, refresh])
def test_an_exception_at_any_point_leaves_the_threads_of_the_process_to_others(operation):
    def write_and_refresh():
        other = Cache(**SILENT, ttl=TTL)
        set_sooner(other)
        other.get_or_load("stale", lambda: 7, 5)
        refresh(other)

    with quiet():
        for target in count(1):
            cache = Cache(**SILENT, ttl=TTL, jitter=0, interval=0.05)
            cache.get_or_load("stale", lambda: 7, 1, grace=GRACE)
            sleep(0.011)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: operation(cache))
            assert worker.does(write_and_refresh), f"{delivery.where}: a lock is taken for ever"
            write_and_refresh()
            cache.close()
            if not interrupted:
                break
    assert target > 20


SHORT = 0.005
"""Seconds."""

# Operations that make the wheel thread wake up earlier. All of their entries must be gone soon after.
SCHEDULING = {
    "set": lambda cache: cache.set("new", Value()),
    "set_many": lambda cache: cache.set_many({"new": Value(), "newer": Value()}),
    "touch": lambda cache: cache.touch("kept"),
    "get_or_load": lambda cache: cache.get_or_load("new", Value),
    "clear": lambda cache: cache.clear(),
}


class Value:
    """``values`` tells how many are in memory. No code runs when one goes: a callback could be interrupted."""

    def __init__(self):
        references.append(ref(self))


references = []


def values():
    return sum(each() is not None for each in references)


def lasts(cache, key):
    """Return whether the key has no TTL."""
    try:
        return cache.expires_in(key) is None
    except KeyError:
        return False


@pytest.mark.parametrize(
    ("name", "listener"),
    [*((name, None) for name in SCHEDULING), ("set_many", lambda *_: None), ("clear", lambda *_: None)],
)
def test_an_exception_at_any_point_leaves_what_expires_to_the_wheel_thread(name, listener):
    references.clear()
    with quiet():
        for target in count(1):
            cache = Cache(**SILENT, ttl=SHORT, jitter=0, interval=SHORT, on_removal=listener)
            cache.set("kept", Value(), None)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: SCHEDULING[name](cache))
            # Entries that the operation did not reach are unchanged.
            left = int(lasts(cache, "kept"))
            # A value that was not stored may live on in interrupted frames until the next collection.
            count_left = values if name == "clear" else cache.__len__
            assert until(lambda left=left, count_left=count_left: count_left() <= left), delivery.where
            references.clear()
            if not interrupted:
                break
    assert target > 10


FILLING = {
    "set": lambda cache: cache.set("k", 7),
    "set_many": lambda cache: cache.set_many({"k": 7}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: 7),
    "lease_fill": lambda cache: cache.parts.lease_fill("k")(7, ()),
}


@pytest.mark.parametrize("name", FILLING)
def test_an_exception_at_any_point_of_a_fill_leaves_no_caller_waiting(name):
    with quiet(), ThreadPoolExecutor(1) as pool:
        for target in count(1):
            cache = Cache(**SILENT, clock=ManualClock())
            assert get_or_lease(cache, "k", wait=100) is None
            asked = pool.submit(Context().run, get_or_lease, cache, "k", wait=100)
            until_waiting(1)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: FILLING[name](cache))
            if cache.find("k") is None:
                # The holder tries again.
                FILLING[name](cache)
            try:
                assert asked.result(PATIENCE) == 7, delivery.where
            finally:
                # Otherwise the pool would wait for it.
                cache.close()
            end_request()
            if not interrupted:
                break
    assert target > 5
