"""A hundred requests at the same time for a page that takes a second: how often it is made, and how long they wait.

The page is made for the first time, or expired a moment ago and may be used while it is renewed.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from benchmarks.report import Row, bounded
from benchmarks.timing import Step
from wheelcache import ManualClock
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.options import Options
from wheelcache.pages.site import Site

REQUESTS = 100
SECONDS = 1.0
"""The time that the application needs for the page."""
PATIENCE = 30.0

STEPS = 4
HEADERS = {"content-type": "text/html", "cache-control": "max-age=60, stale-while-revalidate=600"}
LEAST = "the minimum: one run"
APPLICATION = "the application's time"


def measure(step: Step, environ: dict[str, Any], scope: dict[str, Any]) -> list[Row]:
    """Return the rows. ``environ`` and ``scope`` are those of the requests."""
    return _wsgi_rows(environ, step) + _asgi_rows(scope, step)


class _Site:
    """A site with one page.

    Attributes:
        runs: how often the application has made the page.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.clock = ManualClock()
        self.pages = PageCache(Options(), Site(clock=self.clock))

    def is_renewed(self, deadline: float) -> bool:
        """Return whether every run has ended."""
        return self.pages.stats().stored == self.runs or time.monotonic() > deadline


def _rows(kind: str, site: _Site, ask_together: Callable[[], list[float]], step: Step) -> list[Row]:
    def at_most(what: str, figure: float, peer: str, other: float, unit: str, bound: float) -> Row:
        return bounded(f"{REQUESTS} requests together, {kind}, {what}", figure, peer, other, unit, bound)

    ask_together()
    cold = site.runs
    step()
    site.clock.advance(61)
    slowest = max(ask_together())
    step()
    return [
        at_most("cold page", cold, LEAST, 1, "runs", 1),
        at_most("expired page", site.runs - cold, LEAST, 1, "runs", 1),
        at_most("expired page, slowest", slowest, APPLICATION, SECONDS, "s", SECONDS / 2),
    ]


def _wsgi_rows(environ: dict[str, Any], step: Step) -> list[Row]:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        site.runs += 1
        time.sleep(SECONDS)
        start_response("200 OK", [*HEADERS.items()])
        return [b"page"]

    def ask_together() -> list[float]:
        barrier = Barrier(REQUESTS)

        def ask(number: int) -> float:
            barrier.wait(PATIENCE)
            started = time.monotonic()
            for _ in app(environ.copy(), lambda *response: None):
                pass
            return time.monotonic() - started

        with ThreadPoolExecutor(REQUESTS) as pool:
            taken = [*pool.map(ask, range(REQUESTS))]
        deadline = time.monotonic() + PATIENCE
        while not site.is_renewed(deadline):
            time.sleep(0.01)
        return taken

    site = _Site()
    app = site.pages.wsgi(application)
    return _rows("WSGI", site, ask_together, step)


def _asgi_rows(scope: dict[str, Any], step: Step) -> list[Row]:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        site.runs += 1
        await asyncio.sleep(SECONDS)
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"page"})

    async def nothing(*message: Any) -> dict[str, Any]:
        """Receive an empty request, or send nothing."""
        return {"type": "http.request", "body": b"", "more_body": False}

    async def ask() -> float:
        started = time.monotonic()
        await app(scope.copy(), nothing, nothing)
        return time.monotonic() - started

    async def ask_all() -> list[float]:
        taken = await asyncio.gather(*(ask() for _ in range(REQUESTS)))
        deadline = time.monotonic() + PATIENCE
        while not site.is_renewed(deadline):
            await asyncio.sleep(0.01)
        return taken

    site = _Site()
    app = site.pages.asgi(application)
    return _rows("ASGI", site, lambda: asyncio.run(ask_all()), step)
