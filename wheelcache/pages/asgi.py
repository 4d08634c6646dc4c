"""The ASGI driver. It answers hits, and reports the events of the application's runs to a ``Run``.

It handles only complete HTTP requests. Websockets, lifespan, and messages of extensions pass through unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from contextvars import Context
from functools import cached_property
from time import monotonic
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from wheelcache.pages.blanks import Blanks, Tokens
from wheelcache.pages.headers import FOR_THE_CACHE, Headers, as_bytes, without
from wheelcache.pages.keys import encoded_slashes, page_key
from wheelcache.pages.local_requests import ask_asgi, receive_of_nobody
from wheelcache.pages.notes import NOTES_KEY
from wheelcache.pages.page import Page, Renewal, Reply, status_line
from wheelcache.pages.pages import Decision, Pages, Selected, Wait
from wheelcache.pages.reads import WHY, Reads
from wheelcache.pages.recorded_client import Message, RecordedClient, Send
from wheelcache.pages.rehearsed import Begin, Rehearsed
from wheelcache.pages.request import (
    KEYED_HEADERS,
    NOBODY,
    SPECIAL_HEADERS,
    LostCookies,
    extra_of_key,
    named_headers,
)
from wheelcache.pages.rules import CONDITIONS
from wheelcache.pages.run import BODY, EXTENSION, INCOMPLETE, TRAILERS, Forward, Run
from wheelcache.pages.tried import TriedRun
from wheelcache.pages.variants import COOKIE, Raw, Variants, is_safe

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
AnyRun = Run | Rehearsed

logger = logging.getLogger("wheelcache")

MOST_RENEWALS: Final = 64
"""Tasks."""

NONE: Final[frozenset[bytes]] = frozenset()

KEPT_FOR_RENEWAL: Final = (
    *("type", "asgi", "http_version", "scheme", "path", "raw_path", "query_string", "root_path", "server", "state"),
)
"""The parts of a scope that do not depend on the client."""

REPLACED: Final = "\ufffd"
"""Stands in ``path`` for bytes that are not UTF-8."""

NOT_SENT: Final = FOR_THE_CACHE | {b"transfer-encoding"}
"""Framing is the server's work. Some refuse a response with Transfer-Encoding."""


class AsgiRequest:
    """A request, made from its ASGI scope: see ``Request``.

    Args:
        by_name: the headers of the scope, which have one line each.
    """

    blocks: Final = False

    def __init__(
        self,
        key: str,
        scope: Scope,
        by_name: dict[bytes, bytes],
        *,
        is_plain: bool,
        has_session: bool,
        loses_cookies: bool = False,
    ) -> None:
        self.method: str = scope["method"]
        self.key = key
        self.is_plain = is_plain
        self.has_session = has_session
        self.loses_cookies = loses_cookies
        self.scope = scope
        self._values = by_name
        self.host = by_name.get(b"host", b"").decode("latin-1")
        self.root = _root(scope)
        self.path = _whole_path(scope)
        self.query = _query(scope)
        self.traces: Reads | None = scope.get(WHY)
        self.cookie = by_name.get(COOKIE)

    def value(self, name: bytes) -> bytes | None:
        return self._values.get(name)

    def of_the_server(self, name: str) -> str:
        name_and_port = self.scope.get("server") or ("", "")
        return str(name_and_port[name == "SERVER_PORT"])

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        return (*map(self._values.get, names),)

    def repeated(self) -> AsgiRequest:
        scope = self.without_client(frozenset()).scope
        own = {name: self.scope[name] for name in ("headers", "client") if name in self.scope}
        scope = {**scope, **own}
        return AsgiRequest(self.key, scope, self._values, is_plain=False, has_session=self.has_session)

    def without_client(self, fields: frozenset[bytes]) -> AsgiRequest:
        headers = named_headers(self, fields)
        scope = {name: self.scope[name] for name in KEPT_FOR_RENEWAL if name in self.scope}
        if "state" in scope:
            # The application writes into it.
            scope["state"] = dict(scope["state"])
        scope |= {"method": "GET", "headers": headers, "client": (NOBODY, 0)}
        return AsgiRequest(self.key, scope, dict(headers), is_plain=False, has_session=self.has_session)

    @cached_property
    def is_safe(self) -> bool:
        headers = self.scope["headers"]
        return not [name for name, value in headers if not name.isascii() or b"_" in name or is_safe(value) is None]


class AsgiCache:
    """An ASGI application that caches the pages of another one."""

    def __init__(self, app: App, pages: Pages) -> None:
        self._app = app
        self._pages = pages
        options = pages.options
        self._query = options.query
        self._find = pages.find
        self._clock = pages.clock
        self._served = pages.figures.served
        self._sessions = options.sessions
        self._find_session = self._sessions.find_in_bytes
        self._mode = pages.mode
        self._tokens = pages.storing.site.tokens
        self._lost = options.lost
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._query is not None and self._mode.fast_method and scope.get("query_string"):
            scope = {**scope, "query_string": self._query.normalized(_query(scope)).encode("latin-1")}
        headers: dict[bytes, bytes] = dict(scope["headers"])
        is_plain = scope["method"] == self._mode.fast_method
        sent = scope
        if len(headers) != len(scope["headers"]):
            scope = _with_one_line_per_field(scope)
            headers = dict(scope["headers"])
        loses = self._lost is not None and COOKIE in headers and _lose(scope, headers, self._lost)
        if loses:
            scope = {**scope, "headers": [*headers.items()]}
        keyed, has_session = NONE, False
        if not SPECIAL_HEADERS.isdisjoint(headers):
            special = SPECIAL_HEADERS.intersection(headers)
            keyed, is_plain = special & KEYED_HEADERS, is_plain and special <= KEYED_HEADERS
        if COOKIE in headers and self._find_session(headers[COOKIE]) is not None:
            has_session = self._sessions.are_in(headers[COOKIE])
        extra = ""
        if keyed or has_session:
            values_by_name = {name.decode(): headers[name].decode("latin-1") for name in keyed}
            extra = extra_of_key(values_by_name, has_session=has_session)
        key = _key(scope, headers.get(b"host", b"").decode("latin-1"), extra)
        selected = None
        if is_plain:
            page = found = self._find(key)
            variant: str | None = key
            if type(found) is Variants:
                variant = found.find((*map(headers.get, found.headers),))
                page = None if variant is None else self._find(variant)
            if page is not None and self._mode.serves and self._clock() < page.sent_until:
                if page.blanks is None or self._tokens is None:
                    self._served(page.size)
                    headers_of_hit, body = page.asgi_headers.copy(), page.body
                else:
                    headers_of_hit, body = self._filled(page, page.blanks, self._tokens, headers.get(COOKIE, b""))
                if headers_of_hit is not None:
                    start = {"type": "http.response.start", "status": page.status, "headers": headers_of_hit}
                    await send(start)
                    await send({"type": "http.response.body", "body": body})
                    return
            selected = Selected(variant, page, page is not found)
        request = AsgiRequest(key, scope, headers, is_plain=is_plain, has_session=has_session, loses_cookies=loses)
        decision = self._pages.decide(request, selected)
        while isinstance(decision, Wait):
            decision = await self._follow(request, decision)
        if isinstance(decision, Forward):
            await self._app(sent, receive, _forwarding(decision, send))
        elif isinstance(decision, Run):
            if isinstance(decision, TriedRun):
                decision.begin_rerun = self._reruns()
            await _Exchange(decision, receive, send).run(self._app, scope)
        elif isinstance(decision, Rehearsed):
            decision.begin_rerun = self._reruns()
            await _Exchange(decision, receive, send).run(self._app, sent)
        else:
            if decision.renewal is not None:
                self._renew(decision.renewal)
            await _send(send, decision)

    def _filled(self, page: Page, blanks: Blanks, tokens: Tokens, cookies: bytes) -> tuple[Headers | None, bytes]:
        """Return the headers and the body of a hit for one visitor; None if the request bypasses the page."""
        secret = tokens.secret(cookies.decode("latin-1"))
        if secret is None:
            return None, b""
        body, headers = tokens.fill(blanks, secret)
        self._served(len(body))
        return page.asgi_headers + as_bytes(headers), body

    async def warm(self, urls: Iterable[str], *, headers: Mapping[str, str] | None = None, seconds: float = 10) -> int:
        """Request pages, so that the first visitors of this process do not wait for them: see ``WsgiCache.warm``.

        Await it in the lifespan of the application, or in a task.
        """
        stored, until = 0, monotonic() + seconds
        for url in urls:
            if monotonic() >= until:
                break
            try:
                stored += (await ask_asgi(self, url, headers or {})).is_stored
            except Exception:
                logger.exception("The page %s is not warmed.", url)
        return stored

    async def _follow(self, request: AsgiRequest, wait: Wait) -> Decision:
        """Wait for a run, and decide again."""
        try:
            if wait.run is not None:
                self._start(wait.run)
            await wait.alarm.wait_async(wait.seconds)
        finally:
            wait.turn.leave()
        return self._pages.decide_after_wait(request, wait)

    # Runs without a client, in tasks of their own.

    def _renew(self, renewal: Renewal) -> None:
        if len(self._tasks) >= MOST_RENEWALS:
            self._pages.renewals_are_late()
            return
        turn = self._pages.queue_renewal(renewal.key)
        run = None if turn is None else self._pages.begin_renewal(renewal, turn)
        if run is not None:
            self._start(run)

    def _reruns(self) -> Begin:
        """Return a function that begins a run in this event loop, from any thread."""
        loop = asyncio.get_running_loop()

        def begin(run: Rehearsed) -> None:
            try:
                loop.call_soon_threadsafe(self._begin_rerun, run)
            except RuntimeError:
                # The loop is closed.
                run.abandoned()

        return begin

    def _begin_rerun(self, run: Rehearsed) -> None:
        if len(self._tasks) >= MOST_RENEWALS:
            run.abandoned()
        else:
            self._begin(run)

    def _start(self, run: Run) -> None:
        run.request = run.request.without_client(run.fields)
        self._begin(run)

    def _begin(self, run: AnyRun) -> None:
        work = self._run_without_client(run, cast(AsgiRequest, run.request).scope)
        task = asyncio.get_running_loop().create_task(work, context=Context())
        # The loop itself holds only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_without_client(self, run: AnyRun, scope: Scope) -> None:
        try:
            await _Exchange(run, receive_of_nobody(), _discard).run(self._app, scope)
        except Exception:
            logger.exception("A run of the application without a client failed, such as the renewal of a page.")


class _Exchange:
    """A run, with the client's end of it."""

    def __init__(self, run: AnyRun, receive: Receive, send: Send) -> None:
        self._run = run
        self._receive = receive
        self._client = RecordedClient(run, send)
        self._has_started = False
        self._is_answered = False
        self._gave_up: asyncio.Event | None = None

    async def run(self, app: App, scope: Scope) -> None:
        """Run the application, and send its response or a reply in its place."""
        run = self._run
        scope = {**scope, NOTES_KEY: run.notes}
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
                await self._finish()
                raise
            await _send(self._client.send, reply)
        else:
            await self._finish()
        finally:
            run.give_up(INCOMPLETE)
            self._client.close()

    async def _finish(self) -> None:
        """Send the rest of a response that the application has left incomplete."""
        self._run.give_up(INCOMPLETE)
        # The client may have disconnected.
        with suppress(OSError):
            await self._client.flush()

    async def _receive_from_client(self) -> Message:
        """Receive for the application. A client that disconnects ends neither a run for which other requests wait nor a
        response that is being stored."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            run = self._run
            if run.is_recording and run.outlives_its_client and (self._has_started or run.is_awaited):
                self._gave_up = asyncio.Event()
                await self._gave_up.wait()
            # The application may end its response early, as if it were complete.
            run.abandoned()
        elif message.get("body") or message.get("more_body"):
            # In HTTP/2, no header announces it.
            self._run.give_up(BODY)
        return message

    async def _send(self, message: Message) -> None:
        run = self._run
        if message["type"] == "http.response.start":
            message = await self._started(message)
        elif run.is_recording:
            self._record(message)
        if not run.is_recording and self._gave_up is not None:
            self._gave_up.set()
        if not self._is_answered:
            await self._client.send(message)

    async def _started(self, message: Message) -> Message:
        """Report the beginning of the response. Return the message to send, unless the cache has replied."""
        run = self._run
        self._has_started = True
        headers = _lower(message.get("headers", ()))
        status = message["status"]
        reply = run.started(status, status_line(status), headers) if run.is_recording else None
        if message.get("trailers"):
            run.give_up(TRAILERS)
        if reply is not None:
            self._is_answered = True
            await _send(self._client.send, reply)
        headers = headers if run.headers is None else run.headers
        return {**message, "headers": without(headers, NOT_SENT) + run.announcement.headers}

    def _record(self, message: Message) -> None:
        run = self._run
        if message["type"] == "http.response.body":
            run.chunk(message.get("body", b""))
            if not message.get("more_body", False):
                run.ended()
        elif message["type"].startswith("http.response."):
            run.give_up(EXTENSION)


def _forwarding(forward: Forward, send: Send) -> Send:
    """Return a ``send`` for a response that is not stored."""

    # Not a coroutine function, which would cost each message a microsecond.
    def send_forwarded(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            if forward.is_watched:
                given = _lower(given)
                forward.started(message["status"], given)
            headers = [pair for pair in given if pair[0].lower() not in FOR_THE_CACHE]
            message = {**message, "headers": headers + forward.announcement.headers}
        return send(message)

    return send_forwarded


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _discard(message: Message) -> None:
    """Send nothing: the run has no client."""


def _key(scope: Scope, host: str, extra: str) -> str:
    raw_path, path, root, raw = scope.get("raw_path"), scope["path"], scope.get("root_path", ""), ""
    query = scope.get("query_string", b"").decode("latin-1")
    if root or not path.isascii():
        # A call of each function for all paths would add a tenth to the time of a hit.
        root, path = _root(scope), _path(scope)
    if raw_path is not None and b"%" in raw_path:
        raw = raw_path.decode("latin-1")
        if REPLACED not in scope["path"]:
            raw = encoded_slashes(raw)
    return page_key(scope.get("scheme", "http"), host, root, query, raw, path, extra)


def _lose(scope: Scope, headers: dict[bytes, bytes], lost: LostCookies) -> bool:
    """Remove the cookies that the page loses from its headers. Return whether there were any."""
    given, host = headers[COOKIE], headers.get(b"host", b"").decode("latin-1")
    if lost.find_in_bytes(given) is None:
        return False
    kept = lost.removed(scope["method"], host, _whole_path(scope), given)
    if kept == given:
        return False
    headers[COOKIE] = kept
    if not kept:
        del headers[COOKIE]
    return True


def _query(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return query.decode("latin-1")


def _root(scope: Scope) -> str:
    """Return the script name, one character for each byte."""
    root: str = scope.get("root_path", "")
    return root if root.isascii() else root.encode().decode("latin-1")


def _path(scope: Scope) -> str:
    """Return the decoded path, one character for each byte.

    The application sees ``path``, which a middleware in front of the cache may have changed. ``raw_path`` only tells
    apart what decoding has made equal.
    """
    path: str = scope["path"]
    raw_path = scope.get("raw_path")
    if REPLACED in path and raw_path is not None:
        sent = unquote_to_bytes(raw_path)
        if sent.decode(errors="replace") == path:
            return sent.decode("latin-1")
    return path.encode("utf-8", "surrogatepass").decode("latin-1")


def _whole_path(scope: Scope) -> str:
    """Return the path with the script name."""
    path = _path(scope)
    if not scope.get("root_path"):
        return path
    root = _root(scope)
    return path if f"{path}/".startswith(f"{root}/") else root + path


def _with_one_line_per_field(scope: Scope) -> Scope:
    """Return a scope whose fields have one line each, as RFC 9110 (5.3) and RFC 9113 (8.2.3) allow it.

    Some applications use the first of several lines, others all of them. This one sees what the key of its page has.
    """
    lines: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        lines.setdefault(name, []).append(value)
    joined = [(name, (b"; " if name == COOKIE else b", ").join(values)) for name, values in lines.items()]
    return {**scope, "headers": joined}


def _lower(headers: Any) -> Headers:
    return [(name.lower(), value) for name, value in headers]
