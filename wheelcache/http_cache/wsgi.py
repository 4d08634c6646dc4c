"""The WSGI driver. It answers hits, and reports the events of the application's runs to a ``Run``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import Any, Final

from wheelcache.http_cache.flights import ThreadWaiter
from wheelcache.http_cache.headers import Headers
from wheelcache.http_cache.keys import encoded_slashes, page_key
from wheelcache.http_cache.notes import SEAM, PageNotes
from wheelcache.http_cache.page import WsgiHeaders, as_text
from wheelcache.http_cache.pages import Pages, Wait
from wheelcache.http_cache.replies import Reply
from wheelcache.http_cache.request import KEYED_HEADERS, SPECIAL_HEADERS, named_headers
from wheelcache.http_cache.rules import CONDITIONS
from wheelcache.http_cache.run import Run
from wheelcache.http_cache.variants import Raw, Variants, environ_name, is_safe
from wheelcache.runtime.worker_pool import WorkerPool

Environ = dict[str, Any]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

SPECIAL: Final = frozenset(environ_name(name) for name in SPECIAL_HEADERS if name != b"content-length")
KEYED: Final = {environ_name(name): name for name in KEYED_HEADERS}
NONE: Final[frozenset[str]] = frozenset()
REPLACED: Final = tuple(environ_name(name) for name in CONDITIONS)

RENEWALS: Final = 2
"""Threads. Each may keep a database connection open, as those of the server do."""
MOST_RENEWALS: Final = 64

renewal_pool: Final = WorkerPool(RENEWALS, MOST_RENEWALS, name="wheelcache-pages")


class WsgiRequest:
    """A request, made from its WSGI environ: see ``Request``."""

    __slots__ = ("_environ", "is_plain", "key", "method")

    def __init__(self, method: str, key: str, environ: Environ, *, is_plain: bool) -> None:
        self.method = method
        self.key = key
        self.is_plain = is_plain
        self._environ = environ

    def value(self, name: bytes) -> bytes | None:
        value = self._environ.get(environ_name(name))
        return None if value is None else value.encode("latin-1")

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        return (*(self._environ.get(environ_name(name)) for name in names),)

    def is_safe(self) -> bool:
        return all(is_safe(value.encode("latin-1")) for name, value in self._environ.items() if name[:5] == "HTTP_")


class WsgiCache:
    """A WSGI application that caches the pages of another one."""

    def __init__(self, app: App, pages: Pages, wait: float) -> None:
        self._app = app
        self._pages = pages
        self._wait = wait
        self._find = pages.find
        self._clock = pages.clock
        self._served = pages.figures.served
        self._refused = pages.figures.refused
        self._mark_of = pages.marks.get
        self._find_session = re.compile(pages.session_pattern.decode("latin-1")).search

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        special = NONE if environ.keys().isdisjoint(SPECIAL) else SPECIAL.intersection(environ)
        is_get = environ["REQUEST_METHOD"] == "GET" and environ.get("CONTENT_LENGTH", "") in ("", "0")
        key = _key(environ)
        selected: str | None = key
        if is_get and (not special or special <= KEYED.keys()):
            page = self._find(key)
            has_session = "HTTP_COOKIE" in environ and self._find_session(environ["HTTP_COOKIE"]) is not None
            # Behind a proxy, or with a session, a request gets only pages that depend on that.
            may_use = self._pages.is_keyed_by if special or has_session else None
            if may_use and page is not None and not may_use(page, map(KEYED.__getitem__, special), has_session):
                page = selected = None
            if type(page) is Variants:
                selected = page.find((*map(environ.get, page.environ_names),))
                page = None if selected is None else self._find(selected)
            if page is not None:
                now = self._clock()
                if now < page.fresh_until:
                    if now >= page.prepared_until:
                        page.prepare(now)
                        self._pages.figures.fold_if_many()
                    self._served(page.size)
                    start_response(page.reason, page.wsgi_headers.copy())
                    return [page.body]
            elif (
                selected is not None
                and (mark := self._mark_of(selected, now := self._clock())) is not None
                and mark.holds(has_session=has_session)
            ):
                if mark.is_due(now):
                    start_response = self._watch(environ, key, selected, start_response)
                else:
                    self._refused(mark.reason)
                return self._run(environ, start_response)
        host = environ.get("HTTP_HOST", "")
        method = environ["REQUEST_METHOD"]
        if not host or "," in host or not method.isupper():
            return self._run(environ, start_response)
        is_plain = is_get and not special
        return self._decide(WsgiRequest(method, key, environ, is_plain=is_plain), environ, start_response)

    def _decide(self, request: WsgiRequest, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request that is no plain hit."""
        if request.method not in ("GET", "HEAD"):
            return self._run_unsafe(request, environ, start_response)
        decision = self._pages.decide(request)
        if isinstance(decision, Wait):
            decision = self._follow(request, decision.key)
        if decision is None:
            return self._run(environ, start_response)
        if isinstance(decision, Run):
            return _Exchange(decision, start_response).respond(self._app, environ)
        if decision.renewal is not None:
            self._renew(decision.renewal, environ)
        return _send(start_response, decision)

    def _watch(self, environ: Environ, key: str, selected: str, start_response: StartResponse) -> StartResponse:
        """Return a ``start_response`` that looks at the headers of a page that could not be stored before."""
        notes = environ[SEAM] = PageNotes()

        def watching(status: str, headers: WsgiHeaders, exc_info: ExcInfo | None = None) -> Write:
            request = WsgiRequest("GET", key, environ, is_plain=False)
            self._pages.reconsider(request, selected, int(status[:3]), _as_bytes(headers), notes)
            return start_response(status, headers, exc_info)

        return watching

    def _follow(self, request: WsgiRequest, key: str) -> Reply | Run | None:
        """Wait for another request's run, and decide again."""
        flights = self._pages.flights
        waiter = ThreadWaiter()
        if flights.join(key, waiter):
            try:
                waiter.wait(self._wait)
            except BaseException:
                flights.leave(key, waiter)
                if waiter.leads:
                    flights.abandon(key)
                raise
            flights.leave(key, waiter)
        return self._pages.decide_after_wait(request, key, leads=waiter.leads)

    def _run_unsafe(self, request: WsgiRequest, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        def invalidating(status: str, headers: WsgiHeaders, exc_info: ExcInfo | None = None) -> Write:
            self._pages.invalidate(request, int(status[:3]), _as_bytes(headers))
            return start_response(status, headers, exc_info)

        return self._run(environ, invalidating)

    def _run(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Run the application for a response that is not stored."""
        return self._app(environ, partial(_start_untagged, start_response))

    def _renew(self, run: Run, environ: Environ) -> None:
        """Renew a page in a thread of the pool, with an environ that contains nothing of the client."""
        reduced = _reduced(environ, named_headers(run.request, run.fields))
        run.request = WsgiRequest("GET", run.request.key, reduced, is_plain=False)
        try:
            is_submitted = renewal_pool.submit(partial(_renew, self._app, run, reduced))
        except RuntimeError:
            # No thread can be had.
            is_submitted = False
        if not is_submitted:
            run.abandoned()


class _Exchange:
    """A run, with the client's end of it.

    Attributes:
        run: the run.
        reply: the cache's answer in place of the application's; None if the application's is sent.
    """

    def __init__(self, run: Run, start_response: StartResponse) -> None:
        self.run = run
        self.reply: Reply | None = None
        self._start_response = partial(_start_untagged, start_response)
        self._has_started = False
        self._file: Iterable[bytes] | None = None

    def respond(self, app: App, environ: Environ) -> Iterable[bytes]:
        """Run the application. Return its iterable, or another one in its place."""
        run = self.run
        # A copy: applications change their environ, and the page is stored under the headers of the request.
        environ = {**environ, SEAM: run.notes}
        if run.conditions is not None:
            for name in REPLACED:
                environ.pop(name, None)
            environ |= {environ_name(name): value.decode("latin-1") for name, value in run.conditions}
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
                run.give_up("file")
            if not run.is_recording and self.reply is None:
                return iterable
            if type(iterable) is list or type(iterable) is tuple:
                return self.complete(iterable)
        return _Recorded(self, iterable)

    def _start(self, status: str, headers: WsgiHeaders, exc_info: ExcInfo | None = None) -> Write:
        run = self.run
        if self._has_started:
            # The application failed in the middle of its response.
            run.give_up("error")
            self.reply = None
            return self._start_response(status, headers, exc_info)
        self._has_started = True
        self.reply = run.started(int(status[:3]), status, _as_bytes(headers))
        if self.reply is not None:
            return partial(self._write, _discard)
        if run.announcement:
            headers = headers + as_text(run.announcement)
        write = self._start_response(status, headers, exc_info)
        return partial(self._write, write) if run.is_recording else write

    def _wrap_file(self, file_wrapper: Callable[..., Iterable[bytes]], *file: Any) -> Iterable[bytes]:
        # The server recognizes its own object, which may be of any type.
        self._file = file_wrapper(*file)
        return self._file

    def _write(self, write: Write, data: bytes) -> object:
        self.run.give_up("write")
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
        self.run.give_up("error")
        return reply

    def send(self, reply: Reply) -> list[bytes]:
        return _send(self._start_response, reply)


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


def _start_untagged(
    start_response: StartResponse, status: str, headers: WsgiHeaders, exc_info: ExcInfo | None = None
) -> Write:
    """Call ``start_response`` without the header for the cache."""
    sent = [pair for pair in headers if pair[0].lower() != "cache-tag"]
    return start_response(status, sent, exc_info) if exc_info else start_response(status, sent)


def _send(start_response: StartResponse, reply: Reply) -> list[bytes]:
    start_response(reply.reason, as_text(reply.headers))
    return [reply.body] if reply.body else []


def _discard(data: bytes) -> None:
    """Write nothing: the cache has replied."""


def _renew(app: App, run: Run, environ: Environ) -> None:
    """Run the application without a client."""
    iterable = _Exchange(run, lambda *_: _discard).respond(app, environ)
    try:
        for _ in iterable:
            pass
    finally:
        close = getattr(iterable, "close", None)
        if close is not None:
            # Django sends request_finished only then.
            close()


def _key(environ: Environ) -> str:
    get = environ.get
    raw = get("RAW_URI") or get("REQUEST_URI") or ""
    return page_key(
        environ["wsgi.url_scheme"],
        get("HTTP_HOST", ""),
        get("SCRIPT_NAME", ""),
        get("QUERY_STRING", ""),
        encoded_slashes(raw) if "%2" in raw else "",
        get("PATH_INFO", ""),
    )


def _reduced(environ: Environ, headers: Headers) -> Environ:
    """Return an environ that contains nothing of the client except the headers in the key of the page."""
    kept = (
        *("SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "RAW_URI", "REQUEST_URI", "SERVER_NAME"),
        *("SERVER_PORT", "SERVER_PROTOCOL", "wsgi.version", "wsgi.url_scheme", "wsgi.errors", "wsgi.multithread"),
        *("wsgi.multiprocess",),
    )
    reduced = {name: environ[name] for name in kept if name in environ}
    reduced |= {environ_name(name): value.decode("latin-1") for name, value in headers}
    return {**reduced, "REQUEST_METHOD": "GET", "wsgi.input": BytesIO(), "wsgi.run_once": False}


def _as_bytes(headers: WsgiHeaders) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
