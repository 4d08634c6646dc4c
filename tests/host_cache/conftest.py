import pytest

from tests.host_cache.workers import Worker, make_cache


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "host"


@pytest.fixture
def view(folder, clock, closed):
    """Make a cache in the folder, as one more process sees it, on the clock of the test."""
    return lambda **options: closed(make_cache(folder, **{"clock": clock, **options}))


@pytest.fixture
def worker(folder):
    """Start a worker process on the folder."""
    started = []
    yield lambda **options: started.append(Worker(folder, options)) or started[-1]
    for each in started:
        each.kill()
