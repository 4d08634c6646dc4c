"""The project of ``visited_site`` with pages that are easy to poison, and a Flask app, each with and without a cache.

A path begins with the lifetime of its page: see ``LIFETIMES``. Even errors have it. Paths of the Flask app, which only
WSGI serves, begin with ``/flask``. The header X-Uncached chooses the site without its cache, and is removed before the
application sees the request. Environment: that of ``visited_site``.
"""

import re

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.urls import include, path, re_path
from django.utils.translation.trans_real import parse_accept_lang_header
from django.views.decorators.vary import vary_on_headers
from flask import Flask, jsonify, session
from flask import request as flask_request

from tests.servers import visited_site
from tests.servers.visited_site import MIDDLEWARE, behind, page
from wheelcache.pages.django_pages import COMPANION, page_cache
from wheelcache.pages.flask_pages import HTTPCache

LIFETIMES = {"long": "max-age=60", "short": "max-age=1", "renewed": "max-age=0, stale-while-revalidate=600"}
PROXY = {
    b"x-forwarded-protocol": "scheme",
    b"front-end-https": "scheme",
    b"x-url-scheme": "scheme",
    b"x-forwarded-uri": "root",
    b"x-forwarded-path": "root",
    b"x-envoy-original-path": "root",
    b"x-script-name": "root",
}
"""The headers from which the code between the cache and the frameworks builds URLs."""

settings.ROOT_URLCONF = __name__
settings.USE_X_FORWARDED_PORT = True


def on_the_way_out(change):
    """Return a middleware for both kinds of servers that calls ``change(request, response)``."""

    def middleware(get_response):
        if iscoroutinefunction(get_response):

            async def answer(request):
                return change(request, await get_response(request))

            return markcoroutinefunction(answer) or answer
        return lambda request: change(request, get_response(request))

    middleware.async_capable = middleware.sync_capable = True
    return middleware


@on_the_way_out
def give_lifetime(request, response):
    """Let every response be stored that does not forbid it, errors too."""
    if response.get("Cache-Control", "max-age=60") == "max-age=60":
        response["Cache-Control"] = LIFETIMES.get(request.path_info.split("/")[1], "max-age=60")
    return response


@on_the_way_out
def show_token(request, response):
    """Get a CSRF token outside CsrfViewMiddleware, which then does not add its Vary."""
    if "outer" in request.path_info:
        response.content += f'<input name="csrfmiddlewaretoken" value="{get_token(request)}">'.encode()
        response["Content-Length"] = str(len(response.content))
        del response["ETag"]
    return response


# Views. Each page depends on one part of the request.


def reading(name, read, **vary):
    """Return a view whose page shows ``read(request)``."""

    def view(request):
        return page(request, read(request))

    view.__name__ = name
    return vary_on_headers(*vary["vary"])(view) if vary else view


def content_type(request):
    return JsonResponse({}) if "json" in request.content_type else page(request)


def accepts(request):
    return JsonResponse({}) if request.accepts("application/json") else page(request)


def next_page(request):
    return redirect(request.GET.get("n", "1"), permanent=True)


def limited(request):
    """Refuse a long header, which must not keep others from the page."""
    too_long = len(request.headers.get("X-Country", "")) > 1000
    return HttpResponse("too long" if too_long else "page", status=431 if too_long else 200)


def accepted_languages(request):
    return parse_accept_lang_header(request.headers.get("Accept-Language", ""))


def only_get(request):
    return HttpResponse(status=405) if request.method not in ("GET", "HEAD") else page(request)


async def scope(request):
    """Show headers and the client's cookies without the request's own attributes."""
    headers = dict(request.scope["headers"]) if hasattr(request, "scope") else {}
    return HttpResponse(repr([headers.get(name) for name in (b"x-country", b"user-agent", b"cookie")]))


OF_VISITED_SITE = ["plain", "zone", "theme", "url", "country", "address", "user", "form", "said", "expires", "fresh"]
OF_VISITED_SITE += ["moved", "marked", "streamed", "missing"]
VIEWS = [
    *(getattr(visited_site, name) for name in OF_VISITED_SITE),
    *(content_type, accepts, next_page, limited, only_get, scope),
    reading("query", lambda request: sorted(request.GET.lists())),
    reading("full_path", lambda request: [request.path, request.get_full_path()]),
    reading("location", lambda request: [request.build_absolute_uri(), request.scheme, request.is_secure()]),
    reading("host", lambda request: [request.get_host(), request.get_port()]),
    reading("encoding", lambda request: request.encoding),
    reading("body", lambda request: [request.body, sorted(request.POST.lists())]),
    reading("agent", lambda request: request.META.get("HTTP_USER_AGENT", "")),
    reading("method", lambda request: request.method),
    reading("protocol", lambda request: request.META.get("SERVER_PROTOCOL")),
    reading("connection", lambda request: [request.META.get(f"HTTP_{name}") for name in ("CONNECTION", "TE")]),
    reading("length", lambda request: request.META.get("CONTENT_LENGTH")),
    reading("forwarded", lambda request: request.headers.get("X-Forwarded-For")),
    reading("all_headers", lambda request: sorted(set(request.headers) - {"X-Uncached"})),
    reading("all_cookies", lambda request: sorted(request.COOKIES)),
    reading("other_cookie", lambda request: [request.COOKIES.get(name) for name in ("a", "theme", "zone")]),
    reading("token_cookie", lambda request: request.COOKIES.get("csrftoken")),
    reading("token_meta", lambda request: request.META.get("CSRF_COOKIE")),
    reading("outer", lambda request: ""),
    reading("session", lambda request: request.session.get("_auth_user_id")),
    reading("language", accepted_languages, vary=["Accept-Language"]),
    reading("first", lambda request: request.headers.get("X-Country", "").split(",")[0], vary=["X-Country"]),
]
views = [path(f"{view.__name__}/", view) for view in VIEWS]
views += [re_path("^at/", reading("at", lambda request: request.path_info))]
urlpatterns = [path(f"{lifetime}/", include(views)) for lifetime in LIFETIMES]
urlpatterns += [path("pid", visited_site.quiet), path("paths", lambda request: JsonResponse(PATHS, safe=False))]
urlpatterns += [path("admin/", visited_site.admin.site.urls)]

# The Flask app.


def flask_app():
    app = Flask(__name__)
    app.secret_key = "not secret"
    shown = {
        "plain": lambda: "",
        "theme": lambda: flask_request.cookies.get("theme"),
        "cookies": lambda: [flask_request.cookies.get(name) for name in ("a", "theme", "zone")],
        "query": lambda: sorted(flask_request.args.lists()),
        "form": lambda: sorted(flask_request.values.lists()),
        "url": lambda: [flask_request.url, flask_request.base_url, flask_request.root_url],
        "host": lambda: flask_request.host,
        "mimetype": lambda: flask_request.mimetype,
        "json": lambda: flask_request.is_json,
        "accepts": lambda: flask_request.accept_mimetypes.best_match(["application/json", "text/html"]),
        "language": lambda: flask_request.accept_languages.best_match(["en", "de", "fr"]),
        "country": lambda: flask_request.headers.get("X-Country"),
        "agent": lambda: str(flask_request.user_agent),
        "address": lambda: [flask_request.remote_addr, flask_request.access_route],
        "session": lambda: session.get("user"),
        "method": lambda: flask_request.method,
    }

    @app.route("/flask/<life>/<name>/", methods=["GET", "POST"])
    def show(life, name):
        return jsonify(shown[name]()) if name in shown else ("missing", 404)

    @app.after_request
    def add_lifetime(response):
        response.headers.setdefault("Cache-Control", LIFETIMES.get(flask_request.path.split("/")[2], "max-age=60"))
        return response

    return app, [f"/flask/{{life}}/{name}/" for name in shown]


flask, FLASK_PATHS = flask_app()
cached_flask, _ = flask_app()
LEAKY = ["token_cookie", "token_meta", "outer", "scope"]
PATHS = {
    "django": [f"/{{life}}/{view.__name__}/" for view in VIEWS if view.__name__ not in LEAKY] + ["/{life}/at/some"],
    "leaky": [f"/{{life}}/{name}/" for name in LEAKY],
    "flask": FLASK_PATHS,
}
"""The paths of the pages, which take one of ``LIFETIMES``. Leaky ones show a secret, although no Vary says so."""


# The servers' side.


def headers_of_proxy(found):
    """Return the scheme and the root, if headers name them."""
    parts = {PROXY[name]: value for name, value in found if name in PROXY}
    is_secure = re.search("(?i)https|on", parts.get("scheme", ""))
    return "https" if is_secure else None, parts.get("root", "").rstrip("/") or None


def wsgi_proxied(app):
    def proxied(environ, start_response):
        fields = [(name[5:].lower().replace("_", "-").encode(), value) for name, value in environ.items()]
        scheme, root = headers_of_proxy([pair for pair in fields if pair[0] in PROXY])
        changed = ({"wsgi.url_scheme": scheme} if scheme else {}) | ({"SCRIPT_NAME": root} if root else {})
        return app({**environ, **changed}, start_response)

    return proxied


def asgi_proxied(app):
    async def proxied(scope, receive, send):
        scheme, root = headers_of_proxy([(name, value.decode("latin-1")) for name, value in scope["headers"]])
        changed = ({"scheme": scheme} if scheme else {}) | ({"root_path": root} if root else {})
        await app({**scope, **changed}, receive, send)

    return proxied


ALL = [COMPANION, f"{__name__}.give_lifetime", MIDDLEWARE[0], f"{__name__}.show_token", *MIDDLEWARE[1:]]
django_wsgi, django_asgi = (
    proxied(app) for proxied, app in zip((wsgi_proxied, asgi_proxied), behind(ALL), strict=True)
)
cache = page_cache(max_bytes=256 << 20)
pages = HTTPCache()
flask.wsgi_app = wsgi_proxied(flask.wsgi_app)
cached_flask.wsgi_app = wsgi_proxied(cached_flask.wsgi_app)
pages.init_app(cached_flask)

WSGI = {"": cache.wsgi(django_wsgi), "uncached": django_wsgi}
FLASK = {"": cached_flask, "uncached": flask}
ASGI = {"": cache.asgi(django_asgi), "uncached": django_asgi}


def wsgi(environ, start_response):
    kind = environ.pop("HTTP_X_UNCACHED", "")
    return (FLASK if environ["PATH_INFO"].startswith("/flask/") else WSGI)[kind](environ, start_response)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = [pair for pair in scope["headers"] if pair[0] != b"x-uncached"]
    kind = dict(scope["headers"]).get(b"x-uncached", b"").decode()
    await ASGI[kind]({**scope, "headers": headers}, receive, send)
