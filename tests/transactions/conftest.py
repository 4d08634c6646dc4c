"""Two caches that follow the transactions of the default database, in memory and in front of another cache."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import caches
from django.db import connection, connections
from django.test import override_settings

from tests.shared_stamps import keep_in

WHEEL = "wheelcache.django_backend.WheelCache"
TIERED = "wheelcache.django_backend.TieredCache"
FOLLOWS = {"TRANSACTIONS": True, "JITTER": 0, "LOG_INTERVAL": None}
SETTINGS = {
    "wheel": {"BACKEND": WHEEL, "LOCATION": "followed", "OPTIONS": FOLLOWS},
    "host": {"BACKEND": WHEEL, "LOCATION": "of the host", "OPTIONS": {"COHERENCE": "host", **FOLLOWS}},
    "tiered": {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **FOLLOWS}},
    "store": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "behind"},
}


@pytest.fixture(params=["wheel", "host", "tiered"])
def alias(request):
    return request.param


@pytest.fixture
def cache(alias, tmp_path, monkeypatch):
    keep_in(tmp_path, monkeypatch.setattr)
    with override_settings(CACHES={**SETTINGS, "default": SETTINGS[alias]}):
        yield caches["default"]
        caches["store"].clear()
        caches["default"].clear()


@pytest.fixture
def on_disk(tmp_path):
    """A database that can be closed, which one in memory cannot."""
    before = connections["default"]
    connections["default"] = before.copy()
    connections["default"].settings_dict["NAME"] = tmp_path / "database"
    yield
    connections["default"].close()
    connections["default"] = before


@pytest.fixture
def others():
    """Call a function as another visitor does, in another thread: ``others(cache.get, "key")``."""

    def in_thread(function, *args, **kwargs):
        def call():
            try:
                return function(*args, **kwargs)
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    return in_thread
