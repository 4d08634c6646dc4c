"""Backends on a clock that the test moves."""

import asyncio
from functools import partial
from itertools import count

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import override_settings
from django.utils import timezone, translation

from tests.guests import needs
from wheelcache import Cache, ManualClock, caches
from wheelcache.django_backend import WheelCache, stores
from wheelcache.runtime.request_scope import end_request

__all__ = [
    *("_end_of_the_request", "_forget_entries", "_forget_language_and_time_zone", "_open_connections"),
    *("any_site", "call", "clock", "make", "site"),
]

BACKEND = "wheelcache.django_backend.WheelCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
DUMMY = "django.core.cache.backends.dummy.DummyCache"


def finish_request():
    request_finished.send(sender=None)


_locations = map("store {}".format, count())


@pytest.fixture(autouse=True)
def _open_connections():
    """Leave connections open when requests begin and end, as Django's test client does.

    A test without the mark may not use the database, not even to close a connection that another test has opened.
    """
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture(autouse=True)
def _forget_entries():
    yield
    # There are thousands of empty ones by the end: to clear each after each test took a quarter of the time.
    for each in caches():
        if len(each):
            each.clear()
            # Otherwise the wheel thread would remove them during the next tests, which may listen to removals.
            while each._core.drain():
                pass


@pytest.fixture(autouse=True)
def _end_of_the_request():
    yield
    end_request()


@pytest.fixture(autouse=True)
def _forget_language_and_time_zone():
    """Keys of pages have both. A request leaves them active in its thread until the next one."""
    yield
    translation.deactivate()
    timezone.deactivate()


@pytest.fixture
def make():
    """Make a backend as Django does: ``make(OPTIONS, TIMEOUT=..., ...)``, in its own store unless LOCATION is given."""

    def make_backend(options=None, *, location=None, cls=WheelCache, **params):
        options = {"JITTER": 0, **(options or {})}
        return cls(next(_locations) if location is None else location, {"OPTIONS": options, **params})

    return make_backend


# The settings of sites.


def wheel(TIMEOUT=300, VERSION=1, KEY_PREFIX="", **options):
    params = {"TIMEOUT": TIMEOUT, "VERSION": VERSION, "KEY_PREFIX": KEY_PREFIX}
    return {"BACKEND": BACKEND, "LOCATION": next(_locations), "OPTIONS": {"JITTER": 0, **options}, **params}


def locmem():
    return {"BACKEND": LOCMEM, "LOCATION": next(_locations)}


def tiered():
    kind = "wheelcache.django_backend.TieredCache"
    return {"BACKEND": kind, "LOCATION": next(_locations), "OPTIONS": {"L2": "second"}}


@pytest.fixture
def site(clock):
    """Settings with these caches."""
    with override_settings(CACHES={"default": wheel(), "other": wheel(TIMEOUT=10, VERSION=2, KEY_PREFIX="p")}):
        yield


@pytest.fixture(params=["memory", pytest.param("tiered", marks=needs("near_cache")), "locmem"])
def any_site(request):
    """Settings whose default cache is of each kind."""
    kinds = {"memory": wheel, "tiered": tiered, "locmem": locmem}
    with override_settings(CACHES={"default": kinds[request.param](), "second": locmem()}):
        yield request.param


class Counted:
    """A function that counts its calls."""

    __qualname__ = "Counted"

    def __init__(self):
        self.calls = []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return [len(self.calls)]


@pytest.fixture
def clock(monkeypatch):
    """The time of every backend whose store is made in this test. Nothing expires until the test says so."""
    manual = ManualClock(1_000_000.0)
    monkeypatch.setattr(stores, "Cache", partial(Cache, clock=manual))
    return manual


@pytest.fixture(params=["threads", "tasks"])
def call(request):
    """Call a method of a cache, or its twin for coroutines: ``call(cache, "ttl", "key")``."""

    def call_method(cache, name, *args, **kwargs):
        if request.param == "threads":
            return getattr(cache, name)(*args, **kwargs)

        async def run():
            return await getattr(cache, f"a{name}")(*args, **kwargs)

        return asyncio.run(run())

    return call_method
