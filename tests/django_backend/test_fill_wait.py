"""FILL_WAIT: of all who miss a key at once with ``get``, one fills it, and the others get what he sets."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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

from tests.engines import engine
from tests.waiting import PATIENCE, THREADS, until
from wheelcache.leases.fill_leases import end_request

LONG = 60
"""Seconds of a FILL_WAIT that nobody should come to the end of; what takes less than PATIENCE did not wait for it."""

PAGES = "views.decorators.cache."
BACKEND = "wheelcache.django_backend.WheelCache"


@pytest.fixture(autouse=True)
def _end_of_the_request():
    yield
    end_request()


@pytest.fixture
def cache(make):
    return make({"FILL_WAIT": LONG})


def leases(cache):
    return list(engine(cache)._leases.in_force.values())


def waiting(cache):
    return sum(len(lease.waiters) for lease in leases(cache))


@pytest.fixture
def in_thread():
    """Start a function in a thread of its own, each call in a new one; what it returns comes by ``result``."""
    pools = []

    def start(function, *args):
        pools.append(ThreadPoolExecutor(1))
        return pools[-1].submit(function, *args)

    yield start
    for pool in pools:
        pool.shutdown()


@contextmanager
def held(cache, *keys, by):
    """Another thread misses ``keys`` and does nothing; at the end its request ends."""
    has, over = threading.Event(), threading.Event()

    def hold():
        for key in keys:
            cache.get(key)
        has.set()
        assert over.wait(PATIENCE * 3)
        cache.close()

    holding = by(hold)
    assert has.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        holding.result(PATIENCE)


def goes_on_at_once(function):
    started = time.monotonic()
    result = function()
    assert time.monotonic() - started < PATIENCE
    return result


# The option

TAKES = "a number of seconds >= 0, or a dict of key prefixes (strings) to such numbers"


NAN, INF = float("nan"), float("inf")

# What is wrong, and what of it the error shows: of a dict with a wrong number, the number.
WRONG = [
    *((wrong, wrong) for wrong in (-1, "5", None, True, False, NAN, INF, 10**400, [5], ("a", 5))),
    *(({"right": 5, "wrong": wrong}, wrong) for wrong in (-1, "5", None, True, {}, NAN, INF, [5])),
    *((wrong, wrong) for wrong in ({1: 5}, {None: 5}, {b"a": 5}, {"a": 5, ("b",): 5})),
]


@pytest.mark.parametrize(("wrong", "shown"), WRONG, ids=lambda value: repr(value)[:40])
def test_a_wrong_fill_wait_is_an_error_that_names_it_and_what_it_takes_and_got(make, wrong, shown):
    with pytest.raises(ImproperlyConfigured) as refused:
        make({"FILL_WAIT": wrong})
    for part in ("FILL_WAIT", TAKES, f"not {shown!r}"):
        assert part in str(refused.value)


@pytest.mark.parametrize("first", [1, {"a": 1}])
def test_a_wrong_fill_wait_is_refused_even_if_a_store_with_an_equal_right_one_is_there(make, first):
    make({"FILL_WAIT": first}, location=f"equal waits {first}")
    with pytest.raises(ImproperlyConfigured, match="FILL_WAIT"):
        make({"FILL_WAIT": {"a": True} if isinstance(first, dict) else True}, location=f"equal waits {first}")


@pytest.mark.parametrize("off", [0, 0.0, {}, {"": 0}, {"a": 0, "key": 0.0}])
def test_without_fill_wait_a_miss_takes_no_lease(make, off):
    cache = make({"FILL_WAIT": off})
    assert cache.get("key") is None
    assert asyncio.run(cache.aget("key")) is None
    assert not leases(cache)


def test_it_is_off_unless_asked_for(make):
    cache = make()
    cache.get("key")
    assert not leases(cache)


@pytest.mark.parametrize("on", [5, 0.5, Fraction(1, 3), {"": 5}, {"k": 5}, MappingProxyType({"key": 5})])
def test_with_fill_wait_a_miss_takes_a_lease(make, on):
    cache = make({"FILL_WAIT": on})
    assert cache.get("key") is None
    assert len(leases(cache)) == 1


def test_of_several_prefixes_of_a_key_the_longest_decides(make):
    cache = make({"FILL_WAIT": {"": 10, "pages.raw.": 0, "pages.": 20, "pages.raw.slow": 30}})
    started = time.monotonic()
    for key in ("other", "pages.home", "pages.raw.home", "pages.raw.slow.home", "pages"):
        cache.get(key)
    waits = {lease.key: lease.until - started for lease in leases(cache)}
    assert waits == {
        ":1:other": pytest.approx(10, abs=5),
        ":1:pages.home": pytest.approx(20, abs=5),
        ":1:pages.raw.slow.home": pytest.approx(30, abs=5),
        ":1:pages": pytest.approx(10, abs=5),
    }


def test_a_prefix_is_of_the_key_as_the_caller_writes_it(make):
    cache = make({"FILL_WAIT": {"page:": LONG, "7": LONG, ":1:": LONG}}, KEY_PREFIX="site", VERSION=3)
    for key in ("page:1", 71, "site:3:page:1"):
        cache.get(key)
    assert {lease.key for lease in leases(cache)} == {"site:3:page:1", "site:3:71"}


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


# Who waits, and what he gets


def test_of_all_who_miss_together_one_goes_on_and_the_others_get_what_he_sets(cache, together):
    misses = []

    def ask(number):
        value = cache.get("key")
        if value is None:
            misses.append(number)
            assert until(lambda: waiting(cache) == THREADS - 1)
            value = ["computed", number]
            cache.set("key", value)
        return value

    values = together(ask)
    assert len(misses) == 1
    assert values == [["computed", misses[0]]] * THREADS
    # Nobody can change what another got.
    assert len(set(map(id, values))) == THREADS
    assert not leases(cache)
    stats = engine(cache).stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (THREADS - 1, 1, THREADS - 1)


FILLS = {
    "set": lambda cache: cache.set("key", "value"),
    "set for ever": lambda cache: cache.set("key", "value", None),
    "set of a version": lambda cache: cache.set("key", "value", version=1),
    "add": lambda cache: cache.add("key", "value"),
    "set_many": lambda cache: cache.set_many({"other": 1, "key": "value"}),
    "get_or_set": lambda cache: cache.get_or_set("key", lambda: "value"),
    "aset": lambda cache: asyncio.run(cache.aset("key", "value")),
    "aadd": lambda cache: asyncio.run(cache.aadd("key", "value")),
    "aget_or_set": lambda cache: asyncio.run(cache.aget_or_set("key", lambda: "value")),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("who", ["the holder", "somebody else"])
def test_whoever_brings_a_value_in_whatever_way_the_waiter_gets_it(cache, in_thread, fill, who):
    with held(cache, *["key"] * (who == "somebody else"), by=in_thread):
        if who == "the holder":
            assert cache.get("key") is None
        waiter = in_thread(cache.get, "key", "default")
        assert until(lambda: waiting(cache) == 1)
        fill(cache)
        assert waiter.result(PATIENCE) == "value"
        assert not leases(cache)


def test_a_none_that_is_set_is_a_value_for_the_waiter_as_well(cache, in_thread):
    cache.get("key")
    waiter = in_thread(cache.get, "key", "default")
    assert until(lambda: waiting(cache) == 1)
    cache.set("key", None)
    assert waiter.result(PATIENCE) is None
    assert goes_on_at_once(lambda: in_thread(cache.get, "key", "default").result(PATIENCE)) is None


def test_a_waiter_gets_the_value_though_it_expires_or_leaves_at_once(make, in_thread):
    cache = make({"FILL_WAIT": LONG, "MAX_ENTRIES": 1})
    cache.get("key")
    waiters = [in_thread(cache.get, "key") for _ in range(3)]
    assert until(lambda: waiting(cache) == 3)
    cache.set("key", "value", 0.001)
    cache.set("other", "evicts it")
    assert [waiter.result(PATIENCE) for waiter in waiters] == ["value"] * 3


GIVES_UP = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key", "other"]),
    "set with a timeout of 0": lambda cache: cache.set("key", 1, 0),
    "set_many with a timeout of 0": lambda cache: cache.set_many({"key": 1}, 0),
    "touch with a timeout of 0": lambda cache: cache.touch("key", 0),
    "close": lambda cache: cache.close(),
    "the end of the request": lambda cache: request_finished.send(sender=None),
    "the close of another alias": lambda cache: type(cache)("another", {"OPTIONS": {"FILL_WAIT": 1}}).close(),
}


@pytest.mark.parametrize("give_up", GIVES_UP.values(), ids=GIVES_UP)
def test_if_the_holder_gives_up_exactly_one_waiter_is_the_next(make, in_thread, give_up):
    options = {"FILL_WAIT": LONG, "JITTER": 0, "LOG_INTERVAL": None}
    with override_settings(CACHES={"default": {"BACKEND": BACKEND, "LOCATION": "gives up", "OPTIONS": options}}):
        # request_finished reaches those that Django made.
        cache = caches["default"]
        cache.get("key")
        waiters = [in_thread(cache.get, "key") for _ in range(5)]
        assert until(lambda: waiting(cache) == 5)
        give_up(cache)
        assert until(lambda: any(waiter.done() for waiter in waiters))
        # His thread did nothing with it so far.
        assert until(lambda: waiting(cache) == 4)
        assert [waiter.done() for waiter in waiters].count(True) == 1
        cache.set("key", "value")
        assert sorted(waiter.result(PATIENCE) or "missed" for waiter in waiters) == ["missed", *["value"] * 4]


def test_a_set_with_a_timeout_of_zero_or_a_delete_by_another_leaves_the_holder_his_lease(cache, in_thread):
    with held(cache, "key", by=in_thread):
        cache.delete("key")
        cache.set("key", 1, 0)
        cache.close()
        assert len(leases(cache)) == 1


def test_the_end_of_anothers_request_ends_no_lease_but_his(cache, in_thread):
    cache.get("mine")
    with held(cache, "his", by=in_thread):
        assert len(leases(cache)) == 2
    assert [lease.key for lease in leases(cache)] == [":1:mine"]


def test_a_thread_that_ends_without_a_word_gives_up(cache, in_thread):
    holder = threading.Thread(target=cache.get, args=("key",))
    holder.start()
    holder.join(PATIENCE)
    assert goes_on_at_once(lambda: in_thread(cache.get, "key").result(PATIENCE)) is None


def test_nobody_waits_longer_than_fill_wait_for_one_who_hangs(make, in_thread):
    cache = make({"FILL_WAIT": 0.3})
    with held(cache, "key", by=in_thread):
        started = time.monotonic()
        waiters = [in_thread(cache.get, "key", "default") for _ in range(5)]
        assert [waiter.result(PATIENCE) for waiter in waiters] == ["default"] * 5
        assert time.monotonic() - started < 0.3 + PATIENCE / 2


def test_a_lease_that_timed_out_is_free_for_the_next(make, in_thread, clock):
    cache = make({"FILL_WAIT": 5})
    with held(cache, "key", by=in_thread):
        clock.advance(5)
        assert goes_on_at_once(lambda: cache.get("key")) is None
        (lease,) = leases(cache)
        assert lease.until == clock() + 5


# Who does not


@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.has_key("key"),
        lambda cache: "key" in cache,
        lambda cache: cache.get_many(["key", "other"]),
        lambda cache: cache.touch("key"),
        lambda cache: cache.add("other", 1),
        lambda cache: cache.delete("key"),
        lambda cache: cache.get_or_set("other", 1),
        lambda cache: cache.set("key", 1),
        lambda cache: asyncio.run(cache.ahas_key("key")),
        lambda cache: asyncio.run(cache.aget_many(["key"])),
        lambda cache: asyncio.run(cache.atouch("key")),
        lambda cache: asyncio.run(cache.aget_or_set("other", 1)),
    ],
)
def test_only_get_takes_a_lease_or_waits_for_one(cache, in_thread, call):
    call(cache)
    assert not leases(cache)
    cache.clear()
    with held(cache, "key", "other", by=in_thread):
        goes_on_at_once(lambda: in_thread(call, cache).result(PATIENCE))
        assert engine(cache).stats().coalesced == 0


def test_a_hit_takes_no_lease_and_versions_are_apart(cache):
    cache.set("key", 1)
    assert cache.get("key") == 1
    assert not leases(cache)
    assert cache.get("key", version=2) is None
    assert [lease.key for lease in leases(cache)] == [":2:key"]


def test_get_or_set_does_not_wait_for_a_lease_and_ends_it(cache, in_thread):
    with held(cache, "key", by=in_thread):
        assert goes_on_at_once(lambda: cache.get_or_set("key", lambda: "loaded")) == "loaded"
        assert not leases(cache)


def test_a_loader_that_others_wait_for_does_not_wait(cache, in_thread):
    with held(cache, "key", by=in_thread):
        loading = in_thread(lambda: cache.get_or_set("other", lambda: cache.get("key", "missed")))
        assert goes_on_at_once(lambda: loading.result(PATIENCE)) == "missed"


def test_whoever_asks_again_for_what_he_is_to_fill_does_not_wait_for_himself(cache):
    assert goes_on_at_once(lambda: [cache.get("key", number) for number in range(3)]) == [0, 1, 2]
    assert len(leases(cache)) == 1


def test_two_who_each_want_what_the_other_fills_do_not_wait_for_each_other(cache, in_thread):
    both = threading.Barrier(2)

    def ask(first, then):
        cache.get(first)
        both.wait(PATIENCE)
        return cache.get(then, "missed")

    asking = [in_thread(ask, "a", "b"), in_thread(ask, "b", "a")]
    assert goes_on_at_once(lambda: [each.result(PATIENCE) for each in asking]) == ["missed", "missed"]


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", ["with space", "x" * 300, 7, ("a", 1), "é", ""])
def test_any_key_may_be_waited_for(cache, in_thread, key):
    cache.get(key)
    waiter = in_thread(cache.get, key)
    assert until(lambda: waiting(cache) == 1)
    cache.set(key, "value")
    assert waiter.result(PATIENCE) == "value"


def test_a_key_function_of_the_users_own_is_asked_and_waited_for(make, in_thread):
    cache = make({"FILL_WAIT": {"k": LONG}}, KEY_FUNCTION=lambda key, prefix, version: key[::-1])
    cache.get("key")
    waiter = in_thread(cache.get, "key")
    assert until(lambda: waiting(cache) == 1)
    cache.set("key", "value")
    assert waiter.result(PATIENCE) == "value"


# Pages: two keys each, of which the first stands for both

HEADERS = f"{PAGES}cache_header.prefix.{'a' * 32}.en-us.UTC"
PAGE = f"{PAGES}cache_page.prefix.GET.{'a' * 32}.{'b' * 32}.en-us.UTC"


def test_the_list_of_headers_is_there_for_others_once_the_page_is(cache, in_thread):
    cache.get(HEADERS)
    waiters = [in_thread(lambda: cache.get(HEADERS) and cache.get(PAGE)) for _ in range(5)]
    assert until(lambda: waiting(cache) == 5)
    cache.set(HEADERS, ["HTTP_COOKIE"], 60)
    assert HEADERS not in cache
    cache.set(PAGE, ["page"], 60)
    assert [waiter.result(PATIENCE) for waiter in waiters] == [["page"]] * 5
    assert (cache.get(HEADERS), leases(cache)) == (["HTTP_COOKIE"], [])
    assert engine(cache).expires_in(f":1:{HEADERS}") > 50


def test_a_list_whose_page_never_comes_is_there_when_the_request_is_over(cache):
    cache.get(HEADERS)
    cache.set(HEADERS, [], 60)
    with pytest.raises(TypeError):
        cache.set(PAGE, threading.Lock(), 60)
    cache.close()
    assert cache.get(HEADERS) == []
    assert not leases(cache)


def test_a_list_that_nobody_waits_for_is_stored_at_once(cache, in_thread):
    cache.set(HEADERS, ["first"], 60)
    assert cache.get(HEADERS) == ["first"]
    cache.delete(HEADERS)
    with held(cache, HEADERS, by=in_thread):
        # Made by one who did not ask, or went on without: it is his to set.
        cache.set(HEADERS, ["second"], 60)
        assert cache.get(HEADERS) == ["second"]


def test_a_page_for_other_headers_is_made_beside_the_first(cache, in_thread):
    cache.set(HEADERS, ["HTTP_COOKIE"])
    with held(cache, PAGE, by=in_thread):
        assert goes_on_at_once(lambda: cache.get(PAGE.replace("b" * 32, "c" * 32))) is None


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
    cache = site(FILL_WAIT={PAGES: LONG})
    # The cookie of a session that is gone, sent by two requests at once.
    key = "a" * 32
    assert SessionStore(key).get("user") is None
    assert not leases(cache)
    assert goes_on_at_once(lambda: in_thread(lambda: SessionStore(key).get("user")).result(PATIENCE)) is None


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


async def until_waiting(cache, number):
    async with asyncio.timeout(PATIENCE):
        while waiting(cache) < number:
            await asyncio.sleep(0)


TASKS = 100


def test_of_all_tasks_that_miss_together_one_goes_on_and_the_loop_never_stands_still(cache):
    misses = []

    async def ask():
        value = await cache.aget("key")
        if value is None:
            misses.append(1)
            await until_waiting(cache, TASKS - 1)
            value = ["computed"]
            await cache.aset("key", value)
        return value

    async def use():
        return await asyncio.gather(*(ask() for _ in range(TASKS)))

    values = run(use())
    assert values == [["computed"]] * TASKS
    assert len(misses) == 1
    assert len(set(map(id, values))) == TASKS


@pytest.mark.parametrize("end", ["return", "raise", "cancel", "delete", "timeout of 0"])
def test_the_lease_of_a_task_ends_with_it_and_one_waiter_is_the_next(cache, end):
    async def hold(has, over):
        assert await cache.aget("key") is None
        has.set()
        await over.wait()
        if end == "raise":
            raise LookupError
        if end == "delete":
            await cache.adelete("key")
            await asyncio.sleep(PATIENCE * 2)
        if end == "timeout of 0":
            await cache.aset("key", 1, 0)
            await asyncio.sleep(PATIENCE * 2)

    async def ask():
        value = await cache.aget("key")
        if value is None:
            await cache.aset("key", "value")
        return value

    async def use():
        has, over = asyncio.Event(), asyncio.Event()
        holder = asyncio.create_task(hold(has, over))
        await has.wait()
        waiters = [asyncio.create_task(ask()) for _ in range(5)]
        await until_waiting(cache, 5)
        over.set()
        if end == "cancel":
            holder.cancel()
        values = await asyncio.gather(*waiters)
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
        return values

    assert sorted(value or "missed" for value in run(use())) == ["missed", *["value"] * 4]


def test_a_task_that_is_cancelled_while_it_waits_takes_nobody_with_it(cache):
    async def hold(has, over):
        await cache.aget("key")
        has.set()
        await over.wait()
        await cache.aset("key", "value")

    async def use():
        has, over = asyncio.Event(), asyncio.Event()
        holder = asyncio.create_task(hold(has, over))
        await has.wait()
        impatient, patient = (asyncio.create_task(cache.aget("key")) for _ in range(2))
        await until_waiting(cache, 2)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        assert waiting(cache) == 1
        over.set()
        await holder
        return await patient

    assert run(use()) == "value"


def test_a_task_does_not_wait_longer_than_fill_wait(make, in_thread):
    cache = make({"FILL_WAIT": 0.3})
    with held(cache, "key", by=in_thread):
        started = time.monotonic()
        assert run(cache.aget("key", "default")) == "default"
        assert time.monotonic() - started < 0.3 + PATIENCE / 2


def test_what_a_task_starts_does_not_wait_for_it(cache):
    async def use():
        await cache.aget("key")
        return await asyncio.gather(cache.aget("key", "missed"), asyncio.to_thread(cache.get, "key", "missed"))

    assert goes_on_at_once(lambda: run(use())) == ["missed", "missed"]


def test_a_sync_get_in_an_event_loop_never_waits_since_that_would_stop_the_loop(cache, in_thread):
    async def use():
        return cache.get("key", "missed")

    with held(cache, "key", by=in_thread):
        assert goes_on_at_once(lambda: run(use())) == "missed"


@pytest.mark.parametrize("waiter", ["a thread", "a task"])
def test_tasks_and_threads_wait_for_each_other(cache, in_thread, waiter):
    async def ask():
        return await cache.aget("key")

    async def hold():
        await cache.aget("key")
        while waiting(cache) < 1:
            await asyncio.sleep(0.001)
        await cache.aset("key", ["value"])

    def hold_in_a_thread():
        cache.get("key")
        assert until(lambda: waiting(cache) == 1)
        cache.set("key", ["value"])

    holding = in_thread(*((run, hold()) if waiter == "a thread" else (hold_in_a_thread,)))
    assert until(lambda: leases(cache))
    asking = in_thread(*((cache.get, "key") if waiter == "a thread" else (run, ask())))
    assert asking.result(PATIENCE) == ["value"]
    holding.result(PATIENCE)


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
        assert len(leases(cache)) == 1

    in_thread(in_a_request, view).result(PATIENCE)
    assert not leases(cache)


def test_requests_of_asgi_wait_for_each_other_though_all_inherit_from_the_start_up(cache, in_thread):
    def start_up():
        cache.get("start-up")
        requests = [in_thread(copy_context().run, in_a_request, view) for _ in range(2)]
        return [request.result(PATIENCE) for request in requests]

    found = []

    def view():
        value = cache.get("key")
        if value is None:
            assert until(lambda: waiting(cache) == 1)
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

    found = goes_on_at_once(lambda: in_thread(run, request()).result(PATIENCE))
    assert found == ("by middleware", "by view", "by task", "by thread", "by sync_to_async")


def test_a_request_whose_view_asks_before_any_middleware_acts_for_one_as_well(cache, in_thread):
    async def request():
        async with ThreadSensitiveContext():
            return await cache.aget("key", "by view"), await sync_to_async(cache.get)("key", "by middleware")

    assert goes_on_at_once(lambda: in_thread(run, request()).result(PATIENCE)) == ("by view", "by middleware")


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
