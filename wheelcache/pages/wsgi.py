"""The WSGI driver. It answers hits, and reports the events of the application's runs to a ``Run``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from contextvars import Context
from dataclasses import replace
from functools import cached_property, partial
from io import BytesIO
from time import monotonic
from types import TracebackType
from typing import Any, Final, cast

from wheelcache.engine.turns import End, Turn
from wheelcache.pages.cache_status import Announcement
from wheelcache.pages.headers import FOR_THE_CACHE, WsgiHeaders, as_bytes, as_text
from wheelcache.pages.keys import encoded_slashes, page_key
from wheelcache.pages.local_requests import ask_wsgi, drain
from wheelcache.pages.notes import NOTES_KEY, UNREADABLE
from wheelcache.pages.page import Renewal, Reply
from wheelcache.pages.pages import Decision, Pages, Selected, Wait
from wheelcache.pages.reads import WHY, Reads
from wheelcache.pages.rehearsed import Rehearsed
from wheelcache.pages.request import (
    KEYED_HEADERS,
    NOBODY,
    SPECIAL_HEADERS,
    LostCookies,
    extra_of_key,
    named_headers,
)
from wheelcache.pages.rules import CONDITIONS
from wheelcache.pages.run import BODY, ERROR, FILE, WRITE, Forward, Run
from wheelcache.pages.tried import TriedRun
from wheelcache.pages.variants import Raw, Variants, environ_name, is_safe_text
from wheelcache.runtime.worker_pool import WorkerPool

Environ = dict[str, Any]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
AnyRun = Run | Rehearsed

logger = logging.getLogger("wheelcache")

SPECIAL: Final = frozenset(environ_name(name) for name in SPECIAL_HEADERS if name != b"content-length")
KEYED: Final = frozenset(map(environ_name, KEYED_HEADERS))
REPLACED: Final = tuple(map(environ_name, CONDITIONS))
NOT_SENT: Final = frozenset(name.decode() for name in FOR_THE_CACHE)
NONE: Final[frozenset[str]] = frozenset()

FROM_CLIENT: Final = ("HTTP_", "REMOTE_")
NO_FIELDS: Final[frozenset[bytes]] = frozenset()

READING: Final = frozenset(["read", "read1", "readinto", "readinto1", "readline", "readlines"])
"""The methods that read the body of a request."""

RENEWALS: Final = 2
"""Threads. Each may keep a database connection open, as those of the server do."""
MOST_RENEWALS: Final = 64

renewal_pool: Final = WorkerPool(RENEWALS, MOST_RENEWALS, name="wheelcache-pages")


class WsgiRequest:
    """A request, made from its WSGI environ: see ``Request``."""

    blocks: Final = True

    def __init__(
        self, key: str, environ: Environ, *, is_plain: bool, has_session: bool, loses_cookies: bool = False
    ) -> None:
        self.method: str = environ["REQUEST_METHOD"]
        self.key = key
        self.is_plain = is_plain
        self.has_session = has_session
        self.loses_cookies = loses_cookies
        self.environ = environ
        self.host: str = environ.get("HTTP_HOST", "")
        self.root: str = environ.get("SCRIPT_NAME", "")
        self.path: str = self.root + environ.get("PATH_INFO", "")
        self.query: str = environ.get("QUERY_STRING", "")
        self.traces: Reads | None = environ.get(WHY)
        self.cookie = environ["HTTP_COOKIE"].encode("latin-1") if "HTTP_COOKIE" in environ else None

    def value(self, name: bytes) -> bytes | None:
        value = self.environ.get(environ_name(name))
        return None if value is None else value.encode("latin-1")

    def of_the_server(self, name: str) -> str:
        return str(self.environ.get(name, ""))

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        return (*(self.environ.get(environ_name(name)) for name in names),)

    def repeated(self) -> WsgiRequest:
        own = {name: each for name, each in self.environ.items() if name.startswith(FROM_CLIENT)}
        reduced = self.without_client(NO_FIELDS).environ | own
        return WsgiRequest(self.key, reduced, is_plain=False, has_session=self.has_session)

    def without_client(self, fields: frozenset[bytes]) -> WsgiRequest:
        environ = self.environ
        kept = (
            *("SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "RAW_URI", "REQUEST_URI", "SERVER_NAME"),
            *("SERVER_PORT", "SERVER_PROTOCOL", "wsgi.version", "wsgi.url_scheme", "wsgi.errors", "wsgi.multithread"),
            *("wsgi.multiprocess",),
        )
        reduced = {name: environ[name] for name in kept if name in environ}
        reduced |= {environ_name(name): value.decode("latin-1") for name, value in named_headers(self, fields)}
        reduced |= {"REQUEST_METHOD": "GET", "REMOTE_ADDR": NOBODY, "wsgi.input": BytesIO(), "wsgi.run_once": False}
        return WsgiRequest(self.key, reduced, is_plain=False, has_session=self.has_session)

    @cached_property
    def is_safe(self) -> bool:
        environ = self.environ
        # Django takes them for the entries without HTTP_. Servers make them from names with underscores.
        if "HTTP_CONTENT_TYPE" in environ or "HTTP_CONTENT_LENGTH" in environ:
            return False
        return not [name for name, value in environ.items() if name[:5] == "HTTP_" and is_safe_text(value) is None]


class WsgiCache:
    """A WSGI application that caches the pages of another one."""

    def __init__(self, app: App, pages: Pages) -> None:
        self._app = app
        self._pages = pages
        options = pages.options
        self._query = options.query
        self._find = pages.find
        self._clock = pages.clock
        self._served = pages.figures.served
        self._sessions = options.sessions
        self._find_session = self._sessions.find_in_text
        self._mode = pages.mode
        self._tokens = pages.storing.site.tokens
        self._lost = options.lost

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self._query is not None and self._mode.fast_method and environ.get("QUERY_STRING"):
            environ = _with_query(environ, self._query.normalized(environ["QUERY_STRING"]))
        given = environ
        if self._lost is not None and "HTTP_COOKIE" in environ:
            environ = _without_lost(environ, self._lost)
        is_plain = environ["REQUEST_METHOD"] == self._mode.fast_method
        is_plain = is_plain and environ.get("CONTENT_LENGTH", "") in ("", "0")
        keyed, has_session = NONE, False
        if not environ.keys().isdisjoint(SPECIAL):
            special = SPECIAL.intersection(environ)
            keyed, is_plain = special & KEYED, is_plain and special <= KEYED
        if "HTTP_COOKIE" in environ and self._find_session(environ["HTTP_COOKIE"]) is not None:
            has_session = self._sessions.are_in(environ["HTTP_COOKIE"].encode("latin-1"))
        extra = ""
        if keyed or has_session:
            extra = extra_of_key({name: environ[name] for name in keyed}, has_session=has_session)
        key = _key(environ, extra)
        selected = None
        if is_plain:
            page = found = self._find(key)
            variant: str | None = key
            if type(found) is Variants:
                variant = found.find((*map(environ.get, found.environ_names),))
                page = None if variant is None else self._find(variant)
            if page is not None and self._mode.serves and self._clock() < page.sent_until:
                if page.blanks is None or self._tokens is None:
                    self._served(page.size)
                    start_response(page.reason, page.wsgi_headers.copy())
                    return [page.body]
                secret = self._tokens.secret(environ.get("HTTP_COOKIE", ""))
                if secret is not None:
                    filled = self._tokens.fill(page.blanks, secret)
                    self._served(len(filled.body))
                    start_response(page.reason, page.wsgi_headers + filled.headers)
                    return [filled.body]
            selected = Selected(variant, page, page is not found)
        loses = given is not environ
        request = WsgiRequest(key, environ, is_plain=is_plain, has_session=has_session, loses_cookies=loses)
        decision = self._pages.decide(request, selected)
        while isinstance(decision, Wait):
            decision = self._follow(request, decision)
        if isinstance(decision, Forward):
            return self._app(given, partial(_start_forwarded, decision, start_response))
        if isinstance(decision, Run):
            if isinstance(decision, TriedRun):
                decision.begin_rerun = self._queue_rerun
            return _Exchange(decision, start_response).respond(self._app, environ)
        if isinstance(decision, Rehearsed):
            decision.begin_rerun = self._queue_rerun
            return _Exchange(decision, start_response).respond(self._app, given)
        if decision.renewal is not None:
            self._queue_renewal(decision.renewal)
        return _send(start_response, decision)

    def warm(self, urls: Iterable[str], *, headers: Mapping[str, str] | None = None, seconds: float = 10) -> int:
        """Request pages, so that the first visitors of this process do not wait for them.

        The application runs in this thread, for one URL after the other. Its exceptions are logged. Call this in each
        worker, for instance at the end of ``wsgi.py``, but not before the server forks: the application may open
        connections to databases.

        Args:
            urls: absolute URLs as the application sees them: behind a proxy perhaps with http instead of https.
            headers: the headers on which the pages depend, with the values of most visitors, such as
                ``{"Accept-Encoding": "gzip, deflate, br, zstd"}``, and those that the proxy adds, such as
                ``{"X-Forwarded-Proto": "https"}``.
            seconds: the time after which no further page is requested.

        Returns:
            The number of these pages that are stored.
        """
        stored, until = 0, monotonic() + seconds
        for url in urls:
            if monotonic() >= until:
                break
            try:
                stored += ask_wsgi(self, url, headers or {}).is_stored
            except Exception:
                logger.exception("The page %s is not warmed.", url)
        return stored

    def _follow(self, request: WsgiRequest, wait: Wait) -> Decision:
        """Wait for a run, and decide again."""
        try:
            queued = []
            if wait.run is not None:
                wait.run.request = wait.run.request.without_client(wait.run.fields)
                queued = self._queue_run(wait.run)
            wait.alarm.wait(wait.seconds)
        finally:
            wait.turn.leave()
        # Unless a thread has begun it.
        if _abandon_first(queued):
            self._pages.renewals_are_late()
        return self._pages.decide_after_wait(request, wait)

    # Runs without a client, in a thread of the pool.

    def _queue_renewal(self, renewal: Renewal) -> None:
        """Renew a page as soon as a thread is free."""
        turn = self._pages.queue_renewal(renewal.key)
        if turn is None:
            return
        reduced = replace(renewal, request=renewal.request.without_client(renewal.page.fields))
        if not self._submit(partial(self._pages.begin_renewal, reduced, turn)):
            turn.end(End.AGAIN)

    def _queue_run(self, run: Run) -> list[Run]:
        """Queue a run with its turn. Return a list that contains it until a thread begins it."""
        queued, turn = [run], cast(Turn, run.turn)
        turn.hand_over()

        def begin() -> Run | None:
            # One thread pops it, this one or the one that no longer waits.
            with suppress(IndexError):
                run = queued.pop()
                turn.take_back()
                return run
            return None

        if not self._submit(begin):
            _abandon_first(queued)
        return queued

    def _queue_rerun(self, run: Rehearsed) -> None:
        if not self._submit(lambda: run):
            run.abandoned()

    def _submit(self, begin: Callable[[], AnyRun | None]) -> bool:
        with suppress(RuntimeError):
            # Otherwise, no thread can be had.
            # An empty context: frameworks and sites keep the language and the user of a request in theirs.
            if renewal_pool.submit(partial(_run_without_client, self._app, begin), context=Context()):
                return True
        self._pages.renewals_are_late()
        return False


def _abandon_first(queued: list[Run]) -> bool:
    """Abandon a queued run. Return whether it was still queued."""
    with suppress(IndexError):
        queued.pop().abandoned()
        return True
    return False


class _Exchange:
    """A run, with the client's end of it.

    Attributes:
        run: the run.
        reply: the cache's answer in place of the application's; None if the application's is sent.
    """

    def __init__(self, run: AnyRun, start_response: StartResponse) -> None:
        self.run = run
        self.reply: Reply | None = None
        self._start_response = start_response
        self._has_started = False
        self._file: Iterable[bytes] | None = None

    def respond(self, app: App, environ: Environ) -> Iterable[bytes]:
        """Run the application. Return its iterable, or another one in its place."""
        run = self.run
        # A copy: applications change their environ, and the page is stored under the headers of the request.
        environ = {**environ, NOTES_KEY: run.notes}
        if run.conditions is not None:
            for name in REPLACED:
                environ.pop(name, None)
        if run.conditions:
            environ |= {environ_name(name): value.decode("latin-1") for name, value in run.conditions}
        if "wsgi.input_terminated" in environ:
            environ["wsgi.input"] = _Input(run, environ["wsgi.input"])
        if "wsgi.file_wrapper" in environ:
            environ["wsgi.file_wrapper"] = partial(self._wrap_file, environ["wsgi.file_wrapper"])
        try:
            iterable = app(environ, self._start)
        except Exception:
            reply = self.reply_to_failure()
            if reply is None:
                raise
            return self.send(reply)
        except BaseException:
            run.abandoned()
            raise
        if self._has_started:
            if self._file is not None and iterable is self._file:
                run.give_up(FILE)
            if not run.is_recording and self.reply is None:
                return iterable
            if type(iterable) is list or type(iterable) is tuple:
                return self.complete(iterable)
            if self.reply is not None:
                # Immediately, since granian needs ``start_response`` to be called before this returns.
                with closing(_Recorded(self, iterable)) as recorded:
                    return [*recorded]
        return _Recorded(self, iterable)

    def _start(self, status: str, headers: WsgiHeaders, exc_info: ExcInfo | None = None) -> Write:
        run = self.run
        if self._has_started:
            # The application failed in the middle of its response.
            run.give_up(ERROR)
            self.reply = None
            return self._start_response(status, _sent(headers, run.announcement), exc_info)
        self._has_started = True
        if run.is_recording:
            try:
                found = as_bytes(headers)
            except UnicodeEncodeError:
                # The server decides about such a response.
                run.give_up(UNREADABLE)
            else:
                self.reply = run.started(_number(status), status, found)
        if self.reply is not None:
            return partial(self._write, _discard)
        headers = _sent(headers if run.headers is None else as_text(run.headers), run.announcement)
        write = self._start_response(status, headers, exc_info) if exc_info else self._start_response(status, headers)
        return partial(self._write, write) if run.is_recording else write

    def _wrap_file(self, file_wrapper: Callable[..., Iterable[bytes]], *file: Any) -> Iterable[bytes]:
        # The server recognizes its own object, which may be of any type.
        self._file = file_wrapper(*file)
        return self._file

    def _write(self, write: Write, data: bytes) -> object:
        self.run.give_up(WRITE)
        return write(data)

    def complete(self, body: list[bytes] | tuple[bytes, ...]) -> Iterable[bytes]:
        """Record a body that is there already. Return it, or the body of the reply in its place."""
        for each in body:
            self.run.chunk(each)
        self.run.ended()
        return body if self.reply is None else self.send(self.reply)

    def reply_to_failure(self) -> Reply | None:
        """Return a stale page if it may replace the exception that the application raised."""
        reply = None if self._has_started else self.run.failed()
        self.run.give_up(ERROR)
        return reply

    def send(self, reply: Reply) -> list[bytes]:
        return _send(self._start_response, reply)


class _Input:
    """The body of a request whose headers announce none. In HTTP/2, it may have one nevertheless."""

    def __init__(self, run: AnyRun, stream: Any) -> None:
        self._run = run
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return map(self._seen, self._stream)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        return (lambda *args: self._seen(found(*args))) if name in READING else found

    def _seen(self, data: Any) -> Any:
        if data:
            self._run.give_up(BODY)
        return data


class _Recorded:
    """The iterable of a response that is recorded while the server sends it."""

    def __init__(self, exchange: _Exchange, iterable: Iterable[bytes]) -> None:
        self._exchange = exchange
        self._iterable = iterable
        self._iterator: Iterator[bytes] | None = None
        self._rest: list[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._rest is not None:
            return self._next_of_rest()
        run = self._exchange.run
        try:
            if self._iterator is None:
                self._iterator = iter(self._iterable)
            data = next(self._iterator)
        except StopIteration:
            if run.is_recording:
                run.ended()
            if self._exchange.reply is None:
                raise
            return self._answer(self._exchange.reply)
        except Exception:
            reply = self._exchange.reply_to_failure()
            if reply is None:
                raise
            return self._answer(reply)
        if run.is_recording:
            run.chunk(data)
        reply = self._exchange.reply
        if reply is None:
            return data
        for rest in self._iterator:
            # The cache replies. The application's response is only recorded.
            if not run.is_recording:
                break
            run.chunk(rest)
        else:
            run.ended()
        return self._answer(reply)

    def _answer(self, reply: Reply) -> bytes:
        self._rest = self._exchange.send(reply)
        return self._next_of_rest()

    def _next_of_rest(self) -> bytes:
        if not self._rest:
            raise StopIteration
        return self._rest.pop()

    def close(self) -> None:
        if self._exchange.run.is_recording:
            # Otherwise, the iterable has ended.
            self._exchange.run.closed()
        close = getattr(self._iterable, "close", None)
        if close is not None:
            close()


def _start_forwarded(
    forward: Forward,
    start_response: StartResponse,
    status: str,
    headers: WsgiHeaders,
    exc_info: ExcInfo | None = None,
) -> Write:
    """Call ``start_response`` for a response that is not stored."""
    if forward.is_watched:
        forward.started(_number(status), as_bytes(headers, "replace"))
    sent = _sent(headers, forward.announcement)
    return start_response(status, sent, exc_info) if exc_info else start_response(status, sent)


def _number(status: str) -> int:
    """Return the number of a status line, or 0 for a line without one, which some servers accept."""
    return int(status[:3]) if status[:3].isdecimal() else 0


def _sent(headers: WsgiHeaders, announcement: Announcement) -> WsgiHeaders:
    """Return the headers without those for the cache, with those that the cache adds."""
    return [pair for pair in headers if pair[0].lower() not in NOT_SENT] + announcement.text


def _send(start_response: StartResponse, reply: Reply) -> list[bytes]:
    start_response(reply.reason, as_text(reply.headers))
    return [reply.body] if reply.body else []


def _discard(data: bytes) -> None:
    """Write nothing: the cache has replied."""


def _run_without_client(app: App, begin: Callable[[], AnyRun | None]) -> None:
    run = begin()
    if run is None:
        return
    request = cast(WsgiRequest, run.request)
    drain(_Exchange(run, lambda *_: _discard).respond(app, request.environ))


def _with_query(environ: Environ, query: str) -> Environ:
    """Return an environ with this query, which is the one in the key of the page."""
    if query == environ["QUERY_STRING"]:
        return environ
    environ = {**environ, "QUERY_STRING": query}
    for name in ("RAW_URI", "REQUEST_URI"):
        if name in environ:
            environ[name] = environ[name].partition("?")[0] + (f"?{query}" if query else "")
    return environ


def _without_lost(environ: Environ, lost: LostCookies) -> Environ:
    """Return an environ without the cookies that the page loses; the same one if it loses none."""
    if lost.find_in_text(environ["HTTP_COOKIE"]) is None:
        return environ
    header = environ["HTTP_COOKIE"].encode("latin-1")
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    kept = lost.removed(environ["REQUEST_METHOD"], environ.get("HTTP_HOST", ""), path, header)
    if kept == header:
        return environ
    environ = {**environ, "HTTP_COOKIE": kept.decode("latin-1")}
    if not kept:
        del environ["HTTP_COOKIE"]
    return environ


def _key(environ: Environ, extra: str) -> str:
    get = environ.get
    raw = get("RAW_URI") or get("REQUEST_URI") or ""
    return page_key(
        environ["wsgi.url_scheme"],
        get("HTTP_HOST", ""),
        get("SCRIPT_NAME", ""),
        get("QUERY_STRING", ""),
        encoded_slashes(raw) if "%2" in raw else "",
        get("PATH_INFO", ""),
        extra,
    )
