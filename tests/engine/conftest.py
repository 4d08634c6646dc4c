import pytest

from wheelcache import Cache


@pytest.fixture
def cache(clock):
    return Cache(ttl=10, clock=clock, jitter=0)
