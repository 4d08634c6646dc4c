"""The options of ``get_or_set`` and ``aget_or_set`` beyond Django's: stale values, refreshes, timeouts, and None."""

import contextlib
import threading

import pytest
from django.db import connections
from django.urls import get_script_prefix, get_urlconf, set_urlconf
from django.urls.base import set_script_prefix
from django.utils import timezone, translation

from tests.engines import engine
from tests.waiting import PATIENCE, until


@pytest.mark.parametrize("asynchronous", [False, True])
def test_djangos_own_arguments_come_in_djangos_order_and_a_default_need_not_be_called(make, loop, asynchronous):
    cache = make()

    def ask(*args):
        return loop(lambda: cache.aget_or_set(*args)) if asynchronous else cache.get_or_set(*args)

    assert ask("value", ["a"], None, 2) == ["a"]
    assert ask("none", None) is None
    assert ask("not-kept", "now", 0) == "now"
    assert cache.get("value", version=2) == ["a"]
    assert (cache.get("none", "default"), "not-kept" in cache) == (None, False)


# The state of the thread that runs a loader


def somewhere_else(cache, loader, how, clock):
    """Run ``loader`` in a thread of the pool, and return its result."""
    if how == "load_timeout":
        return cache.get_or_set("key", loader, 60, load_timeout=PATIENCE)
    policy = {"grace": 20} if how == "grace" else {"refresh_ahead": 0.5}
    cache.get_or_set("key", "first", 10, **policy)
    clock.advance(15 if how == "grace" else 9)
    assert cache.get_or_set("key", loader, 10, **policy) == "first"
    assert until(lambda: cache.get("key") not in ("first", None) or engine(cache).stats().load_failures)
    return cache.get("key")


IN_A_THREAD = ["grace", "refresh_ahead", "load_timeout"]


@pytest.mark.parametrize("how", IN_A_THREAD)
def test_the_language_the_time_zone_and_the_urls_of_the_request_are_active_in_the_loader(make, clock, how):
    def look():
        place = [get_script_prefix(), get_urlconf(), timezone.get_current_timezone_name(), translation.get_language()]
        return place, threading.get_ident()

    set_script_prefix("/shop/")
    set_urlconf("tests.settings")
    try:
        for language, zone in (("de", "Asia/Tokyo"), ("fr", "Europe/Paris")):
            with translation.override(language), timezone.override(zone):
                place, thread = somewhere_else(make(), look, how, clock)
            assert place == ["/shop/", "tests.settings", zone, language]
            assert thread != threading.get_ident()
    finally:
        set_script_prefix("/")
        set_urlconf(None)


def test_the_language_that_a_loader_activates_in_the_callers_own_thread_stays(make):
    with translation.override("de"):
        make().get_or_set("key", lambda: translation.activate("fr"), 10, grace=20)
        assert translation.get_language() == "fr"


@pytest.fixture
def file_database(tmp_path, request):
    """A database that is a file, under the alias ``file``. One in memory stays open whatever closes it."""
    with contextlib.ExitStack() as stack:
        if request.config.pluginmanager.hasplugin("django"):
            stack.enter_context(request.getfixturevalue("django_db_blocker").unblock())
        connections.settings["file"] = {**connections.settings["default"], "NAME": tmp_path / "database.sqlite3"}
        yield
        del connections.settings["file"]


@pytest.mark.parametrize("how", IN_A_THREAD)
@pytest.mark.parametrize("fails", [False, True])
def test_the_database_connections_of_a_loaders_thread_are_closed_after_it(
    make, clock, file_database, how, fails, caplog
):
    used = []

    def loader():
        connection = connections["file"]
        used.append(connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 41 + 1")
            (answer,) = cursor.fetchone()
        assert connection.connection is not None
        if fails:
            raise LookupError
        return answer

    with pytest.raises(LookupError) if fails and how == "load_timeout" else contextlib.nullcontext():
        assert (somewhere_else(make(), loader, how, clock) == 42) is not fails
    assert until(lambda: used and used[0].connection is None)
    assert len(used) == 1
