"""The documented behavior in a site's tests: entries under ``override_settings``, and how to clear all of them."""

from itertools import count

from django.core.cache import caches
from django.test import override_settings

from tests.django_backend.conftest import BACKEND

_locations = map("in your tests {}".format, count())


def overridden(location, options=None, **beside):
    cache = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options or {}, **beside}
    return override_settings(CACHES={"default": cache})


def test_override_settings_finds_the_entries_of_the_same_location_and_options_only():
    location = next(_locations)
    with overridden(location):
        caches["default"].set("a", 1)
        for other in (overridden(next(_locations)), overridden(location, {"MAX_ENTRIES": 5})):
            with other:
                assert caches["default"].get("a") is None
    for same in (overridden(location), overridden(location, TIMEOUT=5)):
        with same:
            assert caches["default"].get("a") == 1


def test_clearing_all_caches_clears_those_that_another_thread_filled(together):
    with overridden(next(_locations)):
        together(lambda number: caches["default"].set(f"k{number}", 1))
        assert caches["default"].get("k0") == 1
        for cache in caches.all():
            cache.clear()
        assert caches["default"].get_many([f"k{number}" for number in range(32)]) == {}
