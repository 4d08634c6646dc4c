"""The ASGI driver. It answers hits, and reports the events of the application's runs to a ``Run``.

Only complete HTTP requests are its business: websockets, lifespan, and messages of extensions pass through untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from wheelcache.http_cache.flights import TaskWaiter
from wheelcache.http_cache.headers import Headers, values, without
from wheelcache.http_cache.keys import encoded_slashes, page_key
from wheelcache.http_cache.notes import SEAM
from wheelcache.http_cache.page import status_line
from wheelcache.http_cache.pages import Pages, Wait
from wheelcache.http_cache.request import CONDITIONS, SPECIAL_HEADERS, joined, named_headers
from wheelcache.http_cache.run import Reply, Run
from wheelcache.http_cache.variants import Raw, Variants, is_safe

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

EMPTY_REQUEST: Final = {"type": "http.request", "body": b"", "more_body": False}


class AsgiRequest:
    """A request by its scope. See ``Request``."""

    __slots__ = ("_headers", "_values", "key", "method")

    def __init__(self, method: str, key: str, headers: Headers) -> None:
        self.method = method
        self.key = key
        self._headers = headers
        self._values: dict[bytes, bytes] = dict(headers)
        if len(self._values) != len(headers):
            self._values = {name: joined(values(headers, name), name) for name in self._values}

    def value(self, name: bytes) -> bytes | None:
        return self._values.get(name)

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        return (*map(self._values.get, names),)

    def is_safe(self) -> bool:
        return all(b"_" not in name and is_safe(value) for name, value in self._headers)


class AsgiCache:
    """An ASGI application that caches the pages of another one."""

    def __init__(self, app: App, pages: Pages, wait: float) -> None:
        self._app = app
        self._pages = pages
        self._wait = wait
        self._find = pages.cache.find
        self._clock = pages.clock
        self._served = pages.figures.served
        self._renewals: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: Headers = scope["headers"]
        headers = dict(fields)
        if len(headers) == len(fields) and SPECIAL_HEADERS.isdisjoint(headers) and scope["method"] == "GET":
            page = self._find(_key(scope, headers.get(b"host", b"")))
            if type(page) is Variants:
                key = page.find((*map(headers.get, page.headers),))
                page = None if key is None else self._find(key)
            if page is not None:
                now = self._clock()
                if now < page.fresh_until and not self._pages.session_cookies:
                    if now >= page.prepared_until:
                        page.prepare(now)
                        self._pages.figures.fold_if_many()
                    self._served(page.size)
                    await send(
                        {"type": "http.response.start", "status": page.status, "headers": page.asgi_headers.copy()}
                    )
                    await send({"type": "http.response.body", "body": page.body})
                    return
        await self._decide(scope, receive, send)

    async def _decide(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is no plain hit."""
        request = _request(scope)
        if request is None:
            await self._app(scope, receive, send)
        elif request.method not in ("GET", "HEAD"):
            await self._run_unsafe(request, scope, receive, send)
        else:
            decision = self._pages.decide(request)
            if isinstance(decision, Wait):
                decision = await self._follow(request, decision.key)
            if decision is None:
                await self._app(scope, receive, send)
            elif isinstance(decision, Run):
                await _Exchange(decision, receive, send).run(self._app, scope)
            else:
                if decision.renewal is not None:
                    self._renew(decision.renewal, scope)
                await _send(send, decision)

    async def _follow(self, request: AsgiRequest, key: str) -> Reply | Run | None:
        """Wait for another request's run, and decide again."""
        flights = self._pages.flights
        waiter = TaskWaiter()
        if flights.join(key, waiter):
            try:
                await waiter.wait(self._wait)
            except asyncio.CancelledError:
                flights.leave(key, waiter)
                if waiter.leads:
                    flights.abandon(key)
                raise
            flights.leave(key, waiter)
        return self._pages.decide_after_wait(request, key, leads=waiter.leads)

    async def _run_unsafe(self, request: AsgiRequest, scope: Scope, receive: Receive, send: Send) -> None:
        async def invalidating(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._pages.invalidate(request, message["status"], _lower(message.get("headers", ())))
            await send(message)

        await self._app(scope, receive, invalidating)

    def _renew(self, run: Run, scope: Scope) -> None:
        """Renew a page in a task of its own, which knows nothing of the client."""
        reduced = _reduced(scope, named_headers(run.request, run.fields))
        work = _Exchange(run, _block_after_request(), _discard).run(self._app, reduced)
        task = asyncio.get_running_loop().create_task(work, context=Context())
        # The loop itself holds only weak references to tasks.
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)


class _Exchange:
    """A run, with the client's end of it."""

    def __init__(self, run: Run, receive: Receive, send: Send) -> None:
        self._run = run
        self._receive = receive
        self._client = send
        self._is_answered = False
        self._gave_up = asyncio.Event()

    async def run(self, app: App, scope: Scope) -> None:
        """Run the application, and send its response or a reply in its place."""
        run = self._run
        scope = {**scope, SEAM: run.notes}
        if run.conditions is not None:
            kept = [pair for pair in scope["headers"] if pair[0] not in CONDITIONS]
            scope["headers"] = kept + run.conditions
        try:
            await app(scope, self._receive_from_client, self._send)
        except asyncio.CancelledError:
            run.abandoned()
            raise
        except Exception:
            reply = run.failed()
            if reply is None or self._is_answered:
                raise
            await _send(self._client, reply)
        finally:
            # The application may have returned without a complete response.
            run.give_up("incomplete")

    async def _receive_from_client(self) -> Message:
        """Receive for the application. A client that disconnects does not end a run whose page can be stored."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and self._run.is_recording:
            await self._gave_up.wait()
        return message

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        run = self._run
        if self._is_answered:
            # The cache has replied. The rest is only recorded.
            if kind == "http.response.body":
                self._record(message)
            return
        if kind == "http.response.start":
            status, headers = message["status"], _lower(message.get("headers", ()))
            reply = run.started(status, status_line(status), headers)
            if message.get("trailers"):
                run.give_up("trailers")
            if reply is not None:
                self._is_answered = True
                await self._to_client(_send(self._client, reply))
                return
            if run.announcement:
                # Framing is the server's work. Some refuse a response with Transfer-Encoding.
                message = {**message, "headers": without(headers, {b"transfer-encoding"}) + run.announcement}
        elif kind == "http.response.body":
            self._record(message)
        elif kind.startswith("http.response."):
            run.give_up("extension")
        if not run.is_recording:
            self._gave_up.set()
        await self._to_client(self._client(message))

    def _record(self, message: Message) -> None:
        if self._run.is_recording:
            self._run.chunk(message.get("body", b""))
            if not message.get("more_body", False):
                self._run.ended()

    async def _to_client(self, sending: Awaitable[None]) -> None:
        if self._run.is_recording:
            # A server may raise this if the client has disconnected.
            with suppress(OSError):
                await sending
        else:
            await sending


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _discard(message: Message) -> None:
    """Send nothing: the run has no client."""


def _block_after_request() -> Receive:
    """Return a ``receive`` of a request without a body, whose client never disconnects."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    messages.put_nowait(dict(EMPTY_REQUEST))

    return messages.get


def _key(scope: Scope, host: bytes) -> str:
    raw_path = scope.get("raw_path")
    path = scope["path"].encode("utf-8", "surrogatepass") if raw_path is None else raw_path
    root = scope.get("root_path", "")
    return page_key(
        scope.get("scheme", "http"),
        host.decode("latin-1"),
        root if root.isascii() else root.encode().decode("latin-1"),
        scope.get("query_string", b"").decode("latin-1"),
        *_path(path.decode("latin-1")),
    )


def _path(raw: str) -> tuple[str, str]:
    if "%" not in raw:
        return "", raw
    return encoded_slashes(raw), unquote_to_bytes(raw).decode("latin-1")


def _request(scope: Scope) -> AsgiRequest | None:
    """Return the request; None if it bypasses the cache."""
    hosts = values(scope["headers"], b"host")
    method = scope["method"]
    if len(hosts) != 1 or b"," in hosts[0] or not method.isupper():
        return None
    return AsgiRequest(method, _key(scope, hosts[0]), scope["headers"])


def _reduced(scope: Scope, headers: Headers) -> Scope:
    """Return a scope that contains only what the key of the page names."""
    kept = (
        *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
        *("server", "state"),
    )
    return {name: scope[name] for name in kept if name in scope} | {"headers": headers, "client": None}


def _lower(headers: Any) -> Headers:
    return [(name.lower(), value) for name, value in headers]
