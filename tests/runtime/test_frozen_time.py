"""Frozen time: the parts that keep running in real time, the state after the thaw, and the detection of a freeze."""

import textwrap
import threading
import time
from datetime import timedelta
from math import inf
from pathlib import Path

import freezegun
import pytest

from tests.caches import ticking
from tests.scripts import run
from tests.time_travel import FAR, LIBRARIES, LONG_AGO, real_seconds, real_seconds_for
from tests.waiting import PATIENCE, until
from wheelcache import Cache, LoadTimeout, ManualClock, RemovalCause
from wheelcache.runtime.clock import now as machine_time
from wheelcache.runtime.frozen_time import follow
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.runtime.wheel_thread import WheelThread

ROOT = Path(__file__).parents[3]


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
    cache.set("after", 1, 0.2)
    assert until(lambda: {"before", "after"} <= {key for key, *_ in removed})
    assert cache.get("after") is None


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
def test_a_cache_that_is_made_in_a_freeze_follows_it_and_real_time_after_it(library, given):
    closed, closed_in_it = Cache(), Cache()
    closed.close()
    with library.freeze(FAR) as time_:
        closed_in_it.close()
        cache = ticking(0.01)(jitter=0, **({"clock": time.monotonic} if given else {}))
        cache.set("a", 1, 300)
        time_.shift(100)
        assert cache.expires_in("a") == 200
        time_.shift(200)
        assert cache.get("a") is None
        with pytest.raises(KeyError):
            cache.expires_in("a")
    cache.set("b", 1, 0.02)
    assert until(lambda: len(cache) == 0)


def test_clocks_of_ones_own_are_left_alone(library):
    manual = ManualClock()
    now = [0.0]
    caches = [Cache(jitter=0, clock=manual), Cache(jitter=0, clock=lambda: now[0])]
    for cache in caches:
        cache.set("a", 1, 300)
    with library.freeze(FAR) as time_:
        time_.shift(86_400)
        assert [cache.get("a") for cache in caches] == [1, 1]
        manual.advance(300)
        now[0] = 300.0
        assert [cache.get("a") for cache in caches] == [None, None]


def test_a_freeze_that_begins_in_another_ends_with_that(cache):
    """freezegun installs its functions once, and removes them once."""
    cache.set("a", 1, 300)
    with freezegun.freeze_time(FAR), freezegun.freeze_time(LONG_AGO):
        assert cache.get("a") == 1
    assert cache.get("a") == 1
    assert cache.expires_in("a") == pytest.approx(300, abs=5)


def test_if_freezegun_is_told_to_ignore_wheelcache_it_stays_in_real_time(cache):
    cache.set("a", 1, 300)
    with freezegun.freeze_time(FAR, ignore=["wheelcache"]):
        assert cache.get("a") == 1


# Parts that use real time.


@pytest.mark.alone
@pytest.mark.parametrize("moment", [FAR, LONG_AGO], ids=["years ahead", "years ago"])
def test_a_load_times_out_in_real_time(cache, library, moment):
    release = threading.Event()

    def waits():
        assert release.wait(PATIENCE)

    def times_out():
        with pytest.raises(LoadTimeout):
            cache.get_or_load("a", waits, 300, timeout=0.2)

    with library.freeze(moment):
        assert 0.1 < real_seconds_for(times_out) < PATIENCE
    release.set()


def test_a_failed_refresh_is_tried_again_when_the_time_was_moved_back(cache, library):
    def fails():
        raise RuntimeError("no")

    with library.freeze(FAR) as time_:
        cache.get_or_load("a", lambda: "old", 10, grace=10**9)
        time_.shift(11)
        # With fail_safe, the stale value stays although its refresh failed.
        assert cache.get_or_load("a", fails, 10, grace=10**9, fail_safe=10**9) == "old"
        assert until(lambda: cache.stats().load_failures == 1)
        time_.shift(-86_400)
        assert cache.touch("a", 10)
        time_.shift(11)
        # It is tried again.
        assert until(lambda: cache.get_or_load("a", lambda: "new", 10, grace=10**9) == "new")


@pytest.mark.alone
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_wheel_thread_sleeps_while_time_stands_still(cache, library, is_interrupted, monkeypatch):
    turns = []
    advance_all = WheelThread._advance_all

    def counted(thread, sleep):
        turns.append(real_seconds())
        return advance_all(thread, sleep)

    def exits(*removal):
        raise SystemExit

    cache.set("a", 1, 300)
    with library.freeze(LONG_AGO) as time_:
        for number in range(100):
            cache.set(number, number, 1e-9)
        cache.set("a", 1, 5)
        if is_interrupted:
            cache.on_removal = exits
            with pytest.raises(SystemExit):
                cache.set("a", 2, 5)
            cache.on_removal = None
        time_.shift(100)
        monkeypatch.setattr(WheelThread, "_advance_all", counted)
        time.sleep(0.2)
        # Without a sleep, ten turns take less than a millisecond. A busy machine can only make them longer.
        assert len(turns) <= 10 or turns[10] - turns[0] > 0.01
    cache.set("b", 1, 0.02)
    assert until(lambda: len(cache) == 0)


# Detection.


class IdleWheel:
    """A wheel without timers, which records its clocks."""

    next_due = inf

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


STRICT = ("-W", "error")
FREEZE = {
    "freezegun": """
        import freezegun
        def freeze(moment):
            return freezegun.freeze_time(moment)
        def shift(clock, seconds):
            clock.tick(seconds)
    """,
    "time-machine": """
        import time_machine
        def freeze(moment):
            return time_machine.travel(moment, tick=False)
        def shift(clock, seconds):
            clock.shift(seconds)
    """,
}
CHECK = """
with freeze("2035-01-01") as clock:
    cache.set("a", 1, 300)
    shift(clock, 299)
    assert cache.get("a") == 1
    shift(clock, 1)
    assert cache.get("a") is None
    cache.set("a", 1, 300)
assert cache.get("a") == 1
left = len(cache)
cache.set("b", 1, 0.05)
from tests.waiting import until
until(lambda: len(cache) == left)
assert cache.get("a") == 1
"""
MAKE = """
import wheelcache
cache = wheelcache.Cache(jitter=0)
"""
ORDERS = {
    "imported in a freeze": '{freeze}\nwith freeze("2001-01-01"):{make}{check}',
    "imported in a freeze, made after it": '{freeze}\nwith freeze("2001-01-01"):\n    import wheelcache{make}{check}',
    "imported in a freeze of the future, and used in it": (
        '{freeze}\nwith freeze("2040-01-01") as outer:{make}    cache.set("x", 1, 10)\n    shift(outer, 10)\n'
        '    assert cache.get("x") is None{check}'
    ),
}


@pytest.mark.parametrize("name", FREEZE)
@pytest.mark.parametrize("order", ORDERS)
def test_in_whichever_order_all_is_imported(name, order):
    script = ORDERS[order]
    make = textwrap.indent(MAKE, "    ") if "with freeze" in script and "import wheelcache{" not in script else MAKE
    run(script.format(freeze=textwrap.dedent(FREEZE[name]), make=make, check=CHECK), options=STRICT)


USED = {
    "made": "",
    "used": 'cache.set("x", 1, 0.1)\ncache.get("x")\ncache.clear()',
    "in use": 'cache.set("x", 1, 10)',
}


@pytest.mark.parametrize("used", USED.values(), ids=USED)
@pytest.mark.parametrize("name", FREEZE)
def test_a_library_that_is_imported_when_the_cache_was_made_is_followed_from_the_first_value(name, used):
    run(f"{MAKE}\n{used}\n{textwrap.dedent(FREEZE[name])}\n{CHECK}", options=STRICT)


def test_wheelcache_imports_neither_library_and_wraps_time_machine_once():
    script = f"""{MAKE}
import sys
cache.set("a", 1, 10)
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


def test_the_difference_of_the_clocks_is_the_same_in_all_freezes(cache, library):
    with library.freeze(FAR):
        cache.set("a", 1, 300)
        cache.set("b", 1, 300)
    for _ in range(20):
        with library.freeze(FAR + timedelta(seconds=300)):
            assert "a" not in cache
        with library.freeze(FAR + timedelta(seconds=299, microseconds=999_999)):
            assert cache.get("b") == 1
