import pytest

from tests.engine import invariants
from tests.runtime.background import is_idle
from tests.waiting import until
from wheelcache import Cache


@pytest.fixture
def removals():
    return []


@pytest.fixture
def make(clock, removals):
    """Make a cache of TTL 10, without jitter, that reports its removals. It is checked at the end."""
    made = []

    def make_cache(**options):
        given = {"clock": clock, "ttl": 10, "jitter": 0, "on_removal": lambda *removal: removals.append(removal)}
        made.append(Cache(**{**given, **options}))
        return made[-1]

    yield make_cache
    assert until(is_idle)
    for each in made:
        invariants.check(each)


@pytest.fixture
def cache(make):
    return make()
