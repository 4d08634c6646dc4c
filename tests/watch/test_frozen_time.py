"""Steps and published figures while the time is frozen."""

import time

import pytest

from tests.caches import ticking
from tests.time_travel import FAR, LIBRARIES
from tests.waiting import PATIENCE
from wheelcache.watch.site import Site


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_steps_are_those_of_real_time(path, library):
    with library.freeze(FAR) as time_:
        cache = ticking(0.01)(figures_dir=path)
        cache.set("a", 1)
        time_.shift(-86_400)
        site = Site([cache])
        (worker,) = site.workers(cache.name)
        starts = [start for _, start in cache.engine.observed.observer.recorder.steps]
    assert abs(site.time - time.time()) < PATIENCE
    assert starts
    assert all(abs(start - time.time()) < 300 + PATIENCE for start in starts)
    assert worker.started <= worker.published < time.time() + 1
    assert worker.lag < PATIENCE
    cache.close()
