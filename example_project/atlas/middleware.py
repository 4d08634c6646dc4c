"""Middleware that shows how a page was served and remembers the countries that a visitor saw, for WSGI and ASGI."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any, Final, TypeAlias

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from django.utils.html import format_html

SERVED: Final = b"<!-- served -->"
"""The base template has this in the place of the line. Pages are cached with it, and not with the line."""

RECENT: Final = "recent_countries"
RECENT_COUNTRIES: Final = 8

GetResponse: TypeAlias = Callable[[Any], HttpResponseBase] | Callable[[Any], Awaitable[HttpResponseBase]]


class AtlasRequest(HttpRequest):
    """A request with the middleware ``served``.

    Attributes:
        computed: the names of the parts that were computed for its response. Empty if all of it came from the cache, or
            from another request that was already computing it.
    """

    computed: list[str]


@sync_and_async_middleware
def served(get_response: Any) -> GetResponse:
    """Show in each page, and in the headers X-Cache and X-Duration-ms, where it came from and how long it took."""

    def start(request: AtlasRequest) -> float:
        request.computed = []
        return perf_counter()

    if iscoroutinefunction(get_response):

        async def amiddleware(request: AtlasRequest) -> HttpResponseBase:
            started = start(request)
            return _stamp(await get_response(request), request.computed, started)

        return amiddleware

    def middleware(request: AtlasRequest) -> HttpResponseBase:
        started = start(request)
        return _stamp(get_response(request), request.computed, started)

    return middleware


@sync_and_async_middleware
def recent_countries(get_response: Any) -> GetResponse:
    """Keep the codes of the countries that a visitor saw last in the session, newest first.

    The country view must not do this: a page that reads the session varies by cookie, and would be cached separately
    for every visitor.
    """
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponseBase:
            response = await get_response(request)
            # Sessions are in memory, so this does not block.
            _remember(request, response)
            return response

        return amiddleware

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        _remember(request, response)
        return response

    return middleware


def _stamp(response: HttpResponseBase, computed: list[str], started: float) -> HttpResponseBase:
    if not isinstance(response, HttpResponse) or response.status_code != 200 or SERVED not in response.content:
        return response
    milliseconds = (perf_counter() - started) * 1000
    response.headers["X-Cache"] = "MISS" if computed else "HIT"
    response.headers["X-Duration-ms"] = f"{milliseconds:.2f}"
    # The line is about this response alone, whatever lifetime its view gives the page.
    response.headers["Cache-Control"] = "private, no-cache"
    response.content = response.content.replace(SERVED, _line(computed, milliseconds).encode())
    return response


def _line(computed: list[str], milliseconds: float) -> str:
    if computed:
        return format_html(
            '<span class="badge miss">computed</span> {} in <b>{} ms</b>', ", ".join(computed), f"{milliseconds:.1f}"
        )
    return format_html('<span class="badge hit">from the cache</span> in <b>{} ms</b>', f"{milliseconds:.2f}")


def _remember(request: Any, response: HttpResponseBase) -> None:
    match = request.resolver_match
    if response.status_code == 200 and match is not None and match.url_name == "country":
        code = match.kwargs["code"]
        others = [other for other in request.session.get(RECENT, []) if other != code]
        request.session[RECENT] = [code, *others][:RECENT_COUNTRIES]
