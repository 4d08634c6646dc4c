"""The views of a Django site behind an HTTP cache. Each is named after the part of the request that it reads."""

import copy
import json
import pickle
from contextlib import suppress
from io import BytesIO
from itertools import count
from threading import Lock
from urllib.parse import unquote

import orjson
from django.contrib import messages
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.template import loader
from django.urls import path
from django.utils import timezone, translation
from django.utils.cache import patch_response_headers
from django.utils.safestring import mark_safe
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.vary import vary_on_cookie

from tests.pages.c_readers import shown

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
def theme(request):
    return page(request.COOKIES.get("theme", "light"))


def login(request):
    request.session["name"] = request.GET["name"]
    return HttpResponse("hello")


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
        "HTTP_X_FLAVOR" in (meta := request.META) and dict.get(meta, "HTTP_X_FLAVOR")
    ),
    "whether a header can be deleted": lambda request: deleted(request.META, "HTTP_X_FLAVOR"),
    "a header by item": lambda request: request.headers["x-flavor"] if "X-Flavor" in request.headers else None,
    "the browser": lambda request: request.META.get("HTTP_USER_AGENT"),
    "the environ": lambda request: (request.environ if hasattr(request, "environ") else request.META).get(
        "HTTP_X_FLAVOR"
    ),
    "an item by a lazy name": lambda request: request.META.get(translation.gettext_lazy("HTTP_X_FLAVOR")),
    "an item by a safe name": lambda request: request.META.get(mark_safe("HTTP_X_FLAVOR")),
}
REFUSED = {
    "the address": lambda request: request.META.get("REMOTE_ADDR"),
    "all cookies": lambda request: dict(request.COOKIES),
    "all cookies, unpacked": lambda request: {**request.COOKIES},
    "all cookies, joined": lambda request: {} | request.COOKIES,
    "all cookies, as JSON": lambda request: json.dumps(request.COOKIES),
    "all cookies, copied": lambda request: copy.deepcopy(request.COOKIES),
    "all cookies, pickled": lambda request: pickle.loads(pickle.dumps(request.COOKIES)),
    "the number of cookies": lambda request: len(request.COOKIES),
    "all cookies, printed": lambda request: str(request.COOKIES),
    "all headers": lambda request: [*request.headers.items()],
    "all headers, printed": lambda request: str(request.headers),
    "all headers, copied": lambda request: dict(copy.copy(request.headers)),
    "all headers, copied deeply": lambda request: copy.deepcopy(with_stream(request).headers)["X-Flavor"],
    "all headers, pickled": lambda request: pickle.loads(pickle.dumps(with_stream(request).headers))["X-Flavor"],
    "META, pickled": lambda request: pickle.loads(pickle.dumps(request.META))["HTTP_X_FLAVOR"],
    "META of a copy of the request": lambda request: dict(copy.copy(request).META)["HTTP_X_FLAVOR"],
    "cookies that the request keeps, in C": lambda request: kept(request),
    "cookies of a copy, in C": lambda request: orjson.dumps(copy.copy(request).COOKIES),
    "META": lambda request: [*request.META.values()],
    "META, by another application": lambda request: run(request),
    "all cookies, by another handler": lambda request: handled(request, "/reading/all%20cookies"),
    "a copy of META": lambda request: request.META.copy(),
    "the user of the server": lambda request: request.META.get("REMOTE_USER"),
    "an entry that only the server knows": lambda request: request.META.get("SSL_CLIENT_S_DN"),
    "the protocol": lambda request: request.META.get("SERVER_PROTOCOL"),
    "the name of the server": lambda request: request.META.get("SERVER_NAME"),
    "the port of the server": lambda request: request.get_port(),
    "the server in the scope": lambda request: scope_of(request).get("server"),
    "the raw path": lambda request: scope_of(request).get("raw_path"),
    "the client in the scope": lambda request: scope_of(request).get("client"),
    "the headers in the scope": lambda request: scope_of(request).get("headers"),
    "the whole scope": lambda request: {**scope_of(request)},
}
ASKED = {
    "whether there is an attribute": lambda request: hasattr(request, "META") and hasattr(request, "COOKIES"),
    "whether a wrapper has it": lambda request: exists_in(Wrapper(request)),
    "whether there is a cookie": lambda request: bool(request.COOKIES) or not request.COOKIES,
    "whether there are cookies": lambda request: "some" if request.COOKIES else "none",
    "a single cookie of a variable": lambda request: single(request.COOKIES),
    "another page, by another handler": lambda request: handled(request, "/plain"),
    "an item that is set": lambda request: request.META.__setitem__("site.item", "value"),
    "items that are set": lambda request: request.META.update({"site.item": "value"}),
    "an attribute of the site's own class": lambda request: of_own_class(request).tenant,
    "an attribute of a class made for the request": lambda request: mixed(request).tenant,
    "an item of an object of the class": lambda request: (
        type(found := request.COOKIES)({"theme": "dark"}) and found.get("theme")
    ),
}
"""Accesses that read no part of the request that differs."""
DETAILS = {
    "the address": "reads REMOTE_ADDR",
    "all cookies": "reads all cookies",
    "all headers": "reads all headers",
    "META": "reads all headers",
    "an entry that only the server knows": "reads SSL_CLIENT_S_DN",
}


def with_stream(request):
    """Add an entry that cannot be copied, such as the streams of a server."""
    request.META["wsgi.stream"] = Lock()
    return request


class OwnWsgiRequest(WSGIRequest):
    tenant = "own"


class OwnAsgiRequest(ASGIRequest):
    tenant = "own"


def of_own_class(request):
    """Assign another class, as some sites do."""
    assert type(request).__module__.startswith("django.core.handlers.")
    request.__class__ = OwnAsgiRequest if hasattr(request, "scope") else OwnWsgiRequest
    return request


def mixed(request):
    request.__class__ = type("Mixed", (request.__class__,), {"tenant": "mixed"})
    return copy.copy(request)


def kept(request):
    request.kept = request.COOKIES
    return orjson.dumps(request.kept) if request.kept else None


def handled(request, url):
    handler = BaseHandler()
    handler.load_middleware()
    request.path_info = unquote(url)
    return handler.get_response(request).content


def run(request):
    """Call another application with the environ of the request."""
    environ = request.META
    environ.update({"PATH_INFO": "/plain", "wsgi.input": BytesIO(), "wsgi.url_scheme": "http"})
    return b"".join(WSGIHandler()(environ, lambda status, headers: status.index("200")))


def deleted(meta, name):
    with suppress(KeyError):
        flavor = dict.get(meta, name)
        del meta[name]
        return flavor


class Wrapper:
    """A request around another one, as frameworks for APIs have it."""

    def __init__(self, request):
        self.request = request

    def __getattr__(self, name):
        return getattr(self.request, name)


def changed(request):
    """Change the parameters, as some sites do."""
    request.GET._mutable = True
    request.GET["page"] = "2"
    request.GET._mutable = False
    return request.GET


def exists_in(request):
    return hasattr(request, "META")


def single(cookies):
    return cookies.get("theme"), cookies.get("color")


def scope_of(request):
    return getattr(request, "scope", request.META)


@for_a_minute
def reading(request, how):
    return page({**READS, **REFUSED, **ASKED}[how](request))


@for_a_minute
def activated(request):
    if "language" in request.GET:
        translation.activate(request.GET["language"])
    if "zone" in request.GET:
        timezone.activate(request.GET["zone"])
    return page(f"{translation.get_language()} {timezone.get_current_timezone_name()}")


@for_a_minute
def streamed_token(request):
    def body():
        yield f"{get_token(request)} {next(numbers)}"

    async def async_body():
        yield f"{get_token(request)} {next(numbers)}"

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


@for_a_minute
def agent(request):
    return page(request.headers.get("User-Agent"))


@for_a_minute
async def agent_in_async(request):
    return page(request.headers.get("User-Agent"))


@for_a_minute
def streamed_agent(request):
    def body():
        yield f"{request.META.get('HTTP_USER_AGENT')} {next(numbers)}"

    async def async_body():
        for each in body():
            yield each

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


@for_a_minute
def flavor(request):
    return page(f"{request.flavor} {request.accepted_types[0]}")


@for_a_minute
def rendered(request, template):
    return HttpResponse(loader.get_template(template).render({}, request))


PARTS = {"cookies": "COOKIES", "headers": "META"}


@for_a_minute
def shown_part(request, part, how):
    return HttpResponse(shown(part, how, lambda: getattr(request, PARTS[part])))


@for_a_minute
def seen(request, country=""):
    """Show each part of the request that a middleware inside the cache may change."""
    parts = (country, request.get_host(), request.headers.get("X-Country"), request.COOKIES.get("theme"))
    return HttpResponse(f"{parts} {request.body} {request.GET.urlencode()}")


@for_a_minute
def named(request, name):
    return page(name)


@for_a_minute
def seen_own(request):
    """Show an item that such a middleware may add."""
    return HttpResponse(str(scope_of(request).get("site.country")))


SHOWN = {
    "language": lambda request: translation.get_language(),
    "zone": lambda request: timezone.get_current_timezone_name(),
    "any-cookie": lambda request: bool(request.COOKIES),
    "host": lambda request: request.build_absolute_uri("/"),
    "visitor": lambda request: request.session.get("name", "nobody"),
    "token": lambda request: get_token(request),
    "numbered": lambda request: request.GET.get("page", "first"),
    "url": lambda request: request.get_full_path(),
    "parameters-in-c": lambda request: orjson.dumps(request.GET).decode(),
    "changed-parameters": lambda request: changed(request)["page"],
    "media-type": lambda request: f"{request.content_type} {request.content_params} {request.encoding}",
    "content-type": lambda request: request.headers.get("Content-Type"),
    "state": lambda request: request.scope["state"]["user"],
    "csrf-cookie": lambda request: request.COOKIES.get("csrftoken", "none"),
    "csrf-entry": lambda request: request.META.get("CSRF_COOKIE", "none"),
    "session-cookie": lambda request: request.COOKIES.get("sessionid", "none"),
}


def showing(read):
    """Return a view whose page shows ``read(request)``."""
    return for_a_minute(lambda request: page(read(request)))


urlpatterns = [
    *(path(name, showing(read)) for name, read in SHOWN.items()),
    path("named/<name>", named),
    path("", plain),
    path("seen", seen),
    path("seen-own", seen_own),
    path("<country>/seen", seen),
    path("streamed-token", streamed_token),
    path("agent", agent),
    path("agent-in-async", agent_in_async),
    path("streamed-agent", streamed_agent),
    path("flavor", flavor),
    path("rendered/<template>", rendered),
    path("shown/<part>/<how>", shown_part),
    path("tagged/<tag>", tagged),
    path("not-stored", not_stored),
    path("plain", plain),
    path("theme", theme),
    path("login", login),
    path("themed", themed),
    path("by-cache-page", by_cache_page),
    path("says", says),
    path("streamed", streamed),
    path("expires", expires),
    path("reading/<str:how>", reading),
    path("activated", activated),
    path("slash/", plain),
]
