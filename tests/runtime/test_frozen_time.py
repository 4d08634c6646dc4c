"""Frozen time: the parts that keep running in real time, the state after the thaw, and the detection of a freeze."""

import textwrap
import time
from datetime import timedelta
from math import inf

import pytest

from tests.caches import ticking
from tests.scripts import run
from tests.time_travel import FAR, LIBRARIES, LONG_AGO, in_real_time
from tests.waiting import PATIENCE, until
from wheelcache import Cache, RemovalCause
from wheelcache.runtime.clock import now as machine_time
from wheelcache.runtime.frozen_time import follow
from wheelcache.runtime.wheel_driver import WheelDriver


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


@pytest.fixture
def removed():
    return []


@pytest.fixture
def cache(removed, closed):
    return closed(ticking(0.01)(jitter=0, on_removal=lambda *removal: removed.append(removal)))


# Removal from memory.


def test_what_expired_in_a_freeze_of_the_past_leaves_memory_after_the_thaw(cache, removed, library, caplog):
    """This does not count as lag: the wheel could not advance before the thaw."""
    with library.freeze(LONG_AGO):
        cache.set_many({"a": 1, "b": 2}, 300)
    assert cache.engine.observed.lag < PATIENCE
    assert cache.get("a") is None
    assert until(lambda: len(removed) == 2)
    assert len(cache) == 0
    assert sorted(removed) == [("a", 1, RemovalCause.EXPIRED), ("b", 2, RemovalCause.EXPIRED)]
    assert "behind" not in caplog.text


@pytest.mark.parametrize("moment", [FAR, LONG_AGO], ids=["years ahead", "years ago"])
def test_after_the_thaw_entries_leave_memory_on_time(cache, removed, library, moment):
    cache.set("before", 1, 0.2)
    with library.freeze(moment) as time_:
        cache.set("in it", 1, 300)
        time_.shift(86_400 * 3650)
        cache.get("in it")
        time_.move_to(moment)
        cache.set("ahead", 1, 300)
    cache.set("after", 1, 0.2)
    assert until(lambda: {"before", "after"} <= {key for key, *_ in removed})
    assert cache.get("after") is None
    if moment is FAR:
        assert cache.expires_in("ahead") == pytest.approx((FAR - in_real_time()).total_seconds() + 300, abs=1)


def test_the_wheel_takes_out_nothing_in_a_freeze_that_a_move_back_brings_to_life_again(cache, removed, library):
    with library.freeze(FAR) as time_:
        cache.set("a", 1, 300)
        time_.shift(3600)
        for number in range(3000):
            cache.set(number, number, 5)
        assert cache.engine.observed.lag == 0
        time_.shift(-3600)
        assert cache.get("a") == 1
    assert removed == []


@pytest.mark.parametrize("given", [False, True], ids=["its own clock", "time.monotonic"])
def test_a_cache_that_is_made_in_a_freeze_follows_it_and_real_time_after_it(library, given, in_thread):
    closed, closed_in_it = Cache(), Cache()
    closed.close()
    with library.freeze(FAR) as time_:
        closed_in_it.close()
        cache = ticking(0.01)(jitter=0, **({"clock": time.monotonic} if given else {}))
        cache.set("a", 1, 300)
        time_.shift(100)
        assert cache.expires_in("a") == in_thread(cache.expires_in, "a").result(PATIENCE) == 200
        time_.shift(200)
        assert in_thread(cache.get, "a").result(PATIENCE) is None
        with pytest.raises(KeyError):
            cache.expires_in("a")
    cache.set("b", 1, 0.02)
    assert until(lambda: len(cache) == 0)


def test_the_difference_of_the_clocks_is_the_same_in_all_freezes(cache, library):
    with library.freeze(FAR):
        cache.set_many({"a": 1, "b": 1}, 300)
    for _ in range(4):
        with library.freeze(FAR + timedelta(seconds=300)):
            assert "a" not in cache
        with library.freeze(FAR + timedelta(seconds=299, microseconds=999_999)):
            assert cache.get("b") == 1


# The driver of a wheel.


class IdleWheel:
    """A wheel without timers, which records its clocks."""

    next_due = inf
    take_due = None

    def __init__(self):
        self.clocks = []
        self.use_clock = self.clocks.append


def test_outside_of_a_freeze_the_clock_is_the_systems_own(library):
    wheel = IdleWheel()
    driver = WheelDriver(wheel, 1.0, time.monotonic)
    follow(driver)
    assert wheel.clocks == []
    with library.freeze(FAR):
        assert len(wheel.clocks) == 1
    assert wheel.clocks[1:] == [machine_time]


def test_a_wheel_whose_step_has_waited_for_a_freeze_removes_nothing():
    driver = WheelDriver(IdleWheel(), 1.0, machine_time)
    driver.freeze(machine_time)
    driver.advance(machine_time())


# Detection.

STRICT = ("-W", "error")
LIBRARY = """
import sys
from tests.time_travel import FAR, LIBRARIES, LONG_AGO
library = LIBRARIES[sys.argv[1]]
"""
MAKE = """
import wheelcache
cache = wheelcache.Cache(jitter=0)
cache.set("x", 1, 10)
"""
CHECK = """
from tests.waiting import until
with library.freeze(FAR) as clock:
    cache.set("a", 1, 300)
    clock.shift(299)
    assert cache.get("a") == 1
    clock.shift(1)
    assert cache.get("a") is None
    cache.set("a", 1, 300)
assert cache.get("a") == 1
left = len(cache)
cache.set("b", 1, 0.05)
until(lambda: len(cache) == left)
assert cache.get("a") == 1
"""
ORDERS = {
    "in a freeze of the past": f"{LIBRARY}with library.freeze(LONG_AGO):{textwrap.indent(MAKE, '    ')}",
    "before the library": MAKE + LIBRARY,
}


@pytest.mark.pairs(full="name", of="name")
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("order", ORDERS)
def test_wheelcache_may_be_imported_at_any_time(name, order):
    run(ORDERS[order] + CHECK, name, options=STRICT)


def test_wheelcache_imports_neither_library_and_wraps_time_machine_once():
    script = f"""{MAKE}
import sys
assert not {{"freezegun", "time_machine", "_time_machine", "pytest"}} & set(sys.modules)
import time_machine
wheelcache.Cache().set("a", 1, 10)
start = time_machine.travel.start
wheelcache.Cache().set("a", 1, 10)
assert time_machine.travel.start is start
assert start.__wrapped__.__name__ == "start"
assert not hasattr(start.__wrapped__, "__wrapped__")
"""
    run(script, options=STRICT)
