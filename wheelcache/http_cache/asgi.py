"""The ASGI driver. It answers hits, and reports the events of the application's runs to a ``Run``.

It handles only complete HTTP requests. Websockets, lifespan, and messages of extensions pass through unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import Context
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from wheelcache.http_cache.flights import TaskWaiter
from wheelcache.http_cache.headers import CACHE_TAG, Headers, values, without
from wheelcache.http_cache.keys import encoded_slashes, page_key
from wheelcache.http_cache.notes import SEAM, PageNotes
from wheelcache.http_cache.page import status_line
from wheelcache.http_cache.pages import Pages, Wait
from wheelcache.http_cache.replies import Reply
from wheelcache.http_cache.request import KEYED_HEADERS, SPECIAL_HEADERS, joined, named_headers
from wheelcache.http_cache.rules import CONDITIONS
from wheelcache.http_cache.run import Run
from wheelcache.http_cache.variants import Raw, Variants, is_safe

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger("wheelcache")

MOST_RENEWALS: Final = 64
"""Tasks."""

NONE: Final[frozenset[bytes]] = frozenset()

EMPTY_REQUEST: Final = {"type": "http.request", "body": b"", "more_body": False}

KEPT_FOR_RENEWAL: Final = (
    *("type", "asgi", "http_version", "scheme", "path", "raw_path", "query_string", "root_path", "server", "state"),
)
"""The parts of a scope that do not depend on the client."""


class AsgiRequest:
    """A request, made from its ASGI scope: see ``Request``.

    Args:
        headers: the headers of the scope.
        by_name: the same headers as a dict.
    """

    __slots__ = ("_headers", "_values", "is_plain", "key", "method")

    def __init__(self, method: str, key: str, headers: Headers, by_name: dict[bytes, bytes], *, is_plain: bool) -> None:
        self.method = method
        self.key = key
        self.is_plain = is_plain
        self._headers = headers
        self._values = by_name
        if len(by_name) != len(headers):
            self._values = {name: joined(values(headers, name), name) for name in by_name}

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
        self._find = pages.find
        self._clock = pages.clock
        self._served = pages.figures.served
        self._refused = pages.figures.refused
        self._mark_of = pages.marks.get
        self._find_session = re.compile(pages.session_pattern).search
        self._renewals: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: Headers = scope["headers"]
        headers = dict(fields)
        special = NONE if SPECIAL_HEADERS.isdisjoint(headers) else SPECIAL_HEADERS.intersection(headers)
        is_get = scope["method"] == "GET"
        if is_get and len(headers) == len(fields) and (not special or special <= KEYED_HEADERS):
            key = _key(scope, headers.get(b"host", b""))
            selected: str | None = key
            page = self._find(key)
            has_session = b"cookie" in headers and self._find_session(headers[b"cookie"]) is not None
            # Behind a proxy, or with a session, a request gets only pages that depend on that.
            may_use = self._pages.is_keyed_by if special or has_session else None
            if may_use and page is not None and not may_use(page, special, has_session):
                page = selected = None
            if type(page) is Variants:
                selected = page.find((*map(headers.get, page.headers),))
                page = None if selected is None else self._find(selected)
            if page is not None:
                now = self._clock()
                if now < page.fresh_until:
                    if now >= page.prepared_until:
                        page.prepare(now)
                        self._pages.figures.fold_if_many()
                    self._served(page.size)
                    await send(
                        {"type": "http.response.start", "status": page.status, "headers": page.asgi_headers.copy()}
                    )
                    await send({"type": "http.response.body", "body": page.body})
                    return
            elif (
                selected is not None
                and (mark := self._mark_of(selected, now := self._clock())) is not None
                and mark.holds(has_session=has_session)
            ):
                if mark.is_due(now):
                    send = self._watch(scope, key, selected, headers, send)
                else:
                    self._refused(mark.reason)
                await self._app(scope, receive, _untagged(send))
                return
        await self._decide(_request(scope, headers, is_plain=is_get and not special), scope, receive, send)

    async def _decide(self, request: AsgiRequest | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is no plain hit."""
        if request is None:
            await self._app(scope, receive, _untagged(send))
        elif request.method not in ("GET", "HEAD"):
            await self._run_unsafe(request, scope, receive, send)
        else:
            decision = self._pages.decide(request)
            if isinstance(decision, Wait):
                decision = await self._follow(request, decision.key)
            if decision is None:
                await self._app(scope, receive, _untagged(send))
            elif isinstance(decision, Run):
                await _Exchange(decision, receive, send).run(self._app, scope)
            else:
                if decision.renewal is not None:
                    self._renew(decision.renewal, scope)
                await _send(send, decision)

    def _watch(self, scope: Scope, key: str, selected: str, headers: dict[bytes, bytes], send: Send) -> Send:
        """Return a ``send`` that looks at the headers of a page that could not be stored before."""
        notes = scope[SEAM] = PageNotes()

        async def watching(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = _lower(message.get("headers", ()))
                request = AsgiRequest("GET", key, scope["headers"], headers, is_plain=False)
                self._pages.reconsider(request, selected, message["status"], fields, notes)
                message = {**message, "headers": fields}
            await send(message)

        return watching

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

        await self._app(scope, receive, _untagged(invalidating))

    def _renew(self, run: Run, scope: Scope) -> None:
        """Renew a page in a task of its own, with a scope that contains nothing of the client."""
        headers = named_headers(run.request, run.fields)
        reduced = {name: scope[name] for name in KEPT_FOR_RENEWAL if name in scope}
        reduced |= {"method": "GET", "headers": headers, "client": None}
        run.request = AsgiRequest("GET", run.request.key, headers, dict(headers), is_plain=False)
        if len(self._renewals) >= MOST_RENEWALS:
            run.abandoned()
            return
        work = self._run_renewal(run, reduced)
        task = asyncio.get_running_loop().create_task(work, context=Context())
        # The loop itself holds only weak references to tasks.
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _run_renewal(self, run: Run, scope: Scope) -> None:
        try:
            await _Exchange(run, _receive_of_nobody(), _discard).run(self._app, scope)
        except Exception:
            logger.exception("Renewing a page failed; it is used until its time is over.")


class _Exchange:
    """A run, with the client's end of it."""

    def __init__(self, run: Run, receive: Receive, send: Send) -> None:
        self._run = run
        self._receive = receive
        self._client = send
        self._has_started = False
        self._is_answered = False
        self._is_client_lost = False
        self._gave_up: asyncio.Event | None = None

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
            reply = None if self._has_started else run.failed()
            if reply is None:
                raise
            await _send(self._client, reply)
        finally:
            # The application may have returned without a complete response.
            run.give_up("incomplete")

    async def _receive_from_client(self) -> Message:
        """Receive for the application. A client that disconnects does not end a run whose page can be stored."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            if self._run.is_recording:
                self._gave_up = asyncio.Event()
                await self._gave_up.wait()
        elif message.get("body") or message.get("more_body"):
            # In HTTP/2, no header announces it.
            self._run.give_up("body")
        return message

    async def _send(self, message: Message) -> None:
        run = self._run
        if run.is_recording:
            message = await self._recorded(message)
            if not run.is_recording and self._gave_up is not None:
                self._gave_up.set()
        if not self._is_answered and not self._is_client_lost:
            await self._to_client(self._client(message))

    async def _recorded(self, message: Message) -> Message:
        """Report a message to the run. Return the message to send, unless the cache has replied."""
        run = self._run
        kind = message["type"]
        if kind == "http.response.body":
            run.chunk(message.get("body", b""))
            if not message.get("more_body", False):
                run.ended()
        elif kind == "http.response.start":
            self._has_started = True
            headers = _lower(message.get("headers", ()))
            status = message["status"]
            reply = run.started(status, status_line(status), headers)
            if message.get("trailers"):
                run.give_up("trailers")
            if reply is not None:
                self._is_answered = True
                await self._to_client(_send(self._client, reply))
            # Framing is the server's work. Some refuse a response with Transfer-Encoding.
            return {**message, "headers": without(headers, {b"transfer-encoding", CACHE_TAG}) + run.announcement}
        elif kind.startswith("http.response."):
            run.give_up("extension")
        return message

    async def _to_client(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except OSError:
            # Servers may raise this if the client has disconnected. The run goes on for the page.
            if not self._run.is_recording:
                raise
            self._is_client_lost = True


def _untagged(send: Send) -> Send:
    """Return a ``send`` that leaves out the header for the cache."""

    # Not a coroutine function, which would cost each message a microsecond.
    def send_untagged(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start" and "headers" in message:
            message = {**message, "headers": [pair for pair in message["headers"] if pair[0].lower() != CACHE_TAG]}
        return send(message)

    return send_untagged


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _discard(message: Message) -> None:
    """Send nothing: the run has no client."""


def _receive_of_nobody() -> Receive:
    """Return a ``receive`` of a request without a body, whose client never disconnects."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    messages.put_nowait(dict(EMPTY_REQUEST))

    return messages.get


def _key(scope: Scope, host: bytes) -> str:
    raw_path = scope.get("raw_path")
    root = scope.get("root_path", "")
    query = scope.get("query_string", b"").decode("latin-1")
    if root or raw_path is None or b"%" in raw_path:
        path = scope["path"].encode("utf-8", "surrogatepass") if raw_path is None else raw_path
        root = root if root.isascii() else root.encode().decode("latin-1")
        raw, path = _path(path.decode("latin-1"))
        return page_key(scope.get("scheme", "http"), host.decode("latin-1"), root, query, raw, path)
    return page_key(scope.get("scheme", "http"), host.decode("latin-1"), "", query, "", raw_path.decode("latin-1"))


def _path(raw: str) -> tuple[str, str]:
    if "%" not in raw:
        return "", raw
    return encoded_slashes(raw), unquote_to_bytes(raw).decode("latin-1")


def _request(scope: Scope, headers: dict[bytes, bytes], *, is_plain: bool) -> AsgiRequest | None:
    """Return the request; None if it bypasses the cache."""
    hosts = values(scope["headers"], b"host")
    method = scope["method"]
    if len(hosts) != 1 or b"," in hosts[0] or not method.isupper():
        return None
    return AsgiRequest(method, _key(scope, hosts[0]), scope["headers"], headers, is_plain=is_plain)


def _lower(headers: Any) -> Headers:
    return [(name.lower(), value) for name, value in headers]
