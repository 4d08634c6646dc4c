"""``caches[...]`` and ``django.core.cache.cache`` behave as Django's own, with and without direct access."""

import asyncio
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import CacheHandler, InvalidCacheBackendError, cache, caches
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Engine
from django.test import override_settings

from tests.django_backend.conftest import BACKEND
from tests.scripts import run
from tests.waiting import PATIENCE
from wheelcache.django_backend import WheelCache

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


CACHES = {
    "default": {"BACKEND": BACKEND, "LOCATION": "direct"},
    "other": {"BACKEND": BACKEND, "LOCATION": "direct other"},
    "locmem": {"BACKEND": LOCMEM, "LOCATION": "direct locmem"},
}

FRAGMENT = """{% load cache %}{% cache 300 side %}body{% endcache %}"""


def of(alias, **more):
    """Override ``CACHES``: as above, with another cache as the default."""
    return override_settings(CACHES={**CACHES, "default": {**CACHES[alias], **more}})


@pytest.fixture(params=[True, False], ids=["direct", "as in Django"])
def is_direct(request):
    with override_settings(WHEELCACHE_DIRECT_ACCESS=request.param, CACHES=CACHES):
        # The first object of this package begins direct access.
        for each in caches.all():
            each.clear()
        yield request.param


@pytest.fixture
def lookups(monkeypatch):
    """The aliases that Django's own code looked up."""
    aliases, original = [], CacheHandler.__getitem__

    def look_up(self, alias):
        aliases.append(alias)
        return original(self, alias)

    monkeypatch.setattr(CacheHandler, "__getitem__", look_up)
    return aliases


def render_fragment():
    return Engine(libraries={"cache": "django.templatetags.cache"}).from_string(FRAGMENT).render(Context())


def test_a_thread_looks_each_cache_up_once(is_direct, lookups):
    session = SessionStore()
    session["user"] = 7
    session.save()
    cache.set("key", "value")
    render_fragment()
    before = len(lookups)
    for _ in range(10):
        assert cache.get("key") == caches["default"].get("key") == "value"
        assert SessionStore(session.session_key)["user"] == 7
        assert render_fragment() == "body"
        assert "key" in cache
        assert cache.default_timeout == 300
    assert (len(lookups) == before) is is_direct


def test_caches_of_other_packages_are_looked_up_as_before(is_direct, lookups):
    with of("locmem"):
        cache.set("key", "value")
        before = len(lookups)
        assert cache.get("key") == caches["locmem"].get("key") == "value"
        assert len(lookups) > before
        assert not hasattr(cache, "delete_tags")


# Which object.


def test_each_thread_has_an_object_of_its_own(is_direct, together):
    def objects(number):
        mine = caches["default"]
        cache.set(f"{number}", number)
        assert mine is caches["default"]
        assert cache == mine
        assert cache.get.__self__ is mine
        return mine

    found = together(objects)
    assert len({id(each) for each in found}) == len(found)
    assert all(each != cache for each in found)
    # They have the same store.
    assert cache.get("0") == 0


def test_tasks_have_the_objects_of_their_context(is_direct, in_thread):
    async def look():
        assert await cache.aget("key") is None
        assert cache == caches["default"]
        return caches["default"]

    async def main():
        first, second = await asyncio.gather(look(), look())
        mine = caches["default"]
        # A task that begins now inherits the object, and so does synchronous code that it awaits.
        inherited = await asyncio.create_task(look())
        is_mine = await sync_to_async(lambda: cache == mine and caches["default"] is mine)()
        return first is second, inherited is mine, is_mine

    # In a new thread, since the context of this one has an object.
    assert in_thread(lambda: asyncio.run(main())).result(PATIENCE) == (False, True, True)


def test_objects_are_set_and_deleted_for_one_thread(is_direct, in_thread):
    mine = caches["default"]
    cache.set("key", "value")
    double = mock.Mock(spec=WheelCache)
    caches["default"] = double
    assert caches["default"] is double
    assert cache.get("key") is double.get.return_value
    assert in_thread(lambda: cache.get("key")).result(PATIENCE) == "value"
    del caches["default"]
    assert caches["default"] not in (mine, double)
    assert cache.get("key") == "value"
    del caches["default"]
    with pytest.raises(AttributeError):
        del caches["default"]
    caches["unknown to the settings"] = mine
    assert caches["unknown to the settings"] is mine


@pytest.mark.parametrize("missing", ["missing", "template_fragments"])
def test_missing_and_broken_aliases_raise_djangos_errors(is_direct, missing):
    for _ in range(3):
        with pytest.raises(InvalidCacheBackendError, match=rf"^The connection '{missing}' doesn't exist\.$"):
            caches[missing]
        with pytest.raises(TypeError, match="attribute name must be string"):
            caches[["default"]]
    with override_settings(CACHES={**CACHES, missing: {"BACKEND": "no.such.Cache"}}):
        for _ in range(2):
            with pytest.raises(InvalidCacheBackendError, match=r"^Could not find backend 'no\.such\.Cache'"):
                caches[missing]
    with override_settings(CACHES={**CACHES}):
        with pytest.raises(InvalidCacheBackendError, match=missing):
            caches[missing]
        caches.settings[missing] = CACHES["other"]
        assert isinstance(caches[missing], WheelCache)
        assert caches[missing] is caches[missing]
    with override_settings(CACHES={**CACHES, missing: CACHES["locmem"]}):
        assert type(caches[missing]).__name__ == "LocMemCache"


# Doubles.

PATCHES = {
    "the proxy": lambda: mock.patch.object(cache, "get", autospec=True, return_value="double"),
    "the object": lambda: mock.patch.object(caches["default"], "get", return_value="double"),
    "the class": lambda: mock.patch.object(WheelCache, "get", return_value="double"),
}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_doubles_are_called_and_restored(is_direct, patch):
    cache.set("key", "value")
    before = dict(vars(caches["default"]))
    for expected in ("value", "value"):
        assert cache.get("key") == caches["default"].get("key") == expected
        with patch():
            assert cache.get("key") == caches["default"].get("key") == "double"
    assert vars(caches["default"]) == before


# Settings.


def test_settings_are_followed_and_back(is_direct):
    cache.set("key", "first")
    mine = caches["default"]
    with of("default", KEY_PREFIX="p", TIMEOUT=7):
        assert cache != mine
        assert (cache.get("key"), cache.key_prefix, caches["default"].default_timeout) == (None, "p", 7)
        cache.set("key", "second")
        with of("other"):
            assert cache.get("key") is None
        assert cache.get("key") == "second"
    assert cache.get("key") == caches["default"].get("key") == "first"


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_a_wrong_setting_is_named(wrong):
    settings = override_settings(WHEELCACHE_DIRECT_ACCESS=wrong)
    with pytest.raises(ImproperlyConfigured, match=f"^WHEELCACHE_DIRECT_ACCESS must be True or False, not {wrong!r}$"):
        settings.enable()


def test_a_site_needs_nothing_but_the_backend_and_its_imports_may_come_first():
    script = """
        from django.core.cache import CacheHandler, cache, caches
        from django.conf import settings
        settings.configure(CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache"}})
        cache.set("key", "value")
        # Direct access has begun when the first object was made.
        caches["default"]
        CacheHandler.__getitem__ = None
        print(cache.get("key"), caches["default"].get("key"))
        """
    assert run(script).split() == ["value", "value"]
