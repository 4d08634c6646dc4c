"""FILL_WAIT in Django: requests, pages, tasks. ``tests/backends`` tests waiting calls, ``tests/fill_waits`` leases."""

import asyncio
import itertools
import threading
from collections import Counter
from contextlib import ExitStack
from contextvars import copy_context
from fractions import Fraction
from types import MappingProxyType

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.cache import CacheKeyWarning, caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished
from django.http import HttpResponse
from django.template import Context, Template, engines
from django.template.response import TemplateResponse
from django.test import RequestFactory, override_settings
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers

from tests.caches import is_leased
from tests.django_backend.conftest import finish_request
from tests.engines import engine
from tests.fill_waits.on_both.test_fill_wait import check_that_one_waiter_goes_on
from tests.snippets import ROOT, snippets
from tests.waiting import PATIENCE, THREADS, auntil_waiting, until_waiting
from wheelcache.django_backend import memoize

LONG = 1000
"""Seconds of a FILL_WAIT that ends after any test: a result within PATIENCE did not wait for it."""

PAGES = "views.decorators.cache."
BACKEND = "wheelcache.django_backend.WheelCache"


@pytest.fixture
def cache(make):
    return make({"FILL_WAIT": LONG})


# The option


def test_waits_that_mean_the_same_share_a_store_and_a_wrong_one_is_refused_though_it_equals_a_right_one(make):
    def stores(*given):
        return {id(make({"FILL_WAIT": waits}, location="waits").store) for waits in given}

    alike = [{"a": 1, "b": 2, "long": 3}, {"long": 3.0, "a": 1.0, "b": 2}, {"b": 2, "a": 1, "long": 3}]
    off = [0, {"a": 0}, {}]
    assert len(stores(*alike)) == len(stores(5, {"": 5.0})) == len(stores(*off)) == 1
    assert len(stores(alike[0], 5, 0)) == 3
    assert id(make(location="waits").store) in stores(0)
    stores(1, {"a": 1})
    for wrong in (True, {"a": True}):
        with pytest.raises(ImproperlyConfigured, match="FILL_WAIT"):
            stores(wrong)


def test_any_real_number_and_any_mapping_is_taken(make):
    for waits in (0.5, Fraction(1, 3), {"k": 5}, MappingProxyType({"key": 5})):
        cache = make({"FILL_WAIT": waits})
        assert cache.get("key") is None
        assert is_leased(engine(cache), ":1:key")


def test_a_prefix_is_of_the_key_as_the_caller_writes_it_and_versions_are_apart(make):
    cache = make({"FILL_WAIT": {"page:": LONG, "7": LONG, ":1:": LONG}}, KEY_PREFIX="site", VERSION=3)
    for key, waits in (("page:1", True), (71, True), ("site:3:page:1", False)):
        cache.get(key)
        assert is_leased(engine(cache), f"site:3:{key}") is waits
    cache.get("page:2", version=2)
    assert is_leased(engine(cache), "site:2:page:2")
    assert not is_leased(engine(cache), "site:3:page:2")


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("function", [{}, {"KEY_FUNCTION": lambda key, prefix, version: str(key)[::-1]}])
def test_any_key_may_be_waited_for(make, in_thread, function):
    cache = make({"FILL_WAIT": LONG}, **function)
    keys = ["with space", "x" * 300, 7, ("a", 1), "é", ""]
    for key in keys:
        cache.get(key)
    waiters = [in_thread(cache.get, key) for key in keys]
    until_waiting(len(keys))
    cache.set_many(dict.fromkeys(keys, "value"))
    assert [waiter.result(PATIENCE) for waiter in waiters] == ["value"] * len(keys)


GIVES_UP = {
    "touch with a timeout of 0": lambda cache: cache.touch("key", 0),
    "close": lambda cache: cache.close(),
    "the end of the request": lambda cache: finish_request(),
    "the close of another alias": lambda cache: type(cache)("another", {"OPTIONS": {"FILL_WAIT": 1}}).close(),
}


@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_if_the_holder_gives_up_one_waiter_goes_on_and_the_end_of_another_request_ends_nothing(
    site, in_thread, give_up
):
    # request_finished reaches those that Django made.
    cache = site(FILL_WAIT=LONG, JITTER=0)
    check_that_one_waiter_goes_on(cache, give_up, in_thread)


def test_the_settings_of_the_readme_lease_pages_and_fragments_but_no_key_that_may_never_be_set(make):
    (published,) = (each for each in snippets(ROOT / "README.md").values() if "CACHES =" in each)
    names = {"INSTALLED_APPS": []}
    exec(published, names)
    cache = make({"FILL_WAIT": names["CACHES"]["default"]["OPTIONS"]["FILL_WAIT"]})
    for key, waits in ((HEADERS, True), ("template.cache.name.1", True), ("maintenance", False)):
        assert cache.get(key) is None
        assert is_leased(engine(cache), f":1:{key}") is waits


# Pages: two keys each, the list of headers and the page

HEADERS = f"{PAGES}cache_header.prefix.{'a' * 32}.en-us.UTC"
PAGE = f"{PAGES}cache_page.prefix.GET.{'a' * 32}.{'b' * 32}.en-us.UTC"


def test_of_callers_that_wait_for_the_list_of_headers_one_makes_the_page_again_at_most(cache, in_thread):
    cache.get(HEADERS)
    waiters = [in_thread(lambda: cache.get(HEADERS) and cache.get(PAGE)) for _ in range(3)]
    until_waiting(3)
    cache.set(HEADERS, ["HTTP_COOKIE"], 60)
    # One of them has the lease on the page now.
    until_waiting(2)
    cache.set(PAGE, ["page"], 60)
    found = [waiter.result(PATIENCE) for waiter in waiters]
    assert sorted(found, key=str) == [None, ["page"], ["page"]]


# Django's features on top of it


@pytest.fixture
def site():
    """Django's default cache with these OPTIONS: ``site(FILL_WAIT=...)``."""
    with ExitStack() as overrides:

        def configure(location="fill wait", backend=BACKEND, **options):
            caches_setting = {
                "default": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options},
                "second": {"BACKEND": BACKEND, "LOCATION": f"behind {location}", "OPTIONS": {"JITTER": 0}},
            }
            overrides.enter_context(override_settings(CACHES=caches_setting))
            return caches["default"]

        yield configure


NESTED = Template(
    "{% load cache %}"
    "{% cache 60 outer %}{{ render.outer }} {% cache 60 inner %}{{ render.inner }}{% endcache %}{% endcache %}"
)


class Render:
    """Count how often a template computes each name, once all other threads wait."""

    def __init__(self):
        self.counts = Counter()

    def __getitem__(self, name):
        self.counts[name] += 1
        until_waiting(THREADS - 1)
        return name


@pytest.mark.parametrize("waits", [LONG, {"template.cache.": LONG}])
def test_fragments_one_in_another_are_rendered_once_by_one(site, together, waits):
    site(FILL_WAIT=waits)
    render = Render()
    assert together(lambda number: NESTED.render(Context({"render": render}))) == ["outer inner"] * THREADS
    assert render.counts == {"outer": 1, "inner": 1}


def test_a_page_is_made_at_most_twice_for_each_value_of_its_header_though_its_template_is_rendered_after_the_view(
    site, together
):
    site(FILL_WAIT={PAGES: LONG})
    # The first of all learns on which headers the page depends, before any other may know its key.
    first = threading.Lock()

    class Counts(Counter):
        def __getitem__(self, name):
            self.update([name])
            if first.acquire(blocking=False):
                until_waiting(THREADS - 1)
            return name

    render = Counts()

    @cache_page(60)
    @vary_on_headers("X-Name")
    def view(request):
        template = engines["django"].from_string("{{ name }}")
        return TemplateResponse(request, template, {"name": lambda: render[request.headers["X-Name"]]})

    def request(number):
        response = view(RequestFactory().get("/page", headers={"X-Name": f"name{number % 2}"}))
        try:
            if isinstance(response, TemplateResponse):
                response.render()
            return response.content.decode()
        finally:
            # The request is over.
            response.close()

    assert Counter(together(request)) == {"name0": THREADS / 2, "name1": THREADS / 2}
    assert set(render) == {"name0", "name1"}
    assert max(render.values()) <= 2


def a_cached_page(count):
    @cache_page(60)
    def view(request):
        return HttpResponse(count())

    def ask():
        response = view(RequestFactory().get("/page"))
        response.close()
        return response.content.decode()

    return ask


def a_memoized_function(count):
    return memoize(60)(lambda: count())


def a_fragment(count):
    return lambda: Template("{% load cache %}{% cache 60 name %}{{ count }}{% endcache %}").render(
        Context({"count": count})
    )


@pytest.mark.parametrize(("site_of", "makers"), [(a_cached_page, 2), (a_fragment, 1), (a_memoized_function, 1)])
def test_with_fill_grace_an_expired_page_is_made_by_one_or_two_and_no_other_visitor_waits(
    site, clock, together, site_of, makers
):
    # A store of its own, whose time is that of this test.
    site(site_of.__name__, FILL_WAIT=LONG, GRACE=30, JITTER=0)
    runs, others, answered = itertools.count(1), threading.Barrier(THREADS - makers), threading.Event()

    def count():
        if (number := next(runs)) > 1:
            # All other visitors have their answers before this one has.
            assert answered.wait(PATIENCE)
        return f"page {number}"

    ask = site_of(count)
    assert [ask(), ask()] == ["page 1"] * 2
    clock.advance(60)

    def visit(number):
        found = ask()
        if found == "page 1" and others.wait(PATIENCE) == 0:
            answered.set()
        return found

    made = [f"page {number}" for number in range(2, 2 + makers)]
    assert Counter(together(visit)) == {"page 1": THREADS - makers, **dict.fromkeys(made, 1)}
    assert ask() in made
    assert next(runs) == 2 + makers


# Coroutines, and requests of ASGI


def run(coroutine):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(in_time())


def test_of_all_tasks_that_miss_together_one_goes_on_and_each_and_a_thread_gets_a_value_of_its_own(cache, in_thread):
    async def ask(misses, threads):
        value = await cache.aget("key")
        if value is None:
            misses.append(1)
            threads.append(in_thread(cache.get, "key"))
            await auntil_waiting(20)
            value = ["computed"]
            await cache.aset("key", value)
        return value

    async def use():
        misses, threads = [], []
        values = await asyncio.gather(*(ask(misses, threads) for _ in range(20)))
        assert len(misses) == 1
        return [*values, threads[0].result(PATIENCE)]

    values = run(use())
    assert values == [["computed"]] * 21
    assert len(set(map(id, values))) == 21


def test_aget_hits_and_misses_as_get_does(make):
    cache = make({"FILL_WAIT": {"waits": LONG}})
    asked = {("waits", "default"): None, ("other",): [1], ("missing",): None, ("waits missing", "default"): "default"}

    async def use():
        await cache.aset_many({"waits": None, "other": [1]})
        await cache.aset("waits", 2, version=2)
        assert await cache.aget("waits", version=2) == 2
        return [await cache.aget(*arguments) for arguments in asked]

    with pytest.warns(CacheKeyWarning):
        assert run(use()) == list(asked.values())
    stats = engine(cache).stats()
    assert (stats.hits, stats.misses) == (3, 2)


def test_with_fill_grace_tasks_get_the_old_value_while_one_of_them_computes(site, clock):
    cache = site("tasks", FILL_WAIT=LONG, GRACE=30, JITTER=0)
    cache.set("key", "old", 60)
    clock.advance(60)

    async def ask(answered):
        value = await cache.aget("key")
        if value is None:
            await answered.wait()
            await cache.aset("key", "new")
        return value

    async def use():
        answered = asyncio.Event()
        tasks = [asyncio.create_task(ask(answered)) for _ in range(20)]
        await asyncio.sleep(0)
        # A synchronous call in the loop, which never waits.
        found = cache.get("key")
        others = await asyncio.gather(*tasks[1:])
        answered.set()
        return found, others, await tasks[0], await cache.aget("key")

    assert run(use()) == ("old", ["old"] * 19, None, "new")


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
        assert is_leased(engine(cache), ":1:key")

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


def test_a_view_and_its_middleware_act_for_one_request_whichever_asks_first(cache, in_thread):
    async def request_of_the_view():
        async with ThreadSensitiveContext():
            return await cache.aget("other", "by view"), await sync_to_async(cache.get)("other", "by middleware")

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
    assert in_thread(run, request_of_the_view()).result(PATIENCE) == ("by view", "by middleware")


def test_no_caller_waits_in_a_thread_that_all_of_a_loop_share(cache):
    """``sync_to_async`` outside of a request of an ASGI server: the holder needs the same thread to set."""

    async def fill():
        if await sync_to_async(cache.get)("k") is None:
            await asyncio.sleep(0)
            await sync_to_async(cache.set)("k", "it")
        return await sync_to_async(cache.get)("k")

    async def main():
        return await asyncio.gather(fill(), fill(), fill())

    assert run(main()) == ["it"] * 3
