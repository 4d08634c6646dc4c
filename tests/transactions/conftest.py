"""Two caches that follow the transactions of the default database, in memory and in front of another cache."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from django.core.cache import caches
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

WHEEL = "wheelcache.django_backend.WheelCache"
HOST = "wheelcache.django_backend.HostCache"
TIERED = "wheelcache.django_backend.TieredCache"
FOLLOWS = {"TRANSACTIONS": True, "JITTER": 0}
SETTINGS = {
    "wheel": {"BACKEND": WHEEL, "LOCATION": "followed", "OPTIONS": FOLLOWS},
    "host": {"BACKEND": HOST, "LOCATION": "of the host", "OPTIONS": FOLLOWS},
    "tiered": {"BACKEND": TIERED, "OPTIONS": {"L2": "store", **FOLLOWS}},
    "store": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "behind"},
}


WRITES = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "delete_tags": lambda cache: cache.delete_tags("tag"),
    "clear": lambda cache: cache.clear(),
    "set": lambda cache: cache.set("key", "new"),
}


class Undone(Exception):
    """Rolls a block back."""


@contextmanager
def rolled_back(**given):
    """Run an atomic block that rolls back at its end."""
    with suppress(Undone), transaction.atomic(**given):
        yield
        raise Undone


@pytest.fixture(params=["wheel", "host", "tiered"])
def alias(request):
    return request.param


@pytest.fixture
def follows():
    """What the cache follows, as its option says."""
    return True


@pytest.fixture
def cache(alias, follows):
    options = {**SETTINGS[alias]["OPTIONS"], "TRANSACTIONS": follows}
    with override_settings(CACHES={**SETTINGS, "default": {**SETTINGS[alias], "OPTIONS": options}}):
        # The file of a host cache is from before the transactions of the test.
        caches["default"].get("key")
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


@contextmanager
def closing_connections():
    """Close the connections of the running thread to its databases at the end.

    Django leaves a database in memory open, which from Python 3.13 on is a warning when it is collected.
    """
    try:
        yield
    finally:
        for each in connections.all(initialized_only=True):
            BaseDatabaseWrapper.close(each)


@pytest.fixture
def others():
    """Call a function as another visitor does, in another thread: ``others(cache.get, "key")``."""

    def in_thread(function, *args, **kwargs):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(closing_connections()(function), *args, **kwargs).result()

    return in_thread
