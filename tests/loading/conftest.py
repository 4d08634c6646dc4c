from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.loading.harness import Site
from tests.waiting import until
from wheelcache.runtime.alarm import Alarm


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


@pytest.fixture
def waiters(monkeypatch):
    """``waiters(n)`` returns when ``n`` callers in all have begun to wait for a flight."""
    begun = []

    class WatchedAlarm(Alarm):
        def wait(self, seconds):
            begun.append(self)
            return super().wait(seconds)

        async def wait_async(self, seconds):
            begun.append(self)
            return await super().wait_async(seconds)

    monkeypatch.setattr("wheelcache.loading.flight_table.Alarm", WatchedAlarm)

    def wait_until(count):
        assert until(lambda: len(begun) == count), f"{len(begun)} wait, not {count}"

    wait_until.begun = begun
    return wait_until
