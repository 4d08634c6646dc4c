"""The figures by view of the pages of Django's cache middleware and ``cache_page``, of a real site with a client."""

import asyncio
import uuid
from collections import Counter

import pytest
from django.core.cache import caches
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.views.decorators.cache import cache_page, never_cache
from django.views.decorators.vary import vary_on_headers

from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

runs = Counter()
FETCH = "django.middleware.cache.FetchFromCacheMiddleware"
PAGE = "wheelcache.django_backend.PageMiddleware"
UPDATE = "django.middleware.cache.UpdateCacheMiddleware"


def counted(name, decorate=lambda view: view, answer=lambda: HttpResponse("page")):
    def view(request, **kwargs):
        runs[name] += 1
        return answer()

    return decorate(view)


def fail():
    raise ValueError("broken")


class Rendered(SimpleTemplateResponse):
    """Rendered after the view, so that Django stores it in a callback."""

    def __init__(self):
        super().__init__("unused")

    @property
    def rendered_content(self):
        return "page"


async def coroutine(request):
    runs["coroutine"] += 1
    return HttpResponse("page")


def asks(request):
    runs["asks"] += 1
    get("/news/1")
    return HttpResponse("page")


class Hostile:
    """As a proxy for a request that does not run."""

    @property
    def __class__(self):
        raise RuntimeError("no request is running")


urlpatterns = [
    path("asks", asks, name="asks"),
    path("news/<int:number>", counted("news"), name="news"),
    path("varied", counted("varied", vary_on_headers("X-Theme")), name="varied"),
    path("private", counted("private", never_cache), name="private"),
    path("broken", counted("broken", answer=fail), name="broken"),
    path("rendered", counted("rendered", answer=Rendered), name="rendered"),
    path("coroutine", coroutine, name="coroutine"),
    path("decorated", cache_page(60)(counted("decorated")), name="decorated"),
    path("decorated-rendered", cache_page(60)(counted("again", answer=Rendered)), name="decorated-rendered"),
    path("decorated-coroutine", cache_page(60)(coroutine), name="decorated-coroutine"),
]


@pytest.fixture(params=["memory", "tiered"])
def site(request):
    """The settings of a site without middleware. Return the counts of the view of a page that was requested twice.

    A page is two entries: the list of headers and the page itself. Without the list, the page is not looked up. With a
    store behind, the second request reads both there, and makes the copies.
    """
    name = uuid.uuid4().hex
    backend = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": name}
    here = {"default": backend}
    if request.param == "tiered":
        store = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": name}
        tiered = {"BACKEND": "wheelcache.django_backend.TieredCache", "LOCATION": name, "OPTIONS": {"L2": "store"}}
        here = {"default": tiered, "store": store}
    runs.clear()
    with override_settings(CACHES=here, ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield (2, 1, 2, 1) if request.param == "memory" else (0, 3, 2, 1)


@pytest.fixture
def whole_site(site):
    with override_settings(MIDDLEWARE=[UPDATE, FETCH]):
        yield site


def rows():
    """Return hits, misses, puts and loads by view, after a check of the sums."""
    stats = caches["default"].store.cache.stats()
    groups = stats.groups
    assert sum(each.hits for each in groups.values()) == stats.hits
    assert sum(each.misses for each in groups.values()) == stats.misses
    assert sum(each.puts for each in groups.values()) == stats.puts
    assert sum(each.loads for each in groups.values()) == stats.loads + stats.load_failures
    return {name: (each.hits, each.misses, each.puts, each.loads) for name, each in groups.items() if name}


def get(*targets, theme="dark"):
    for target in targets:
        Client(raise_request_exception=False).get(target, headers={"X-Theme": theme})


def test_pages_of_the_whole_site_are_counted_for_their_view(whole_site):
    get("/news/1", "/news/1", "/news/1", "/news/2", "/private", "/private", "/broken", "/unknown")
    assert runs == {"news": 2, "private": 2, "broken": 1}
    news = {(2, 1, 2, 1): (4, 2, 4, 2), (0, 3, 2, 1): (2, 4, 2, 2)}
    assert rows() == {
        "news": news[whole_site],
        "private": (0, 2, 0, 0),
        "broken": (0, 1, 0, 0),
        NO_VIEW: (0, 1, 0, 0),
    }


def test_the_second_look_up_of_a_page_belongs_to_its_view_too(whole_site):
    for theme in ("dark", "light", "light"):
        get("/varied", theme=theme)
    # The list of headers is found twice; the light page is missed, and then found.
    assert rows().keys() == {"varied"}
    hits, misses, _, loads = rows()["varied"]
    assert (hits + misses, loads) == (5, 2)
    assert runs == {"varied": 2}


def test_the_computations_of_pages_whose_tags_are_collected_are_counted(site):
    with override_settings(MIDDLEWARE=[PAGE, UPDATE, FETCH]):
        for theme in ("dark", "light", "light"):
            get("/varied", theme=theme)
    assert rows()["varied"][-1] == 2


def test_decorated_views_are_counted_by_their_name(site):
    get("/decorated", "/decorated", "/decorated-rendered", "/decorated-rendered")
    assert rows() == {"decorated": site, "decorated-rendered": site}


def test_a_page_that_is_rendered_later_belongs_to_its_view(whole_site):
    get("/rendered", "/rendered")
    assert rows() == {"rendered": whole_site}


@pytest.mark.parametrize("middleware", [[], [UPDATE, FETCH]])
def test_async_requests_are_counted_for_their_view(site, middleware):
    targets = ["/decorated-coroutine", "/decorated-coroutine", "/unknown"] if not middleware else ["/coroutine"] * 2

    async def browse():
        client = AsyncClient(raise_request_exception=False)
        for target in targets:
            await client.get(target)

    with override_settings(MIDDLEWARE=middleware):
        asyncio.run(browse())
        name = targets[0].removeprefix("/")
        assert rows() == {name: site}


def test_requests_of_an_asgi_server_are_counted_when_they_end(whole_site):
    async def ask(target):
        scope = {
            "type": "http",
            "method": "GET",
            "path": target,
            "headers": [(b"host", b"testserver")],
            "query_string": b"",
        }
        received = [{"type": "http.request"}]

        async def receive():
            return received.pop() if received else await asyncio.Event().wait()

        async def send(message):
            pass

        await ASGIHandler()(scope, receive, send)

    async def browse():
        await asyncio.gather(*[ask(target) for target in ("/private", "/unknown", "/coroutine")])
        await ask("/coroutine")

    asyncio.run(browse())
    assert rows() == {"coroutine": whole_site, "private": (0, 1, 0, 0), NO_VIEW: (0, 1, 0, 0)}


def test_a_page_belongs_to_its_view_although_the_view_asks_for_another_page(whole_site):
    get("/asks", "/asks")
    # The end of the inner request ends the computation of the outer one for the figures.
    hits, misses, puts, _ = whole_site
    assert {name: row[:3] for name, row in rows().items()} == {
        "asks": (hits, misses, puts),
        "news": (0, 1, puts if hits else 0),
    }


class NotCalled(HttpRequest):
    def __init__(self):
        """Do not make the attributes of a request."""


@pytest.mark.parametrize("request_type", [Hostile, NotCalled, dict])
def test_a_local_variable_that_only_looks_like_a_request_is_none(site, request_type):
    request = request_type()
    assert caches["default"].get("views.decorators.cache.cache_header..0123.en-us.UTC") is None
    assert rows() == {NO_VIEW: (0, 1, 0, 0)}
    assert request is not None


def test_a_page_without_a_request_has_no_view(site):
    cache = caches["default"]
    key = "views.decorators.cache.cache_header..0123.en-us.UTC"
    assert cache.get(key) is None
    cache.set(key, [])
    cache.get(key)
    assert rows().keys() == {NO_VIEW}
