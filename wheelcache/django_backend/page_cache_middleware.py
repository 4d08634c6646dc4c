"""The HTTP cache as a middleware, for sites that cannot change their ``wsgi.py`` or ``asgi.py``.

The drivers of the cache wrap a WSGI or an ASGI application. Here, that application is the rest of the middleware and
the view: it makes Django's response, and hands its status, headers and body to the driver. If the driver sends the same
body, the middleware returns Django's own response; otherwise the driver has answered from the cache.

A hit still costs Django's handler, some 60 us; the cache in front of the application answers in 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, ValuesView
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, ResponseHeaders
from django.urls import set_script_prefix

from wheelcache.django_backend.pages import PageMiddleware, cache_of_site, check_first
from wheelcache.errors import FileUnusable
from wheelcache.http_cache import SEAM, HTTPCache

NAME: Final = "wheelcache.django_backend.page_cache_middleware.PageCacheMiddleware"
CALL: Final = "wheelcache.call"
"""The key of the ``_Call`` in the WSGI environ and in the ASGI scope."""


_cache: HTTPCache | None = None


def middleware_cache() -> HTTPCache:
    """Return the cache of this process's ``PageCacheMiddleware``, for example to purge pages from it.

    Raises:
        ImproperlyConfigured: if the middleware was not loaded.
    """
    if _cache is None:
        raise ImproperlyConfigured(f"There are no pages, since the middleware {NAME!r} was not loaded.")
    return _cache


def _configured_cache() -> HTTPCache:
    options = getattr(settings, "WHEELCACHE_PAGES", {})
    try:
        return cache_of_site(options)
    except (TypeError, ValueError, FileUnusable) as error:
        raise ImproperlyConfigured(
            f"WHEELCACHE_PAGES must be a dict of options of HTTPCache, not {options!r}: {error}"
        ) from error


@dataclass(slots=True, eq=False)
class _Call:
    """A call of the middleware: the request, and the response once Django has made it.

    Attributes:
        headers, body: the headers and the body of the response, as the driver receives them.
    """

    request: HttpRequest
    response: HttpResponseBase | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class PageCacheMiddleware:
    """Answers from the pages that it has stored. It must be the first middleware.

    The setting ``WHEELCACHE_PAGES`` is a dict of the options of ``HTTPCache``. It needs no ``PageMiddleware``.

    Raises:
        ImproperlyConfigured: if it is not the first of ``MIDDLEWARE``, or if an option is invalid.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        check_first(NAME, "other middleware would change the pages that it stores")
        global _cache
        cache = _cache = _configured_cache()
        self._respond: Any = PageMiddleware(get_response)
        self._is_async = iscoroutinefunction(get_response)
        self._respond_async: Any = self._respond if self._is_async else sync_to_async(self._respond)
        if self._is_async:
            markcoroutinefunction(self)
        self._wsgi = cache.wsgi(self._application)
        self._asgi = cache.asgi(self._async_application)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._answer_async(request)
        if isinstance(request, ASGIRequest):
            # Another middleware is not async, so Django calls this one in a thread.
            return async_to_sync(self._answer_async)(request)
        call = _Call(request)
        environ = request.META
        environ[CALL] = call
        started: list[Any] = []

        def start_response(*start: Any) -> Callable[[bytes], object]:
            started.extend(start)
            return _discard

        body = self._wsgi(environ, start_response)
        status, headers = started[:2]
        if call.response is None:
            return _response(status, headers, b"".join(body))
        if body is call.response or (type(body) is list and body and body[0] is call.body):
            return _announced(call.response, headers[len(call.headers) :])
        return _response(status, headers, b"".join(body))

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        call = _Call(request)
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._asgi({**cast(ASGIRequest, request).scope, CALL: call}, _receive_nothing, send)
        start, *bodies = sent
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        body = bodies[0]["body"]
        if call.response is not None and call.response.status_code == start["status"] and body is call.body:
            return _announced(call.response, headers[len(call.headers) :])
        return _response(f"{start['status']} ", headers, body)

    def _application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Make a response, for the driver."""
        call: _Call | None = environ.get(CALL)
        if call is not None and call.request.META is environ:
            request = call.request
        else:
            # A renewal, or a run without the client's conditions.
            request = WSGIRequest(environ)
            set_script_prefix(environ["SCRIPT_NAME"] + "/")
        response: HttpResponseBase = self._respond(request)
        body, headers = _body(response, environ.get(SEAM)), _headers(response)
        start_response(f"{response.status_code} {response.reason_phrase}", headers)
        if call is None:
            # The driver closes it, for which Django sends request_finished.
            return response
        call.response, call.headers, call.body = response, headers, body
        return response if response.streaming else [body]

    async def _async_application(self, scope: MutableMapping[str, Any], receive: Any, send: Callable[..., Any]) -> None:
        """Make a response, for the driver."""
        call: _Call | None = scope.get(CALL)
        if call is not None and cast(ASGIRequest, call.request).scope["headers"] is scope["headers"]:
            request = cast(ASGIRequest, call.request)
            request.scope = scope
        else:
            request = ASGIRequest(scope, BytesIO())
        response: HttpResponseBase = await self._respond_async(request)
        body, headers = _body(response, scope.get(SEAM)), _headers(response)
        if call is not None:
            call.response, call.headers, call.body = response, headers, body
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": response.status_code, "headers": encoded})
        await send({"type": "http.response.body", "body": body})
        if call is None:
            await asyncio.to_thread(response.close)


def _body(response: HttpResponseBase, notes: Any) -> bytes:
    if isinstance(response, HttpResponse):
        return response.content
    if notes is not None:
        # Django sends it after the middleware.
        notes.refuse("streaming")
    return b""


def _headers(response: HttpResponseBase) -> list[tuple[str, str]]:
    cookies = [("Set-Cookie", cookie.output(header="").strip()) for cookie in response.cookies.values()]
    return [*response.items(), *cookies]


def _announced(response: HttpResponseBase, added: list[tuple[str, str]]) -> HttpResponseBase:
    """Add the headers that the driver has added."""
    for name, value in added:
        response.headers[name] = value
    return response


def _response(status: str, headers: list[tuple[str, str]], body: bytes) -> HttpResponse:
    code, _, reason = status.partition(" ")
    # Without a type, Django would look for the default one.
    response = HttpResponse(body, content_type="", status=int(code), reason=reason or None)
    response.headers = _StoredHeaders(headers)
    return response


class _StoredHeaders(ResponseHeaders):
    """The headers of a stored page. Checking them again would take a tenth of the time of a hit."""

    def __init__(self, headers: list[tuple[str, str]]) -> None:
        # No name is there twice, as these were made from the headers of a response of Django.
        self._store = {pair[0].lower(): pair for pair in headers}

    def items(self) -> ValuesView[tuple[str, str]]:  # type: ignore[override]
        return self._store.values()


def _discard(data: bytes) -> None:
    """Write nothing: Django's responses do not use ``write``."""


async def _receive_nothing() -> Any:
    """Wait forever: Django has read the request before its middleware."""
    return await asyncio.get_running_loop().create_future()
