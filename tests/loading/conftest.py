from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.loading.harness import Site


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as made:
        yield made


@pytest.fixture
def steady(monkeypatch):
    """Back-off times without their random factor: 1, 2, 4 ... 60 seconds."""
    monkeypatch.setattr("wheelcache.loading.backoff.random", lambda: 1.0)
