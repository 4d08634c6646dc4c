import os
from dataclasses import replace

import pytest

from tests.observability.published import FiguresDirectory
from wheelcache import Cache


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def directory(path):
    return FiguresDirectory(path)


@pytest.fixture
def make(path, clock):
    """Make a cache that publishes in ``path``, on the test's clock."""
    return lambda name="pages", **options: Cache(name, **{"clock": clock, "jitter": 0, "figures_dir": path, **options})


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


@pytest.fixture
def another_worker():
    """Publishes figures of a cache as if another process had it, which lives until the test ends."""
    files = []

    def publish(cache, pid, **stats):
        figures = cache.figures()
        changed = replace(figures, worker=f"{pid}-elsewhere", pid=pid, stats=replace(figures.stats, **stats))
        files.append(cache.publisher.directory.publish(changed))

    yield publish
    for file in files:
        os.close(file)
