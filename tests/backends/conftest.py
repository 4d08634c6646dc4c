"""Both backends, if need be on a clock that the test moves."""

import asyncio
import logging

import pytest

from tests.backends.adapters import ADAPTERS, use_clock
from tests.backends.on_django import OnDjangoAsync
from tests.backends.undecoded import ERRORS, Moved
from tests.flask_backend.conftest import BEFORE_2_5
from wheelcache import ManualClock
from wheelcache.runtime.request_scope import end_request

__all__ = ["_end_of_the_request", "_runner", "adapter", "clock", "deploy", "make", "over", "undecoded"]

# ``wheelcache.flask_backend.Cache``, which these tests import, needs Flask-Caching 2.5.
collect_ignore = ["test_memoize.py"] if BEFORE_2_5 else []


@pytest.fixture(params=ADAPTERS.values(), ids=ADAPTERS)
def adapter(request):
    return request.param


@pytest.fixture
def make(adapter):
    """Make a backend without jitter and without a line a minute, unless given."""
    return adapter.make


@pytest.fixture
def clock(monkeypatch):
    """The time of every backend that is made in this test. Nothing expires until the test says so."""
    manual = ManualClock(1_000_000.0)
    use_clock(monkeypatch, manual)
    return manual


@pytest.fixture
def over(trackings):
    from tests.near_cache.tiers import made_tiers

    with made_tiers(trackings) as over:
        yield over


@pytest.fixture
def deploy(monkeypatch):
    """From the call on, no ``Moved`` can be decoded."""
    return lambda error=ERRORS[2]: monkeypatch.setattr(Moved, "error", error)


@pytest.fixture
def undecoded(caplog):
    """Return the lines of the log about values that cannot be decoded."""
    caplog.set_level(logging.WARNING, "wheelcache")
    return lambda: [line for line in caplog.messages if "cannot be decoded" in line]


@pytest.fixture(autouse=True)
def _end_of_the_request():
    yield
    end_request()


@pytest.fixture(scope="package", autouse=True)
def _runner():
    with asyncio.Runner() as OnDjangoAsync.runner:
        yield
