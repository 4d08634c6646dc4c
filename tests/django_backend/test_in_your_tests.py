"""The documented behavior in a site's tests: entries under ``override_settings``, how to clear all of them, and loads
that see the rows of the test."""

from itertools import count

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.models import Session
from django.core.cache import caches
from django.test import override_settings
from django.utils import timezone

from tests.django_backend.conftest import BACKEND
from tests.waiting import PATIENCE
from wheelcache import loads_in_callers_thread

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


@pytest.mark.django_db
@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_with_the_switch_a_load_sees_the_rows_that_the_test_has_not_committed(make, clock, asynchronous):
    """Another thread would find an empty or a locked database."""
    cache = make()
    Session.objects.create(session_key="a", session_data="", expire_date=timezone.now())
    rows = Session.objects.acount if asynchronous else Session.objects.count
    ask = async_to_sync(cache.aget_or_set) if asynchronous else cache.get_or_set
    with loads_in_callers_thread():
        assert ask("timed", rows, load_timeout=PATIENCE) == 1
        assert ask("refreshed", lambda: 0, 10, grace=20) == 0
        clock.advance(15)
        assert ask("refreshed", rows, 10, grace=20) == 0
        assert cache.get("refreshed") == 1
