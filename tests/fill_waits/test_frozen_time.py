"""Waits for leases while the time is frozen: they use real time."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import Context

import pytest

from tests.fill_waits.callers import get_or_lease
from tests.time_travel import FAR, LIBRARIES, real_seconds_for
from tests.waiting import PATIENCE


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


@pytest.mark.alone
def test_a_wait_for_a_lease_ends_and_not_before_its_time(cache, library):
    with ThreadPoolExecutor(1) as holder, library.freeze(FAR):
        assert holder.submit(get_or_lease, cache, "a", wait=0.2).result(PATIENCE) is None
        seconds = real_seconds_for(lambda: Context().run(get_or_lease, cache, "a", wait=0.2))
    assert 0.1 < seconds < PATIENCE
