"""The promises of a cache that processes share hold while some of them are killed and stopped."""

import pytest

from tests.host_cache.linearizability import check, run

pytestmark = pytest.mark.deep


def test_no_outdated_value_no_lost_write_and_no_long_wait_with_kills_and_stops(at_length):
    done = run(seconds=at_length(30), disturbances=at_length(40))
    calls, faults = check(done)
    assert faults == []
    assert calls > 1000
    assert done.kills > 0
    assert done.stops
