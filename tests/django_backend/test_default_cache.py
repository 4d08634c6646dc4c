"""``from wheelcache.django_backend import cache``: the default cache, whatever the settings say it is by now."""

import asyncio
import threading
from pathlib import Path
from unittest import mock

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from tests.django_backend.conftest import BACKEND
from tests.scripts import run
from wheelcache.django_backend import WheelCache, cache

ROOT = Path(__file__).parents[2]
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
OWN = f"{__name__}.OwnCache"
UNKNOWN = f"{__name__}.Unknown"


class OwnCache(WheelCache):
    """A backend with a method and attributes of its own."""

    flavour = "vanilla"

    def get_twice(self, key):
        return [self.get(key), self.get(key)]


class Unknown(BaseCache):
    """A backend of which nothing says that threads may share an object."""

    def __init__(self, location, params):
        super().__init__(params)
        self.made_in = threading.get_ident()
        inner = LocMemCache(location, params)
        for name in ("add", "get", "set", "delete", "clear", "has_key"):
            setattr(self, name, getattr(inner, name))


def settings(backend=BACKEND, location="handle", **more):
    return override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": location, **more}})


def tiered(l2):
    near = {"BACKEND": "wheelcache.django_backend.TieredCache", "LOCATION": "handle", "OPTIONS": {"L2": "far"}}
    return override_settings(CACHES={"default": near, "far": {"BACKEND": l2, "LOCATION": "far"}})


OVERRIDES = {
    "WheelCache": settings,
    "a subclass": lambda: settings(OWN),
    "TieredCache": lambda: tiered(LOCMEM),
    "TieredCache over what is not known": lambda: tiered(UNKNOWN),
    "LocMemCache": lambda: settings(LOCMEM),
    "DummyCache": lambda: settings("django.core.cache.backends.dummy.DummyCache"),
}


@pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
def test_it_is_the_default_cache_of_the_settings(override):
    with override():
        stores = cache.add("key", [1]) and cache.get("key") == [1]
        assert caches["default"].get("key") == cache.get("key")
        caches["default"].set("key", 2)
        assert cache.get("key") == caches["default"].get("key")
        assert ("key" in cache) is ("key" in caches["default"])
        assert cache.get_many(["key", "none"]) == caches["default"].get_many(["key", "none"])
        assert asyncio.run(cache.aget("key")) == asyncio.run(caches["default"].aget("key"))
        assert cache.default_timeout == caches["default"].default_timeout == 300
        assert cache.make_key("key") == caches["default"].make_key("key")
        assert stores or type(caches["default"]).__name__ == "DummyCache"
        cache.clear()
        assert cache.get("key") is None
        # A missing attribute is an AttributeError, as with a backend.
        assert not hasattr(cache, "no such method")
        assert not hasattr(cache, "__no_such__")


def test_it_follows_override_settings_and_back():
    cache.set("key", "default")
    with settings(location="other", KEY_PREFIX="one", TIMEOUT=5):
        assert (cache.get("key"), cache.key_prefix, cache.default_timeout) == (None, "one", 5)
        cache.set("key", "other")
        with settings(LOCMEM, "third", TIMEOUT=6):
            assert (cache.get("key"), cache.key_prefix, cache.default_timeout) == (None, "", 6)
            cache.set("key", "third")
            assert cache.get("key") == "third"
        assert cache.get("key") == "other"
    assert cache.get("key") == "default"


def test_it_has_what_a_subclass_has_and_what_is_set_on_it_is_set_on_the_backend():
    with settings(OWN):
        cache.set("key", 1)
        assert (cache.get_twice("key"), cache.flavour) == ([1, 1], "vanilla")
        cache.flavour, cache.key_prefix = "lemon", "other"
        assert (cache.flavour, cache.key_prefix, cache.get("key")) == ("lemon", "other", None)
        cache.key_prefix = ""
        assert cache.get("key") == 1


@pytest.mark.parametrize("bound", [True, False])
def test_tests_may_put_doubles_on_it(bound):
    with settings(location=f"double {bound}"):
        if bound:
            cache.set("key", 1)
        with mock.patch.object(cache, "get", return_value="double"):
            assert cache.get("key") == "double"
        assert cache.get("key", "none") == (1 if bound else "none")
        with mock.patch.object(cache, "default_timeout", 7):
            assert cache.default_timeout == 7
        assert cache.default_timeout == 300


def test_threads_use_it_while_the_settings_change(in_thread):
    stop = threading.Event()

    def use():
        wrong = 0
        while not stop.is_set():
            cache.set("key", "value", None)
            wrong += cache.get("key", "value") != "value" or cache.get_or_set("other", "other") != "other"
        return wrong

    users = [in_thread(use) for _ in range(4)]
    try:
        for number in range(30):
            with settings(location=f"changing {number % 3}"):
                assert cache.get("key", "value") == "value"
    finally:
        stop.set()
    assert [user.result() for user in users] == [0] * 4


def test_where_threads_may_not_share_a_backend_each_has_its_own(together):
    with settings(UNKNOWN):
        assert all(together(lambda number: cache.made_in == threading.get_ident()))


def test_importing_it_needs_no_settings():
    script = """
        import inspect, pickle
        from wheelcache.django_backend import cache
        print(type(cache).__name__, inspect.iscoroutinefunction(cache), callable(cache))
        # Python 3.13 asks for this one.
        print(hasattr(cache, "_is_coroutine_marker"))
        from django.conf import settings
        settings.configure(CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "TIMEOUT": 7}})
        print(cache.default_timeout)
        """
    assert run(script).split() == ["DefaultCache", "False", "False", "False", "7"]


def test_a_wrong_option_is_named_when_it_is_first_used():
    with settings(OPTIONS={"MAX_ENTRIES": -1}), pytest.raises(Exception, match="MAX_ENTRIES"):
        cache.get("key")
