"""The views of a Django site behind an HTTP cache. Each is named after the part of the request that it reads."""

import json
from itertools import count

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.urls import path
from django.utils import timezone, translation
from django.utils.cache import patch_response_headers
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.vary import vary_on_cookie

numbers = count()
for_a_minute = cache_control(max_age=60)


def page(text=""):
    return HttpResponse(f"{text} {next(numbers)}")


@for_a_minute
def plain(request):
    return page()


@for_a_minute
def tagged(request, tag):
    if tag == "assigned":
        request.cache_tags = [tag]
    else:
        request.cache_tags.add(tag)
    response = page()
    response["Cache-Tag"] = "all, pages"
    return response


def not_stored(request):
    request.cache_tags.add("unused")
    response = page()
    response["Cache-Tag"] = "all"
    return response


@for_a_minute
def language(request):
    return page(translation.get_language())


@for_a_minute
def zone(request):
    return page(timezone.get_current_timezone_name())


@for_a_minute
def theme(request):
    return page(request.COOKIES.get("theme", "light"))


@for_a_minute
def any_cookie(request):
    return page(bool(request.COOKIES))


@for_a_minute
def host(request):
    return page(request.build_absolute_uri("/"))


@for_a_minute
def visitor(request):
    return page(request.session.get("name", "nobody"))


def login(request):
    request.session["name"] = request.GET["name"]
    return HttpResponse("hello")


@for_a_minute
def token(request):
    return page(get_token(request))


@cache_page(600)
@vary_on_cookie
def themed(request):
    return page(request.COOKIES.get("theme", "light"))


@cache_page(600)
def by_cache_page(request):
    return page()


@for_a_minute
def says(request):
    messages.success(request, "saved")
    return HttpResponse(" ".join(map(str, messages.get_messages(request))))


@for_a_minute
def streamed(request):
    def body():
        yield request.session.get("name", "nobody")
        yield f" {next(numbers)}"

    async def async_body():
        for each in body():
            yield each

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


def expires(request):
    response = page()
    patch_response_headers(response, 60)
    return response


READS = {
    "a header": lambda request: request.headers.get("X-Flavor"),
    "a header in META": lambda request: request.META.get("HTTP_X_FLAVOR"),
    "whether a header is there": lambda request: (
        "HTTP_X_FLAVOR" in request.META and dict.get(request.META, "HTTP_X_FLAVOR")
    ),
    "a header by item": lambda request: request.headers["x-flavor"] if "X-Flavor" in request.headers else None,
    "the browser": lambda request: request.META.get("HTTP_USER_AGENT"),
    "the environ": lambda request: getattr(request, "environ", request.META).get("HTTP_X_FLAVOR"),
}
REFUSED = {
    "the address": lambda request: request.META.get("REMOTE_ADDR"),
    "all cookies": lambda request: dict(request.COOKIES),
    "all cookies, unpacked": lambda request: {**request.COOKIES},
    "all cookies, joined": lambda request: {} | request.COOKIES,
    "all cookies, as JSON": lambda request: json.dumps(request.COOKIES),
    "the number of cookies": lambda request: len(request.COOKIES),
    "all cookies, printed": lambda request: str(request.COOKIES),
    "all headers": lambda request: [*request.headers.items()],
    "all headers, printed": lambda request: str(request.headers),
    "META": lambda request: [*request.META.values()],
    "a copy of META": lambda request: request.META.copy(),
    "the user of the server": lambda request: request.META.get("REMOTE_USER"),
    "an entry that only the server knows": lambda request: request.META.get("SSL_CLIENT_S_DN"),
}


@for_a_minute
def reading(request, how):
    return page({**READS, **REFUSED}[how](request))


@for_a_minute
def activated(request):
    if "language" in request.GET:
        translation.activate(request.GET["language"])
    if "zone" in request.GET:
        timezone.activate(request.GET["zone"])
    return page(f"{translation.get_language()} {timezone.get_current_timezone_name()}")


urlpatterns = [
    path("tagged/<tag>", tagged),
    path("not-stored", not_stored),
    path("plain", plain),
    path("language", language),
    path("zone", zone),
    path("theme", theme),
    path("host", host),
    path("any-cookie", any_cookie),
    path("visitor", visitor),
    path("login", login),
    path("token", token),
    path("themed", themed),
    path("by-cache-page", by_cache_page),
    path("says", says),
    path("streamed", streamed),
    path("expires", expires),
    path("reading/<str:how>", reading),
    path("activated", activated),
    path("slash/", plain),
]
