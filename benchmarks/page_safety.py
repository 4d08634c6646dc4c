"""What a hostile visitor can do to others: wrong answers, latency, memory, and runs of the application.

On each server, honest visitors make 100,000 requests while an attacker makes 100,000 that mutate every header, cookie,
query, path and method. Each answer to an honest visitor is compared with that of the same site without its cache.
``python -m benchmarks.page_safety`` measures only this.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.report import Row, Section, bounded, print_sections
from benchmarks.timing import Step
from tests.pages import memory_attacks
from tests.servers.hostile import Client, Siege
from tests.servers.process import Fleet
from tests.servers.test_hostile import SERVERS
from wheelcache import ManualClock
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.options import Options
from wheelcache.pages.site import Site

REQUESTS = 100_000
MAX_BYTES = 8 << 20
MIB = 1 << 20
LEAST_HITS = REQUESTS // 4

HEADERS = [
    *("Cache-Control", "Accept-Language", "Accept-Encoding", "Accept", "Cookie", "X-Country", "If-None-Match", "Range"),
    *("Authorization", "Content-Type", "X-Forwarded-Host", "Forwarded", "User-Agent", "Host", "Connection", "X-Other"),
]
FILLERS = ['"\\', '\\"', ",", "; ", " ", "a=", "de;q=0,"]
SIZE = 64_000
SLOW = 2.0
"""Seconds. After such a latency, the rest is not measured: today's code would need hours."""

LANGUAGES = ["de", "en", "fr", "it"]
CLIENTS = 100

STEPS = 100
"""Steps of the progress bar for each of the measurements on a server, and for each kind of memory attack."""


def steps() -> int:
    return len(SERVERS) * STEPS + len(HEADERS) + len(memory_attacks.ATTACKS) + 2


def measure(executor: Executor, step: Step) -> Section:
    rows = [*_herd_rows(step)]
    figures: dict[str, Any] = {}
    with _servers() as start:
        for name in SERVERS:
            siege = start(name)
            _besiege(siege, step)
            figures[name] = dict(siege.figures)
            rows.append(
                bounded(f"wrong answers to honest visitors, {name}", len(siege.wrong), "uncached", 0, "answers", 0)
            )
        latency, header = _latency(start("uvicorn"), step)
        rows.append(bounded("a hit during a request with 64 kB in a header", latency, header, None, "ms", 5))
    growth = {}
    for kind in memory_attacks.ATTACKS:
        result = executor.submit(memory_attacks.grown, kind, REQUESTS, MAX_BYTES).result()
        growth[kind] = (result["grown"] - MAX_BYTES) / MIB
        step()
    figures["MiB over max_bytes"] = growth
    for kind, over in sorted(growth.items(), key=lambda pair: -pair[1])[:5]:
        rows.append(bounded("memory over max_bytes", over, kind, None, "MiB", 8))
    return Section(
        "Hostile visitors of pages",
        f"{REQUESTS:,} honest requests in parallel with {REQUESTS:,} hostile ones, on each server; the five largest "
        f"growths of {len(growth)} processes after {REQUESTS:,} hostile requests each.",
        rows,
        figures,
    )


@contextmanager
def _servers() -> Iterator[Callable[[str], Siege]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        fleet = Fleet(stack, folder)
        sieges: dict[str, Siege] = {}

        def start(name: str) -> Siege:
            if name not in sieges:
                (folder / name).mkdir()
                server = fleet(name, SERVERS[name], VISITED_SITE=str(folder / name), VISITED_DEBUG="0")
                sieges[name] = Siege(server, flask=name != "uvicorn")
            return sieges[name]

        yield start


def _besiege(siege: Siege, step: Step) -> None:
    counted = iter(range(1, REQUESTS + 1))

    def count() -> None:
        if next(counted) % (REQUESTS // STEPS) == 0:
            step()

    siege.run(REQUESTS, step=count)
    figures = siege.figures
    assert figures["honest"] == figures["hostile"] == REQUESTS
    assert figures["honest hits"] > LEAST_HITS, figures
    assert figures["reached"] > LEAST_HITS, figures


def _latency(siege: Siege, step: Step) -> tuple[float, str]:
    """Return the longest time of a hit during each of these requests, in milliseconds, and the header."""
    path = next(path for path in siege.paths if "country" in path)
    visitor = siege.visitors["a German"]
    url = siege.url(path, "long")
    worst = 0.0, "none"
    with closing(Client(siege.port)) as honest:
        for _ in range(3):
            honest.ask(visitor.request(url))
        for header in HEADERS:
            for filler in FILLERS if worst[0] < SLOW * 1000 else ():
                value = ('"' + filler * SIZE)[:SIZE].strip()
                request = f"GET {url} HTTP/1.1\r\nHost: example.com\r\n{header}: {value}\r\n\r\n".encode()
                during = partial(_latency_during, siege, request, partial(honest.ask, visitor.request(url)))
                latency = during()
                if latency < SLOW:
                    # The other work of the machine only adds to it.
                    latency = min(latency, during())
                worst = max(worst, (latency * 1000, f"{header}: {filler}..."))
            step()
    return worst


def _latency_during(siege: Siege, request: bytes, ask: Callable[[], Any]) -> float:
    """Return the seconds of the slowest hit while a hostile request is answered."""
    with closing(Client(siege.port)) as hostile:
        thread = threading.Thread(target=siege.attack, args=(hostile, request, "latency"))
        thread.start()
        slowest = 0.0
        while thread.is_alive():
            began = time.perf_counter()
            with suppress(TimeoutError):
                assert ask().is_hit
            slowest = max(slowest, time.perf_counter() - began)
        thread.join()
    return slowest


# A herd in several languages.


def _herd_rows(step: Step) -> list[Row]:
    rows = []
    for kind, runs in (("WSGI", _wsgi_runs()), ("ASGI", _asgi_runs())):
        step()
        for state, number in zip(("cold", "expired", "purged"), runs, strict=True):
            operation = f"{CLIENTS} requests in {len(LANGUAGES)} languages, {kind}, {state} page"
            rows.append(bounded(operation, number, "one for each language", len(LANGUAGES), "runs", len(LANGUAGES)))
    return rows


FIELDS = [("Cache-Control", "max-age=60, stale-while-revalidate=600"), ("Vary", "Accept-Language")]


def _states(clock: ManualClock, pages: PageCache, runs: list[str], ask_all: Callable[[], None]) -> list[int]:
    """Return the number of runs for a cold, an expired and a purged page."""
    counts = []
    for prepare in (lambda: None, partial(clock.advance, 61), partial(pages.purge, "https://example.com/")):
        prepare()
        before = len(runs)
        ask_all()
        counts.append(len(runs) - before)
    return counts


def _wsgi_runs() -> list[int]:
    clock, runs = ManualClock(), []
    pages = PageCache(Options(), Site(clock=clock))

    def application(environ: Any, start_response: Any) -> list[bytes]:
        runs.append(environ["HTTP_ACCEPT_LANGUAGE"])
        time.sleep(0.2)
        start_response("200 OK", FIELDS.copy())
        return [b"page"]

    def ask(number: int) -> None:
        environ = {
            "REQUEST_METHOD": "GET",
            "wsgi.url_scheme": "http",
            "HTTP_HOST": "example.com",
            "PATH_INFO": "/",
            "HTTP_ACCEPT_LANGUAGE": LANGUAGES[number % len(LANGUAGES)],
        }
        barrier.wait(30)
        for _ in pages.wsgi(application)(environ, lambda *response: None):
            pass

    def ask_all() -> None:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # For the renewals.
        time.sleep(1)

    barrier = threading.Barrier(CLIENTS)
    return _states(clock, pages, runs, ask_all)


def _asgi_runs() -> list[int]:
    clock, runs = ManualClock(), []
    pages = PageCache(Options(), Site(clock=clock))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        runs.append(dict(scope["headers"])[b"accept-language"])
        await asyncio.sleep(0.2)
        fields = [(name.lower().encode(), value.encode()) for name, value in FIELDS]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"page"})

    async def nothing(*message: Any) -> dict[str, Any]:
        """Receive an empty request, or send nothing."""
        return {"type": "http.request", "body": b"", "more_body": False}

    async def ask_all() -> None:
        app = pages.asgi(application)
        languages = [LANGUAGES[number % len(LANGUAGES)].encode() for number in range(CLIENTS)]
        scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "raw_path": b"/", "query_string": b""}
        headers = [[(b"host", b"example.com"), (b"accept-language", language)] for language in languages]
        await asyncio.gather(*(app({**scope, "headers": each}, nothing, nothing) for each in headers))
        # For the renewals.
        await asyncio.sleep(1)

    return _states(clock, pages, runs, lambda: asyncio.run(ask_all()))


def main() -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 120
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as executor,
        Progress(console=console) as progress,
    ):
        section = measure(executor, partial(progress.advance, progress.add_task("pages", total=steps())))
    print_sections(console, [section])


if __name__ == "__main__":
    main()
