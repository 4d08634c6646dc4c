import pytest

from tests.fill_waits.callers import Caller
from wheelcache import Cache
from wheelcache.runtime.request_scope import end_request


@pytest.fixture(autouse=True)
def _request():
    """Check that the main thread has no leases before and after every test."""
    end_request()
    yield
    end_request()


@pytest.fixture
def make(closed):
    return lambda **options: closed(Cache(**{"jitter": 0, **options}))


@pytest.fixture
def cache(make):
    return make()


@pytest.fixture
def callers(make_caller):
    return [make_caller() for _ in range(4)]


@pytest.fixture
def make_caller(cache):
    made = []
    yield lambda cache=cache: made.append(Caller(cache)) or made[-1]
    for caller in made:
        # Those that still wait go on.
        caller.cache.close()
    for caller in made:
        caller.ends()
