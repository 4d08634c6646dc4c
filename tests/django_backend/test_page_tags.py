"""Tags of the pages that Django itself caches: with ``cache_page`` and with its middleware."""

import asyncio
from itertools import count

import pytest
from django.core.cache import caches
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.pages.on_django.sites import DjangoOnWsgi

pytestmark = pytest.mark.pairs(full="cache", of="cache")

WHEEL = {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": {"FILL_WAIT": 5}}
CACHES = {
    "in memory": {"default": WHEEL | {"OPTIONS": {}}},
    "in memory, with leases": {"default": WHEEL},
    "tiered": {
        "default": {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {"L2": "store"}},
        "store": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    },
    "tiered, over a cache with tags of its own": {
        "default": {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {"L2": "store"}},
        "store": WHEEL | {"OPTIONS": {}},
    },
}
COMPANION = "wheelcache.django_backend.PageMiddleware"
PER_SITE = ["django.middleware.cache.UpdateCacheMiddleware", "django.middleware.cache.FetchFromCacheMiddleware"]

numbers = count()
meanwhile = []


def article(request, number):
    request.cache_tags.add(f"article:{number}")
    for drop in meanwhile:
        drop()
    response = HttpResponse(f"{next(numbers)}")
    response["Cache-Tag"] = "all, articles"
    return response


def assigned(request):
    request.cache_tags = ["assigned"]
    return HttpResponse(f"{next(numbers)}")


def rendered(request):
    request.cache_tags.add("rendered")
    return TemplateResponse(request, "page_tags.html", {"number": next(numbers)})


def many(request):
    request.cache_tags.update(map(str, range(65)))
    return HttpResponse(f"{next(numbers)}")


def many_assigned(request):
    request.cache_tags = [*map(str, range(65))]
    return HttpResponse(f"{next(numbers)}")


def wrong(request):
    request.cache_tags.add(7)
    return HttpResponse()


def failing(request):
    raise LookupError


def asking(request):
    """Request another page of the site, which fails."""
    request.cache_tags.add("asking")
    with pytest.raises(LookupError):
        Client().get("/failing")
    return HttpResponse(f"{next(numbers)}")


for_a_minute = cache_page(60)
urlpatterns = [
    path("decorated/assigned", for_a_minute(assigned)),
    path("decorated/rendered", for_a_minute(rendered)),
    path("decorated/many", for_a_minute(many)),
    path("decorated/many-assigned", for_a_minute(many_assigned)),
    path("decorated/wrong", for_a_minute(wrong)),
    path("decorated/asking", for_a_minute(asking)),
    path("failing", failing),
    path("decorated/<int:number>", for_a_minute(article)),
    path("<int:number>", article),
]


@pytest.fixture(params=CACHES)
def cache(request, settings):
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [COMPANION]
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", {"page_tags.html": "{{ number }}"})]},
        }
    ]
    location = f"page tags {next(numbers)}"
    settings.CACHES = {alias: each | {"LOCATION": location} for alias, each in CACHES[request.param].items()}
    yield caches["default"]
    meanwhile.clear()


def body(target, client_class=Client):
    response = asyncio.run(AsyncClient().get(target)) if client_class is AsyncClient else client_class().get(target)
    assert "Cache-Tag" not in response.headers
    return response.content


@pytest.mark.pairs
@pytest.mark.parametrize("client_class", [Client, AsyncClient])
@pytest.mark.parametrize("how", ["cache_page", "middleware"])
def test_a_page_is_deleted_by_the_tags_of_its_request_and_of_its_header(cache, settings, how, client_class):
    if how == "middleware":
        settings.MIDDLEWARE = [COMPANION, *PER_SITE]
    one, two = ("/decorated/1", "/decorated/2") if how == "cache_page" else ("/1", "/2")
    for tag in ("article:1", "all", "articles"):
        page, other = body(one, client_class), body(two, client_class)
        assert body(one, client_class) == page
        cache.delete_tags(tag)
        assert body(one, client_class) != page
        assert (body(two, client_class) == other) == (tag == "article:1")


@pytest.mark.parametrize("name", ["assigned", "rendered"])
def test_a_view_may_assign_its_tags_and_render_its_page_later(cache, name):
    page = body(f"/decorated/{name}")
    assert body(f"/decorated/{name}") == page
    cache.delete_tags(name)
    assert body(f"/decorated/{name}") != page


def test_a_page_whose_tag_is_deleted_while_it_is_made_is_not_kept(cache):
    meanwhile.append(lambda: cache.delete_tags("article:1"))
    page = body("/decorated/1")
    meanwhile.clear()
    kept = body("/decorated/1")
    assert page != kept == body("/decorated/1")


@pytest.mark.parametrize("name", ["many", "many-assigned"])
def test_a_page_with_too_many_tags_is_not_kept(cache, name):
    assert body(f"/decorated/{name}") != body(f"/decorated/{name}")


def test_a_wrong_tag_is_named(cache):
    with pytest.raises(TypeError, match=r"request\.cache_tags must be an iterable of non-empty strings, .*7"):
        body("/decorated/wrong")


def test_a_page_has_its_tags_although_a_request_within_it_fails(cache, settings):
    settings.DEBUG_PROPAGATE_EXCEPTIONS = True
    # Django notifies this client, too, of the exception of the inner request.
    site = Client(raise_request_exception=False)
    page = site.get("/decorated/asking")
    assert page.status_code == 200
    assert site.get("/decorated/asking").content == page.content
    cache.delete_tags("asking")
    assert site.get("/decorated/asking").content != page.content


def test_a_set_during_a_request_has_only_its_own_tags(cache):
    meanwhile.append(lambda: cache.set("mine", 1, 60))
    body("/decorated/1")
    cache.delete_tags("article:1")
    assert cache.get("mine") == 1


# A request closes old connections, and another test may have opened one.
@pytest.mark.django_db
def test_an_http_cache_in_front_knows_the_tags_of_pages_that_django_has_cached(cache, settings, clock):
    settings.ALLOWED_HOSTS = ["*"]
    for purged in ("article:1", "all"):
        page = Client(SERVER_NAME="example.com").get("/decorated/1").content
        site = DjangoOnWsgi(clock)
        assert site.get("/decorated/1").body == page
        cache.clear()
        assert site.get("/decorated/1").body == page
        site.cache.delete_tags(purged)
        assert site.get("/decorated/1").body != page
        site.cache.cache.close()
