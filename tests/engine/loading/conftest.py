from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine import conftest as engine
from tests.engine.loading.harness import InTasks, InThreads, Moments

# For tests of other folders.
cache, make, removals = engine.cache, engine.make, engine.removals


@pytest.fixture(params=[InThreads, InTasks], ids=["get_or_load", "aget_or_load"])
def twin(request, cache):
    made = request.param(cache)
    yield made
    made.settle()
    made.close()


@pytest.fixture
def moments(monkeypatch):
    """Return the moments of the loads of caches that are made after this."""
    made = Moments()
    made.patch(monkeypatch)
    return made


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as made:
        yield made


@pytest.fixture
def steady(monkeypatch):
    """Remove the random factor of the back-off times: 1, 2, 4 ... 60 seconds."""
    monkeypatch.setattr("wheelcache.engine.loading.failures.random", lambda: 1.0)
