"""A computation between a miss of ``get`` and the ``set`` that follows counts as a load, without an option."""

import asyncio
import sys
import threading
import time
import tracemalloc
import warnings

import flask
import flask_caching
import pytest

from tests.engines import engine
from tests.memory import traced
from tests.waiting import PATIENCE
from wheelcache.engine.loading import misses


def loads(cache):
    stats = cache.engine.stats()
    return stats.loads, sum(stats.load_buckets)


@pytest.mark.parametrize("options", [{}, {"fill_wait": 5}])
def test_a_miss_and_the_set_that_follows_are_a_load(make, options):
    cache = make(**options)
    for number in range(3):
        assert cache.get(f"k{number}") is None
        cache.set(f"k{number}", "v")
        assert cache.get(f"k{number}") == "v"
    assert loads(cache) == (3, 3)
    assert 0 <= cache.engine.stats().load_seconds < PATIENCE


def test_values_that_are_set_together_share_the_time_of_their_computation(make, monkeypatch):
    now = [misses.moment()]
    monkeypatch.setattr(misses, "moment", lambda: now[0])
    cache = make()
    cache.get_many(["a", "b", "c", "d"])
    now[0] += 2 * 10**9
    cache.set_many(dict.fromkeys("abcd", 1))
    assert loads(cache) == (4, 4)
    assert cache.engine.stats().load_seconds == 2


def test_a_set_without_a_miss_a_second_set_and_one_by_another_thread_are_none(make, in_thread):
    cache = make()
    cache.set("written", 1)
    cache.get("missed")
    in_thread(cache.set, "missed", 1).result()
    assert loads(cache) == (0, 0)
    cache.set("missed", 2)
    cache.set("missed", 3)
    assert loads(cache) == (1, 1)


def test_a_set_in_the_next_request_is_none(make):
    cache = make()
    cache.get("missed")
    cache.end_request()
    cache.set("missed", 1)
    assert loads(cache) == (0, 0)


def test_misses_that_no_set_follows_are_forgotten(make):
    cache = make()
    for number in range(5000):
        cache.get(f"missed-{number}")
    cache.set("missed-0", 1)
    cache.set("missed-4999", 1)
    assert loads(cache) == (1, 1)


def test_threads_that_compute_different_keys_are_timed_apart(make, together):
    cache = make()
    both = threading.Barrier(32)

    def work(number):
        cache.get(f"k{number}")
        both.wait(PATIENCE)
        cache.set(f"k{number}", 1)

    together(work)
    assert loads(cache) == (32, 32)


def test_tasks_that_compute_the_same_key_at_once_are_timed_apart(make):
    cache = make()

    async def compute(all_have_missed):
        cache.get("key")
        await all_have_missed.wait()
        cache.set("key", 1)

    async def compute_three_times():
        all_have_missed = asyncio.Barrier(3)
        await asyncio.gather(*(compute(all_have_missed) for _ in range(3)))

    asyncio.run(compute_three_times())
    assert loads(cache) == (3, 3)


def calls_of(function):
    """Return the names of the Python functions that ``function()`` calls."""
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return called


def test_a_key_that_is_never_set_costs_the_sets_of_other_keys_next_to_nothing(make):
    backend = make().backend
    backend.set("key", 1)
    before = calls_of(lambda: backend.set("key", 1))
    backend.get("never-set")
    after = calls_of(lambda: backend.set("key", 1))
    assert len(after) <= len(before) + 2, (before, after)


@pytest.mark.alone
def test_long_keys_that_were_missed_are_not_kept(make):
    cache = make()
    tracemalloc.start()
    try:
        with warnings.catch_warnings(action="ignore"):
            for number in range(100):
                cache.get(f"{number}" * 100_000)
        assert traced(__file__, "*/wheelcache/*") < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_page_of_cache_page_is_a_load(tmp_path):
    from django.core.cache import caches
    from django.http import HttpResponse
    from django.test import RequestFactory, override_settings
    from django.views.decorators.cache import cache_page

    backend = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": "pages", "OPTIONS": {"FIGURES_DIR": None}}
    with override_settings(CACHES={"default": backend}):
        view = cache_page(60)(lambda request: time.sleep(0.02) or HttpResponse("a page"))
        for _ in range(3):
            view(RequestFactory().get("/"))
        stats = engine(caches["default"]).stats()
    assert (stats.loads, stats.hits) == (1, 4)
    assert stats.load_seconds >= 0.02


def test_what_flask_caching_caches_and_memoizes_is_a_load():
    app = flask.Flask("fills")
    options = {"figures_dir": None}
    cache = flask_caching.Cache(
        app, config={"CACHE_TYPE": "wheelcache.flask_backend.WheelCache", "CACHE_OPTIONS": options}
    )
    cached = cache.cached(key_prefix="all")(lambda: time.sleep(0.02) or "cached")
    memoized = cache.memoize()(lambda number: time.sleep(0.02) or number)
    with app.test_request_context():
        for _ in range(3):
            assert (cached(), memoized(1), memoized(2)) == ("cached", 1, 2)
        stats = app.extensions["cache"][cache].engine.stats()
        assert stats.loads == 3
        assert stats.load_seconds >= 0.06
        cache.get("missed")
    with app.app_context():
        # Another request.
        cache.set("missed", 1)
        assert app.extensions["cache"][cache].engine.stats().loads == 3
