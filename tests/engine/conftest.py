import pytest

from wheelcache import ManualClock


@pytest.fixture
def clock():
    return ManualClock()
