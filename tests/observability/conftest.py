import pytest

from wheelcache import Cache


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def make(path, clock):
    """Make a cache that publishes in ``path``, on the test's clock."""
    made = []

    def make_cache(name="pages", **options):
        made.append(Cache(name, **{"clock": clock, "jitter": 0, "figures_dir": path, **options}))
        return made[-1]

    yield make_cache
    for each in made:
        each.close()


@pytest.fixture
def caches():
    """The caches of this process, as far as an exporter knows."""
    return []


@pytest.fixture
def make_exported(caches, clock):
    """Make one of ``caches``."""

    def make_cache(name="pages", **options):
        caches.append(Cache(name, **{"clock": clock, "jitter": 0, "log_interval": None, **options}))
        return caches[-1]

    yield make_cache
    for each in caches:
        each.close()
