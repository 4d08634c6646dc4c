"""Timers while the time is frozen."""

import threading
import time

import pytest

from tests.time_travel import FAR, LIBRARIES
from tests.waiting import PATIENCE
from wheelcache.timers import Timers


@pytest.mark.alone
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("clock", [{}, {"clock": time.monotonic}], ids=["their own clock", "the caches'"])
def test_timers_go_on_in_real_time(library, clock):
    fired = threading.Event()
    timers = Timers(0.01, lambda key, value: fired.set(), **clock)
    with LIBRARIES[library].freeze(FAR) as time_:
        made_in_it = Timers(0.01, print, **clock)
        timers.set_timer("later", 1, 300)
        timers.set_timer("soon", 1, 0.05)
        assert timers.after(0.05).wait(PATIENCE)
        assert fired.wait(PATIENCE)
        time_.shift(86_400)
    assert len(timers) == 1
    assert made_in_it.after(0.05).wait(PATIENCE)
    timers.stop()
    made_in_it.stop()
