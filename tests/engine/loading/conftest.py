from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine import invariants
from tests.engine.loading.harness import InTasks, InThreads, Moments
from tests.runtime.background import is_idle
from tests.waiting import until
from wheelcache import Cache


@pytest.fixture
def removals():
    return []


@pytest.fixture
def make(clock, removals):
    """Make a cache of TTL 10 that reports its removals. It is checked at the end."""
    made = []

    def make_cache(**options):
        given = {"ttl": 10, "jitter": 0}
        given["on_removal"] = lambda *removal: removals.append(removal)
        made.append(Cache(clock=clock, **{**given, **options}))
        return made[-1]

    yield make_cache
    assert until(is_idle)
    for each in made:
        invariants.check(each)


@pytest.fixture
def cache(make):
    return make()


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
