"""After an exception at any point, no lock stays held, no caller waits forever, and nothing outdated is served."""

import asyncio
import contextlib
from itertools import count
from weakref import WeakKeyDictionary

import pytest

from tests.caches import ticking
from tests.runtime.interruptions import Delivery, Worker, compiled_core, quiet
from wheelcache import Cache
from wheelcache.runtime.wheel_driver import ManualClock

pytestmark = [pytest.mark.deep, compiled_core]

KEYS = ("old", "kept", "stale", "forever", ("a", "tuple"))
NEW_KEYS = ("new", "newer")
TTL = 50
GRACE = 30
worker = Worker()


def weighed(clock):
    return Cache(clock=clock, ttl=TTL, jitter=0, max_weight=10, weigher=lambda key, value: 2, on_removal=lambda *_: 0)


def plain(clock):
    return Cache(
        clock=clock,
        ttl=TTL,
        jitter=0,
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


OPERATIONS = {
    "get": lambda cache: cache.get("kept"),
    "get missing": lambda cache: cache.get("new"),
    "set new": lambda cache: cache.set("new", 7, 5),
    "set over": lambda cache: cache.set("kept", 7, 400),
    "set over, sooner": lambda cache: cache.set("kept", 7, 3),
    "set over, for ever": lambda cache: cache.set("kept", 7, None),
    "set over one for ever": lambda cache: cache.set("forever", 7, 5),
    "set over a graced one": lambda cache: cache.set("stale", 7, 5),
    "set a tuple": lambda cache: cache.set(("a", "new tuple"), 7),
    "set, far off": lambda cache: cache.set("new", 7, 1e6),
    "add": lambda cache: cache.add("new", 7),
    "add in vain": lambda cache: cache.add("kept", 7),
    "touch": lambda cache: cache.touch("kept", 300),
    "touch, sooner": lambda cache: cache.touch("kept", 3),
    "touch, for ever": lambda cache: cache.touch("kept", None),
    "touch one for ever": lambda cache: cache.touch("forever", 5),
    "touch a graced one": lambda cache: cache.touch("stale", 300),
    "touch a graced one, sooner": lambda cache: cache.touch("stale", 1),
    "expires_in": lambda cache: cache.expires_in("kept"),
    "incr": lambda cache: cache.incr("kept"),
    "transform a graced one": lambda cache: cache.update("stale", str),
    "pop": lambda cache: cache.pop("kept"),
    "delete": lambda cache: cache.delete("stale"),
    "delete missing": lambda cache: cache.delete("new"),
    "get_many": lambda cache: cache.get_many([*KEYS, *NEW_KEYS]),
    "set_many": lambda cache: cache.set_many({"kept": 7, "new": 8, "newer": 9}),
    "delete_many": lambda cache: cache.delete_many([*KEYS, "new"]),
    "delete_group": lambda cache: cache.engine.add_group("a").delete(),
    "evict_to": lambda cache: cache.engine.evict_to(1),
    "clear": lambda cache: cache.clear(),
    "keys": lambda cache: cache.keys(),
    "in": lambda cache: "kept" in cache,
    "stats": lambda cache: cache.stats(),
    "get_or_load": lambda cache: cache.get_or_load("new", lambda: 7, 5, grace=GRACE),
    "take a failure": take_and_fail,
    "take a hit": lambda cache: cache.get_or_load("kept", lambda: 7),
    "aget_or_load": atake,
    "memoize": memoized,
    "let time pass": let_time_pass,
}


def use_every_key(cache):
    for key in (*KEYS, *NEW_KEYS):
        cache.get(key)
        cache.delete(key)
        assert cache.get_or_load(key, lambda: 1, 5, grace=GRACE) == 1
        assert cache.get(key) == 1


def check(cache, clock):
    assert worker.does(cache.keys), "a lock is taken for ever"
    clock.advance(4e6)
    assert all(cache.expires_in(key) is None for key in cache.get_many([*KEYS, *NEW_KEYS]))
    # Other threads and this one can use every key.
    assert worker.does(lambda: use_every_key(cache)), "a key is taken for ever"
    use_every_key(cache)
    clock.advance(4e6)
    assert not cache.get_many([*KEYS, *NEW_KEYS])


def interrupt_everywhere(make, operation):
    """Interrupt an operation at each of its points, and check the cache. Return the number of points and one."""
    faults = []
    with quiet():
        for target in count(1):
            clock = ManualClock()
            cache = make(clock)
            fill(cache, clock)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: operation(cache))
            try:
                check(cache, clock)
            except (Exception, AssertionError) as error:
                faults.append(f"{delivery.where}: {type(error).__name__} {str(error).splitlines()[:1]}")
                if "for ever" in str(error):
                    break
            else:
                cache.close()
            if not interrupted:
                break
    assert not faults, f"{len(faults)} of {target}:\n" + "\n".join(faults)
    return target


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("make", [weighed, plain])
def test_an_exception_at_any_point_leaves_the_cache_to_all_threads(make, name):
    # The only point of a call of the compiled core is its beginning.
    assert interrupt_everywhere(make, OPERATIONS[name]) > 1


def set_sooner(cache):
    """Operations that must wake or start the wheel thread."""
    cache.set("new", 7, 5)


def refresh(cache):
    cache.get_or_load("stale", lambda: 8, 5, grace=GRACE, refresh_ahead=1e-6)


@pytest.mark.parametrize("operation", [set_sooner, refresh])
def test_an_exception_at_any_point_leaves_the_threads_of_the_process_to_others(operation):
    def write_and_refresh():
        other = Cache(ttl=TTL)
        set_sooner(other)
        other.get_or_load("stale", lambda: 7, 5)
        refresh(other)

    with quiet():
        for target in count(1):
            cache = ticking(0.05)(ttl=TTL, jitter=0)
            cache.get_or_load("stale", lambda: 7, 1, grace=GRACE)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: operation(cache))
            assert worker.does(write_and_refresh), f"{delivery.where}: a lock is taken for ever"
            write_and_refresh()
            cache.close()
            if not interrupted:
                break
    assert target > 20
