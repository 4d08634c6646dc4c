import pytest

from tests.coherence.processes import QUIET
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps


@pytest.fixture
def cache(clock):
    return Cache(ttl=10, clock=clock, jitter=0, **QUIET)


@pytest.fixture
def pair(tmp_path, clock):
    """Two caches that act like separate processes."""
    return [Cache(ttl=100, clock=clock, jitter=0, stamps=SharedStamps("test", tmp_path), **QUIET) for _ in range(2)]
