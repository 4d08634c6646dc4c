"""Cached pages: wheelcache's HTTP cache compared with Django's ``cache_page`` over LocMemCache, a constant, and hishel.

In process, a hit is a call of the wrapped application, compared with an application that returns a constant.
On a server, a figure is the processor time of all its processes per request. Eight connections ask for a page of 24 kB
of Django with its default middleware. The contenders take turns, 200 requests each. A figure is the
minimum of its rounds, since other work on the machine can only add to it. Each server is started several times, since
two processes of the same program differ by up to a half on a busy machine.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from hishel import AsyncSqliteStorage
from hishel.asgi import ASGICacheMiddleware

from benchmarks import page_herd
from benchmarks.django_rows import configure_django
from benchmarks.report import Row, Section, bounded, costlier, faster
from benchmarks.timing import Contender, Step, Timing, awaiting, calling, interleaved
from wheelcache.pages import NOTES_KEY, HTTPCache
from wheelcache.pages.blanks import Blanked, Blanks
from wheelcache.pages.csrf_tokens import CsrfTokens
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.options import Options
from wheelcache.pages.site import Site

CALLS = 200
ROUNDS = 60
SERVER_STARTS = 3
SERVER_ROUNDS = 40
REQUESTS = 200
CONNECTIONS = 8

ROOT = Path(__file__).parents[1]
BODY = b"x" * 24_000

PLAIN = "a plain page"
VARIES = "a page with two Vary fields"
TOKENS = {"a page with one CSRF token": 1, "a page with ten CSRF tokens": 10}
CONSTANT = "a constant application"
UNCACHEABLE = "an uncacheable page"
CACHE_PAGE = "cache_page over LocMemCache"
WHEEL, HOST = "cache_page over WheelCache", "cache_page over HostCache"
OURS = "wheelcache"
HISHEL = "hishel"

KINDS = {"ours": OURS, "locmem": CACHE_PAGE, "wheel": WHEEL, "host": HOST, "constant": CONSTANT}

SERVERS = {
    "granian (WSGI)": [
        *("granian", "--interface", "wsgi", "--no-ws", "--log-level", "error", "--blocking-threads", "1"),
        *("--port", "{port}", "benchmarks.page_site:wsgi"),
    ],
    "uvicorn (ASGI)": [
        *("uvicorn", "--no-access-log", "--log-level", "error", "--port", "{port}", "benchmarks.page_site:asgi"),
    ],
    "gunicorn gthread": [
        *("gunicorn", "--worker-class", "gthread", "--threads", str(CONNECTIONS), "--log-level", "error"),
        *("--bind", "127.0.0.1:{port}", "benchmarks.page_site:wsgi"),
    ],
}

TARGETS = {"granian (WSGI)": (1.15, 8), "uvicorn (ASGI)": (1.15, 25), "gunicorn gthread": (1.25, 1.8)}
"""For each server, the largest ratio to a constant application and the smallest ratio of ``cache_page`` to ours."""

STEPS = 2 * ROUNDS + page_herd.STEPS + len(SERVERS) * SERVER_STARTS * SERVER_ROUNDS

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\n"
    b"Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en,de;q=0.5\r\n\r\n"
)


def measure(step: Step) -> Section:
    wsgi = _wsgi_figures(step)
    asgi = _asgi_figures(step)
    herd = page_herd.measure(step, _environ("/"), _scope("/"))
    servers = {name: _server_figures(command, step) for name, command in SERVERS.items()}
    rows = []
    for name, figures in servers.items():
        at_most, at_least = TARGETS[name]
        rows += [
            costlier(f"page on {name}", figures[OURS], CONSTANT, figures[CONSTANT], at_most, unit="us"),
            faster(f"page on {name}", figures[OURS], CACHE_PAGE, figures[CACHE_PAGE], at_least, unit="us"),
            *(
                faster(f"{backend} on {name}", figures[backend], CACHE_PAGE, figures[CACHE_PAGE], None, unit="us")
                for backend in (WHEEL, HOST)
            ),
        ]
    for kind, timings in (("WSGI", wsgi), ("ASGI", asgi)):
        constant = timings[CONSTANT].median
        rows += [
            _at_most(f"hit in process, {kind}, plain page", timings[PLAIN].median, constant, 4),
            _at_most(f"hit in process, {kind}, two Vary fields", timings[VARIES].median, constant, 8),
        ]
        added = timings[UNCACHEABLE].median - constant
        rows.append(_at_most(f"wrapper around an uncacheable page, {kind}", added, constant, 4))
    for (kind, number), most in zip(TOKENS.items(), (12, 20), strict=True):
        added = wsgi[kind].median - wsgi[PLAIN].median
        what = f"CSRF token{'s' if number > 1 else ''}"
        rows.append(bounded(f"{number} {what} in a hit, WSGI", added / 1000, "", None, "us", most))
    rows.append(faster("hit in process, ASGI", asgi[PLAIN].median, HISHEL, asgi[HISHEL].median, at_least=18))
    rows += herd
    return Section(
        "Pages",
        f"In process: median of {ROUNDS} rounds of {CALLS} calls. Servers: processor time per request, minimum of "
        f"{SERVER_STARTS * SERVER_ROUNDS} rounds of {REQUESTS} requests over {CONNECTIONS} connections.",
        rows,
        {"wsgi": wsgi, "asgi": asgi, "servers": servers},
    )


def _at_most(operation: str, nanoseconds: float, constant: float, microseconds: float) -> Row:
    return bounded(operation, nanoseconds / 1000, CONSTANT, constant / 1000, "us", microseconds)


# In process.

VARY = ("vary", "Accept-Encoding, Accept-Language")


def _headers(kind: str) -> list[tuple[str, str]]:
    headers = [("content-type", "text/html"), ("content-length", str(len(BODY))), ("x-frame-options", "DENY")]
    if kind in (PLAIN, VARIES, *TOKENS):
        headers.append(("cache-control", "max-age=3600"))
    return [*headers, VARY] if kind == VARIES else headers


def _wsgi_figures(step: Step) -> dict[str, Timing]:
    configure_django()
    pages = PageCache(Options(), Site(tokens=CsrfTokens()))

    def start_response(*response: object) -> None:
        """Send nothing."""

    def application(kind: str) -> Callable[[Any, Any], list[bytes]]:
        headers = _headers(kind)

        def respond(environ: Any, start_response: Any) -> list[bytes]:
            notes = environ.get(NOTES_KEY)
            if notes is not None and kind in TOKENS:
                blanks = Blanks(BODY, [1000 * place for place in range(TOKENS[kind])], 64, random_bytes=None)
                notes.blanked = Blanked(blanks, BODY, b"csrftoken")
            start_response("200 OK", headers.copy())
            return [BODY]

        return respond

    def call(app: Callable[[Any, Any], object]) -> Callable[[Any], object]:
        return lambda environ: app(environ, start_response)

    contenders = [Contender(CONSTANT, calling(call(application(CONSTANT))), _same(_environ("/")))]
    for kind, path in ((PLAIN, "/plain"), (VARIES, "/varies"), (UNCACHEABLE, "/uncacheable")):
        contenders.append(Contender(kind, calling(call(pages.wsgi(application(kind)))), _same(_environ(path))))
    secret = {"HTTP_COOKIE": f"csrftoken={'aB3d' * 8}"}
    for kind in TOKENS:
        app = calling(call(pages.wsgi(application(kind))))
        contenders.append(Contender(kind, app, _same(_environ(f"/{TOKENS[kind]}") | secret)))
    timings = interleaved(contenders, ROUNDS, step)
    assert pages.stats().stored == 2 + len(TOKENS)
    return timings


def _asgi_figures(step: Step) -> dict[str, Timing]:
    pages = HTTPCache()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        """Send nothing."""

    def application(kind: str) -> Any:
        headers = [(name.encode(), value.encode()) for name, value in _headers(kind)]

        async def respond(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": headers.copy()})
            await send({"type": "http.response.body", "body": BODY})

        return respond

    def call(app: Any) -> Callable[[Any], Any]:
        return lambda scope: app(scope, receive, send)

    async def in_memory() -> AsyncSqliteStorage:
        import anysqlite

        return AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"))

    with asyncio.Runner() as runner:
        hishel = ASGICacheMiddleware(application(PLAIN), storage=runner.run(in_memory()))
        contenders = [
            Contender(CONSTANT, awaiting(call(application(CONSTANT)), runner), _same(_scope("/"))),
            Contender(HISHEL, awaiting(call(hishel), runner), _same(_scope("/plain"), CALLS // 10)),
        ]
        for kind, path in ((PLAIN, "/plain"), (VARIES, "/varies"), (UNCACHEABLE, "/uncacheable")):
            contenders.append(
                Contender(kind, awaiting(call(pages.asgi(application(kind))), runner), _same(_scope(path)))
            )
        timings = interleaved(contenders, ROUNDS, step)
    assert pages.stats().stored == 2
    return timings


def _same(argument: object, calls: int = CALLS) -> Callable[[], Sequence[Any]]:
    return lambda: [*repeat(argument, calls)]


FIELDS = {
    "host": "example.com",
    "user-agent": "Mozilla/5.0",
    "accept": "text/html,*/*;q=0.8",
    "accept-encoding": "gzip, deflate, br",
    "accept-language": "en,de;q=0.5",
    "cookie": "analytics=1234567890",
    "connection": "keep-alive",
}


def _environ(path: str) -> dict[str, Any]:
    """Return an environ of the usual size."""
    environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in FIELDS.items()}
    environ |= {
        f"wsgi.{name}": None for name in ("version", "input", "errors", "multithread", "multiprocess", "run_once")
    }
    environ |= dict.fromkeys(("SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL", "REMOTE_ADDR", "SCRIPT_NAME"), "")
    return environ | {
        "REQUEST_METHOD": "GET",
        "wsgi.url_scheme": "http",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "RAW_URI": path,
    }


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in FIELDS.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }


# Servers.


def _server_figures(command: list[str], step: Step) -> dict[str, float]:
    """Return the microseconds of processor time per request, by contender."""
    best = dict.fromkeys(KINDS.values(), float("inf"))
    for _ in range(SERVER_STARTS):
        with ExitStack() as stack:
            servers = {name: stack.enter_context(_serving(command, kind)) for kind, name in KINDS.items()}
            for port, _ in servers.values():
                _ask(port)
            for _ in range(SERVER_ROUNDS):
                for name, (port, process) in servers.items():
                    before = _processor_time(process.pid)
                    _ask(port)
                    best[name] = min(best[name], (_processor_time(process.pid) - before) / REQUESTS / 1000)
                step()
    return best


@contextmanager
def _serving(command: list[str], kind: str) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = TemporaryDirectory(prefix="wheelcache-pages-")
    process = subprocess.Popen(
        [sys.executable, "-m", *(part.format(port=port) for part in command)],
        cwd=ROOT,
        env={**os.environ, "PAGE_CACHE": kind, "PAGE_FOLDER": folder.name},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not start")
            time.sleep(0.05)
        yield port, process
    finally:
        process.terminate()
        process.wait(20)
        folder.cleanup()


def _ask(port: int) -> None:
    """Make all requests of a round, over some connections at the same time."""
    threads = [Thread(target=_ask_on_one_connection, args=(port,)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask_on_one_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(REQUESTS // CONNECTIONS):
            connection.sendall(REQUEST)
            head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
            (length,) = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            while len(body) < length:
                received = connection.recv(65536)
                if not received:
                    raise ConnectionError("the server closed the connection")
                body += received
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())


def _processor_time(pid: int) -> int:
    """Return the nanoseconds that a process and its children have run, including threads that have ended."""
    # The clock of another process: see clock_getcpuclockid(3).
    total = time.clock_gettime_ns((~pid << 3) | 2)
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError):
            total += sum(map(_processor_time, map(int, children.read_text().split())))
    return total
