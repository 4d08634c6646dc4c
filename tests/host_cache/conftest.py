import pytest

from tests.host_cache.workers import Master, make_cache


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "host"


@pytest.fixture
def view(folder, clock, closed):
    """Make a cache in the folder, as one more process sees it, on the clock of the test."""
    return lambda **options: closed(make_cache(folder, **{"clock": clock, **options}))


@pytest.fixture(scope="module")
def master():
    with Master() as running:
        yield running


@pytest.fixture
def worker(master, folder):
    """Start a worker process on the folder."""
    yield lambda **options: master.start(folder, **options)
    master.end_workers()
