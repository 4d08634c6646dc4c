"""FILL_WAIT in Django: requests, pages, tasks. Keys are in ``tests/backends``, leases by themselves in the engine."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import ExitStack
from contextvars import copy_context
from fractions import Fraction
from types import MappingProxyType

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import CacheKeyWarning, caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished
from django.http import HttpResponse
from django.template import Context, Template, engines
from django.template.response import TemplateResponse
from django.test import RequestFactory, override_settings
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.vary import vary_on_headers

from tests.django_backend.conftest import finish_request
from tests.engines import engine
from tests.waiting import PATIENCE, THREADS, auntil_waiting, until, until_waiting, waiting

LONG = 60
"""Seconds of a FILL_WAIT that nobody should come to the end of; what takes less than PATIENCE did not wait for it."""

PAGES = "views.decorators.cache."
BACKEND = "wheelcache.django_backend.WheelCache"


@pytest.fixture
def cache(make):
    return make({"FILL_WAIT": LONG})


# The option


@pytest.mark.parametrize("first", [1, {"a": 1}])
def test_a_wrong_fill_wait_is_refused_even_if_a_store_with_an_equal_right_one_is_there(make, first):
    make({"FILL_WAIT": first}, location=f"equal waits {first}")
    with pytest.raises(ImproperlyConfigured, match="FILL_WAIT"):
        make({"FILL_WAIT": {"a": True} if isinstance(first, dict) else True}, location=f"equal waits {first}")


def test_aliases_with_the_same_waits_share_their_entries_however_they_write_them(make):
    aliases = [
        make({"FILL_WAIT": waits}, location="same waits")
        for waits in ({"a": 1, "b": 2, "long": 3}, {"long": 3.0, "a": 1.0, "b": 2}, {"b": 2, "a": 1, "long": 3})
    ]
    assert len({id(alias.store) for alias in aliases}) == 1
    assert (
        make({"FILL_WAIT": 5}, location="same wait").store is make({"FILL_WAIT": {"": 5.0}}, location="same wait").store
    )
    assert make({"FILL_WAIT": 0}, location="none").store is make({"FILL_WAIT": {"a": 0}}, location="none").store
    assert make(location="none").store is make({"FILL_WAIT": 0}, location="none").store
    assert make({"FILL_WAIT": {"a": 1}}, location="none").store is not make(location="none").store


@pytest.mark.parametrize("on", [0.5, Fraction(1, 3), {"k": 5}, MappingProxyType({"key": 5})])
def test_any_real_number_and_any_mapping_is_taken(make, on):
    cache = make({"FILL_WAIT": on})
    assert cache.get("key") is None
    assert engine(cache).is_leased(":1:key")


def test_a_prefix_is_of_the_key_as_the_caller_writes_it_and_versions_are_apart(make):
    cache = make({"FILL_WAIT": {"page:": LONG, "7": LONG, ":1:": LONG}}, KEY_PREFIX="site", VERSION=3)
    for key, is_leased in (("page:1", True), (71, True), ("site:3:page:1", False)):
        cache.get(key)
        assert engine(cache).is_leased(f"site:3:{key}") is is_leased
    cache.get("page:2", version=2)
    assert engine(cache).is_leased("site:2:page:2")
    assert not engine(cache).is_leased("site:3:page:2")


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", ["with space", "x" * 300, 7, ("a", 1), "é", ""])
@pytest.mark.parametrize("function", [{}, {"KEY_FUNCTION": lambda key, prefix, version: str(key)[::-1]}])
def test_any_key_may_be_waited_for(make, in_thread, key, function):
    cache = make({"FILL_WAIT": LONG}, **function)
    cache.get(key)
    waiter = in_thread(cache.get, key)
    until_waiting()
    cache.set(key, "value")
    assert waiter.result(PATIENCE) == "value"


GIVES_UP = {
    "touch with a timeout of 0": lambda cache: cache.touch("key", 0),
    "close": lambda cache: cache.close(),
    "the end of the request": lambda cache: finish_request(),
    "the close of another alias": lambda cache: type(cache)("another", {"OPTIONS": {"FILL_WAIT": 1}}).close(),
}


@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_if_the_holder_gives_up_exactly_one_waiter_is_the_next_and_the_end_of_another_request_ends_nothing(
    site, in_thread, give_up
):
    # request_finished reaches those that Django made.
    cache = site(FILL_WAIT=LONG, JITTER=0, LOG_INTERVAL=None)
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(5)]
    until_waiting(5)
    in_thread(give_up, cache).result(PATIENCE)
    assert waiting() == 5
    give_up(cache)
    # The next one's thread did nothing with it so far.
    until_waiting(4)
    assert until(lambda: [waiter.done() for waiter in waiters].count(True) == 1)
    cache.set("key", "value")
    assert sorted(waiter.result(PATIENCE) or "missed" for waiter in waiters) == ["missed", *["value"] * 4]


# Pages: two keys each, of which the first stands for both

HEADERS = f"{PAGES}cache_header.prefix.{'a' * 32}.en-us.UTC"
PAGE = f"{PAGES}cache_page.prefix.GET.{'a' * 32}.{'b' * 32}.en-us.UTC"


def test_the_list_of_headers_is_there_for_others_once_the_page_is(cache, in_thread):
    cache.get(HEADERS)
    waiters = [in_thread(lambda: cache.get(HEADERS) and cache.get(PAGE)) for _ in range(5)]
    until_waiting(5)
    cache.set(HEADERS, ["HTTP_COOKIE"], 60)
    assert HEADERS not in cache
    cache.set(PAGE, ["page"], 60)
    assert [waiter.result(PATIENCE) for waiter in waiters] == [["page"]] * 5
    assert cache.get(HEADERS) == ["HTTP_COOKIE"]
    assert not engine(cache).is_leased(f":1:{HEADERS}")
    assert engine(cache).expires_in(f":1:{HEADERS}") > 50


def test_a_list_whose_page_never_comes_is_there_when_the_request_is_over(cache):
    cache.get(HEADERS)
    cache.set(HEADERS, [], 60)
    with pytest.raises(TypeError):
        cache.set(PAGE, threading.Lock(), 60)
    cache.close()
    assert cache.get(HEADERS) == []
    assert not engine(cache).is_leased(f":1:{HEADERS}")


def test_a_list_that_no_caller_waits_for_is_stored_at_once(cache, in_thread):
    cache.set(HEADERS, ["first"], 60)
    assert cache.get(HEADERS) == ["first"]
    cache.delete(HEADERS)
    cache.get(HEADERS)
    # Made by a caller that did not ask, or went on without: its own to set.
    in_thread(cache.set, HEADERS, ["second"], 60).result(PATIENCE)
    assert cache.get(HEADERS) == ["second"]


def test_a_page_for_other_headers_is_made_beside_the_first(cache, in_thread):
    cache.set(HEADERS, ["HTTP_COOKIE"])
    cache.get(PAGE)
    assert in_thread(cache.get, PAGE.replace("b" * 32, "c" * 32)).result(PATIENCE) is None


# What Django builds on it


@pytest.fixture
def site():
    """Django's default cache with these OPTIONS: ``site(FILL_WAIT=...)``."""
    with ExitStack() as overrides:

        def configure(**options):
            caches_setting = {"default": {"BACKEND": BACKEND, "LOCATION": "fill wait", "OPTIONS": options}}
            overrides.enter_context(override_settings(CACHES=caches_setting))
            return caches["default"]

        yield configure


NESTED = Template(
    "{% load cache %}"
    "{% cache 60 outer %}{{ render.outer }} {% cache 60 inner %}{{ render.inner }}{% endcache %}{% endcache %}"
)


class Render:
    """Counts how often a template computes each name. Slow enough for others to come."""

    def __init__(self):
        self.counts = Counter()
        self._lock = threading.Lock()

    def __getitem__(self, name):
        with self._lock:
            self.counts[name] += 1
        time.sleep(0.1)
        return name


@pytest.mark.parametrize("waits", [LONG, {"template.cache.": LONG}])
def test_fragments_one_in_another_are_rendered_once_by_one(site, together, waits):
    site(FILL_WAIT=waits)
    render = Render()
    assert together(lambda number: NESTED.render(Context({"render": render}))) == ["outer inner"] * THREADS
    assert render.counts == {"outer": 1, "inner": 1}


def test_fragments_are_rendered_by_all_without_fill_wait(site, together):
    site()
    render = Render()
    assert together(lambda number: NESTED.render(Context({"render": render}))) == ["outer inner"] * THREADS
    assert render.counts["outer"] > 1


def test_sessions_are_not_held_up_when_only_pages_wait(site, in_thread):
    site(FILL_WAIT={PAGES: LONG})
    # The cookie of a session that is gone, sent by two requests at once.
    key = "a" * 32
    assert SessionStore(key).get("user") is None
    assert in_thread(lambda: SessionStore(key).get("user")).result(PATIENCE) is None


def of_many_requests_together(together, view, **headers):
    """The bodies that 32 requests for a cached page get, and how many ran the view; each request ends."""
    page = cache_page(60)(view)

    def request(number):
        given = {name: value(number) for name, value in headers.items()}
        response = page(RequestFactory().get("/page", headers=given))
        try:
            if isinstance(response, TemplateResponse):
                response.render()
            return response.content.decode()
        finally:
            response.close()

    return Counter(together(request))


def test_a_page_is_made_once_though_its_template_is_rendered_after_the_view(site, together):
    site(FILL_WAIT={PAGES: LONG})
    render = Render()

    def view(request):
        return TemplateResponse(request, engines["django"].from_string("{{ render.page }}"), {"render": render})

    assert of_many_requests_together(together, view) == {"page": THREADS}
    assert render.counts == {"page": 1}


def test_a_page_that_varies_is_made_once_for_each_value_of_its_header(site, together):
    site(FILL_WAIT={PAGES: LONG})
    render = Render()

    @vary_on_headers("X-Who")
    def view(request):
        return HttpResponse(render[request.headers["X-Who"]])

    found = of_many_requests_together(together, view, x_who=lambda number: f"who{number % 4}")
    assert found == {f"who{number}": THREADS / 4 for number in range(4)}
    # The first of all learns on which headers the page depends, before any other may know its key.
    assert render.counts == {f"who{number}": 1 for number in range(4)}


def test_a_page_that_is_never_cached_holds_each_request_up_for_one_view_at_most(site, together):
    site(FILL_WAIT={PAGES: 0.5})
    runs = []

    @cache_control(private=True)
    def view(request):
        runs.append(1)
        return HttpResponse("private")

    started = time.monotonic()
    assert of_many_requests_together(together, view) == {"private": THREADS}
    assert len(runs) == THREADS
    assert time.monotonic() - started < PATIENCE


# Coroutines, and requests of ASGI


def run(coroutine):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(in_time())


TASKS = 100


def test_of_all_tasks_that_miss_together_one_goes_on_and_its_value_is_also_for_threads(cache, in_thread):
    async def ask(misses, threads):
        value = await cache.aget("key")
        if value is None:
            misses.append(1)
            threads += [in_thread(cache.get, "key") for _ in range(3)]
            await auntil_waiting(TASKS - 1 + len(threads))
            value = ["computed"]
            await cache.aset("key", value)
        return value

    async def use():
        misses, threads = [], []
        values = await asyncio.gather(*(ask(misses, threads) for _ in range(TASKS)))
        assert len(misses) == 1
        return values + [thread.result(PATIENCE) for thread in threads]

    values = run(use())
    assert values == [["computed"]] * (TASKS + 3)
    assert len(set(map(id, values))) == TASKS + 3


def test_a_sync_get_in_an_event_loop_never_waits_since_that_would_stop_the_loop(cache, in_thread):
    async def use():
        return cache.get("key", "missed")

    cache.get("key")
    assert in_thread(lambda: asyncio.run(use())).result(PATIENCE) == "missed"


def test_aget_hits_and_misses_as_get_does(make):
    cache = make({"FILL_WAIT": {"waits": LONG}})

    async def use():
        await cache.aset_many({"waits": None, "other": [1]})
        await cache.aset("waits", 2, version=2)
        return [
            await cache.aget("waits", "default"),
            await cache.aget("waits", version=2),
            await cache.aget("waits", "default", version=3),
            await cache.aget("other"),
            await cache.aget("missing"),
            await cache.aget("missing", "default"),
            await cache.aget("waits missing", "default"),
        ]

    with pytest.warns(CacheKeyWarning):
        assert run(use()) == [None, 2, "default", [1], None, "default", "default"]
    stats = engine(cache).stats()
    assert (stats.hits, stats.misses) == (3, 4)


def in_a_request(function):
    """Run ``function()`` in a thread, as Django's ASGI handler runs a sync view, and end the request."""

    async def request():
        async with ThreadSensitiveContext():
            # A task, whose context the rest of the request does not see: neither does Django's handler.
            await asyncio.create_task(sync_to_async(function)())
            await sync_to_async(request_finished.send)(sender=None)

    asyncio.run(request())


def test_what_a_thread_holds_for_a_request_of_asgi_ends_with_the_request(cache, in_thread):
    contexts = []

    def view():
        cache.get("key")
        # As a traceback or a timer of the server does.
        contexts.append(copy_context())
        assert engine(cache).is_leased(":1:key")

    in_thread(in_a_request, view).result(PATIENCE)
    assert in_thread(cache.get, "key", "missed").result(PATIENCE) == "missed"


def test_requests_of_asgi_wait_for_each_other_though_all_inherit_from_the_start_up(cache, in_thread):
    def start_up():
        cache.get("start-up")
        requests = [in_thread(copy_context().run, in_a_request, view) for _ in range(2)]
        return [request.result(PATIENCE) for request in requests]

    found = []

    def view():
        value = cache.get("key")
        if value is None:
            until_waiting()
            cache.set("key", "value")
        found.append(value)

    in_thread(start_up).result(PATIENCE * 2)
    assert sorted(found, key=str) == [None, "value"]


def test_a_view_and_its_middleware_act_for_one_request(cache, in_thread):
    async def request():
        async with ThreadSensitiveContext():
            missed = await sync_to_async(cache.get)("key", "by middleware")
            again = await cache.aget("key", "by view")
            both = await asyncio.gather(
                cache.aget("key", "by task"),
                asyncio.to_thread(cache.get, "key", "by thread"),
                sync_to_async(cache.get)("key", "by sync_to_async"),
            )
            return missed, again, *both

    found = in_thread(run, request()).result(PATIENCE)
    assert found == ("by middleware", "by view", "by task", "by thread", "by sync_to_async")


def test_a_request_whose_view_asks_before_any_middleware_acts_for_one_as_well(cache, in_thread):
    async def request():
        async with ThreadSensitiveContext():
            return await cache.aget("key", "by view"), await sync_to_async(cache.get)("key", "by middleware")

    assert in_thread(run, request()).result(PATIENCE) == ("by view", "by middleware")


def test_nobody_waits_in_a_thread_that_all_of_a_loop_share(cache):
    """``sync_to_async`` outside of a request of an ASGI server: who holds the lease needs the same thread to set."""

    async def fill():
        if await sync_to_async(cache.get)("k") is None:
            await asyncio.sleep(0)
            await sync_to_async(cache.set)("k", "it")
        return await sync_to_async(cache.get)("k")

    async def main():
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(fill(), fill(), fill())

    assert asyncio.run(main()) == ["it"] * 3
