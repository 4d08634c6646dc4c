"""After an exception at any point, no lock stays held, no caller waits forever, and nothing outdated is served."""

import asyncio
import contextlib
from itertools import count
from weakref import WeakKeyDictionary

import pytest

from tests.runtime.interruptions import Delivery, compiled_core, quiet, returns_in_a_thread
from wheelcache import Cache, ManualClock

pytestmark = [pytest.mark.deep, compiled_core]

KEYS = ("old", "kept", "stale", "forever", ("a", "tuple"))
NEW_KEYS = ("new", "newer")
TTL = 50
GRACE = 30
clocks = WeakKeyDictionary()
"""The clocks of the filled caches."""


def weighed(clock):
    return Cache(clock=clock, ttl=TTL, jitter=0, max_weight=10, weigher=lambda key, value: 2, on_removal=lambda *_: 0)


def plain(clock):
    return Cache(clock=clock, ttl=TTL, jitter=0, max_entries=len(KEYS))


def fill(cache, clock):
    """Store an entry of every kind."""
    clocks[cache] = clock
    cache.set("old", 1, 5)
    cache.set("kept", 2, 40)
    cache.get_or_load("stale", lambda: 3, 5, grace=GRACE)
    cache.set("forever", 4, None)
    cache.set(("a", "tuple"), 5, 600)
    clock.advance(2)


def take_and_fail(cache):
    def loader():
        raise LookupError

    with contextlib.suppress(LookupError):
        cache.get_or_load("new", loader)


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


# Each step of the core is interrupted in tests/core.
OPERATIONS = {
    "get missing": lambda cache: cache.get("new"),
    "set new": lambda cache: cache.set("new", 7, 5),
    "set over, sooner": lambda cache: cache.set("kept", 7, 3),
    "set over a graced one": lambda cache: cache.set("stale", 7, 5),
    "set a tuple": lambda cache: cache.set(("a", "new tuple"), 7),
    "add": lambda cache: cache.add("new", 7),
    "touch, sooner": lambda cache: cache.touch("kept", 3),
    "incr": lambda cache: cache.incr("kept"),
    "pop": lambda cache: cache.pop("kept"),
    "delete missing": lambda cache: cache.delete("new"),
    "get_many": lambda cache: cache.get_many([*KEYS, *NEW_KEYS]),
    "set_many": lambda cache: cache.set_many({"kept": 7, "new": 8, "newer": 9}),
    "delete_many": lambda cache: cache.delete_many([*KEYS, "new"]),
    "delete_group": lambda cache: cache.engine.add_group("a").delete(),
    "evict_to": lambda cache: cache.engine.evict_to(1),
    "clear": lambda cache: cache.clear(),
    "stats": lambda cache: cache.stats(),
    "get_or_load": lambda cache: cache.get_or_load("new", lambda: 7, 5, grace=GRACE),
    "take a failure": take_and_fail,
    "aget_or_load": atake,
    "memoize": lambda cache: cache.memoize(ttl=5, grace=GRACE)(lambda number: number)(3),
    "let time pass": lambda cache: clocks[cache].advance(20),
}


def use_every_key(cache):
    for key in (*KEYS, *NEW_KEYS):
        cache.get(key)
        cache.delete(key)
        assert cache.get_or_load(key, lambda: 1, 5, grace=GRACE) == 1
        assert cache.get(key) == 1


def check(cache, clock):
    assert returns_in_a_thread(cache.keys), "a lock is taken for ever"
    clock.advance(4e6)
    assert all(cache.expires_in(key) is None for key in cache.get_many([*KEYS, *NEW_KEYS]))
    # Other threads and this one can use every key.
    assert returns_in_a_thread(lambda: use_every_key(cache)), "a key is taken for ever"
    use_every_key(cache)
    clock.advance(4e6)
    assert not cache.get_many([*KEYS, *NEW_KEYS])


def interrupt_everywhere(make, operation):
    """Interrupt an operation at each of its points, and check the cache. Return the number of points and one."""
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
                raise AssertionError(f"interrupted at {delivery.where}") from error
            cache.close()
            if not interrupted:
                break
    return target


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("make", [weighed, plain])
def test_an_exception_at_any_point_leaves_the_cache_to_all_threads(make, name):
    # The only point of a call of the compiled core is its beginning.
    assert interrupt_everywhere(make, OPERATIONS[name]) > 1
