"""Visits the site over HTTP, first with an empty cache and then with a full one, and compares."""

import random
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil
from statistics import median
from typing import Any, Final

import httpx
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from atlas.management.progress import progress
from atlas.models import City, Continent, Country

CITIES: Final = 1000
START_SECONDS: Final = 30
REQUEST_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Visit:
    """One request and what came of it. ``server_ms`` is what the page says of itself; None if it failed."""

    path: str
    outcome: str
    hit: bool
    latency_ms: float
    server_ms: float | None

    @property
    def failed(self) -> bool:
        return self.server_ms is None


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    visits: Sequence[Visit]
    seconds: float


class Command(BaseCommand):
    help = "Visit the site with a Zipf-like mix of its pages, cold and warm, and print how it did."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--requests", type=_positive, default=2000, help="in each of both phases (%(default)s)")
        parser.add_argument("--clients", type=_positive, default=8, help="at the same time (%(default)s)")
        parser.add_argument("--url", help="of a site that runs already; by default it starts one of its own")
        parser.add_argument("--seed", type=int, default=1, help="of the mix of pages (%(default)s)")

    def handle(self, *, requests: int, clients: int, url: str | None, seed: int, **options: Any) -> None:
        if not City.objects.exists():
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        paths = zipf_mix(ranked_pages(), requests, random.Random(seed))
        with ExitStack() as stack:
            base_url = url or stack.enter_context(own_site())
            bars = stack.enter_context(progress())
            phases = []
            for name in ("cold", "warm"):
                if name == "cold":
                    empty_cache(base_url)
                phases.append(run_phase(name, base_url, paths, clients, bars))
        self.print_table(phases)
        _complain_of_failures(phases)

    def print_table(self, phases: Sequence[Phase]) -> None:
        console = Console()
        with console.capture() as printed:
            console.print(_table(phases))
        self.stdout.write(printed.get())


def ranked_pages() -> list[str]:
    """The paths of the site, the most popular first: what is general, then countries and cities by their people."""
    general = [reverse("home"), reverse("statistics")]
    places: Iterator[Continent | Country | City] = chain(
        Continent.objects.all(), Country.objects.order_by("-population"), City.objects.all()[:CITIES]
    )
    return general + [place.get_absolute_url() for place in places]


def zipf_mix(pages: Sequence[str], count: int, generator: random.Random) -> list[str]:
    """``count`` of ``pages``, the n-th of which is drawn 1/n as often as the first."""
    return generator.choices(pages, [1 / rank for rank in range(1, len(pages) + 1)], k=count)


@contextmanager
def own_site() -> Iterator[str]:
    """A threaded server of this site in a process of its own, up and answering. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["-m", "waitress", "--threads=8", f"--listen={address}", "atlas_site.wsgi:application"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([sys.executable, *command], cwd=settings.BASE_DIR, stdout=log, stderr=log) as server,
    ):
        try:
            if not _answers(f"http://{address}", server):
                log.seek(0)
                raise CommandError(f"The server did not start:\n{log.read()}")
            yield f"http://{address}"
        finally:
            server.terminate()


def _answers(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether the site answers, waiting for it while its server lives."""
    deadline = time.monotonic() + START_SECONDS
    with _client(url) as client:
        while server.poll() is None and time.monotonic() < deadline:
            try:
                client.head("/")
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return True
    return False


def empty_cache(url: str) -> None:
    with _client(url) as client:
        try:
            status = client.post(reverse("empty_cache")).status_code
        except httpx.HTTPError as error:
            raise CommandError(f"{url} does not answer: {error}") from error
    if status != httpx.codes.FOUND:
        raise CommandError(f"{url} did not empty its cache, but answered {status}: is it this site?")


def run_phase(name: str, url: str, paths: Sequence[str], clients: int, bars: Progress) -> Phase:
    """All ``paths``, shared out to ``clients`` threads, each a visitor with a session of its own."""
    task = bars.add_task(name, total=len(paths))
    shares = [paths[client::clients] for client in range(clients)]
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        visits = list(chain.from_iterable(pool.map(partial(_visit_all, url, bars, task), shares)))
    return Phase(name, visits, time.perf_counter() - started)


def _visit_all(url: str, bars: Progress, task: TaskID, paths: Sequence[str]) -> list[Visit]:
    visits = []
    with _client(url) as client:
        for path in paths:
            visits.append(_visit(client, path))
            bars.advance(task)
    return visits


def _visit(client: httpx.Client, path: str) -> Visit:
    started = time.perf_counter()
    try:
        response = client.get(path)
    except httpx.HTTPError as error:
        return Visit(path, repr(error), False, (time.perf_counter() - started) * 1000, None)
    latency_ms = (time.perf_counter() - started) * 1000
    if response.status_code != httpx.codes.OK:
        return Visit(path, f"status {response.status_code}", False, latency_ms, None)
    hit = response.headers["X-Cache"] == "HIT"
    return Visit(path, "", hit, latency_ms, float(response.headers["X-Duration-ms"]))


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=REQUEST_SECONDS, trust_env=False)


def _table(phases: Sequence[Phase]) -> Table:
    table = Table(title="Visits, by the state of the cache")
    table.add_column("cache")
    for heading in ("requests", "hit ratio", "median ms", "p99 ms", "server ms", "requests/s"):
        table.add_column(heading, justify="right")
    for phase in phases:
        latencies = sorted(visit.latency_ms for visit in phase.visits)
        in_server = [visit.server_ms for visit in phase.visits if visit.server_ms is not None]
        hits = sum(visit.hit for visit in phase.visits)
        table.add_row(
            phase.name,
            f"{len(phase.visits):,}",
            f"{hits / len(phase.visits):.1%}",
            f"{median(latencies):.1f}",
            f"{latencies[ceil(0.99 * len(latencies)) - 1]:.1f}",
            f"{median(in_server):.2f}" if in_server else "-",
            f"{len(phase.visits) / phase.seconds:,.0f}",
        )
    return table


def _complain_of_failures(phases: Sequence[Phase]) -> None:
    visits = [visit for phase in phases for visit in phase.visits]
    failures = [visit for visit in visits if visit.failed]
    if failures:
        first = failures[0]
        raise CommandError(f"{len(failures)} of {len(visits)} requests failed, first {first.path}: {first.outcome}")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)
