"""A clock is refused if it shows times at which a float cannot count intervals: it would be advanced forever."""

import threading

import pytest

from tests.caches import ticking
from tests.guests import Timers, needs
from wheelcache import Cache
from wheelcache.runtime.wheel_driver import LATEST, ManualClock


@pytest.mark.parametrize("seconds", [1e17, 1e300, 2 * LATEST])
def test_a_manual_clock_is_not_moved_further_than_floats_can_count(seconds):
    clock = ManualClock()
    cache = Cache(clock=clock, ttl=60)
    cache.set("k", 1)
    with pytest.raises(ValueError, match="cannot move by"):
        clock.advance(seconds)
    assert clock() == 0.0
    assert cache.get("k") == 1


@pytest.mark.parametrize("now", [1e17, -1e17, float("inf"), float("nan")])
def test_a_manual_clock_does_not_begin_there(now):
    with pytest.raises(ValueError, match="now must be"):
        ManualClock(now)


@pytest.mark.parametrize("now", [1e17, -1e17, float("inf"), float("nan")])
@pytest.mark.parametrize(
    "make", [Cache, pytest.param(lambda clock: Timers(1.0, print, clock=clock), marks=needs("timers"))]
)
def test_a_clock_that_shows_such_a_time_is_refused(make, now):
    with pytest.raises(ValueError, match="clock must return seconds at which floats can tell intervals of 1 s apart"):
        make(clock=lambda: now)


def test_a_clock_that_jumps_there_is_an_error_of_the_write_and_holds_no_lock():
    now = 0.0
    cache = ticking(0.001)(clock=lambda: now, ttl=60)
    cache.set("k", 1)
    now = 1e17
    with pytest.raises(
        ValueError, match=r"clock must return seconds at which floats can tell intervals of 0\.001 s apart"
    ):
        cache.set("k", 2)
    now = 1.0
    other = threading.Thread(target=cache.set, args=("k", 3), daemon=True)
    other.start()
    other.join(60)
    assert not other.is_alive()
    assert cache.get("k") == 3
