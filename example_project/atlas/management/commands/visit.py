"""Visits the site over HTTP, first with an empty cache and then with a full one, and compares."""

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil
from statistics import median
from typing import Any, Final

import httpx
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from atlas.management.progress import progress
from atlas.management.visiting import (
    Visit,
    client_of,
    complain_of_failures,
    own_site,
    positive,
    ranked_pages,
    visit,
    zipf_mix,
)
from atlas.models import City

WAITRESS: Final = ["-m", "waitress", "--threads=8", "--listen={address}", "atlas_site.wsgi:application"]


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    visits: Sequence[Visit]
    seconds: float


class Command(BaseCommand):
    help = "Visit the site with a Zipf-like mix of its pages, cold and warm, and print its performance."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--requests", type=positive, default=2000, help="in each phase (%(default)s)")
        parser.add_argument("--clients", type=positive, default=8, help="concurrent visitors (%(default)s)")
        parser.add_argument("--url", help="the URL of a running site; by default, start one")
        parser.add_argument("--seed", type=int, default=1, help="the seed of the mix of pages (%(default)s)")

    def handle(self, *, requests: int, clients: int, url: str | None, seed: int, **options: Any) -> None:
        if not City.objects.exists():
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        paths = zipf_mix(ranked_pages(), requests, random.Random(seed))
        with ExitStack() as stack:
            base_url = url or stack.enter_context(own_site(WAITRESS))
            bars = stack.enter_context(progress())
            phases = []
            for name in ("cold", "warm"):
                if name == "cold":
                    empty_cache(base_url)
                phases.append(run_phase(name, base_url, paths, clients, bars))
        self.print_table(phases)
        complain_of_failures([each for phase in phases for each in phase.visits])

    def print_table(self, phases: Sequence[Phase]) -> None:
        console = Console()
        with console.capture() as printed:
            console.print(_table(phases))
        self.stdout.write(printed.get())


def empty_cache(url: str) -> None:
    with client_of(url) as client:
        try:
            status = client.post(reverse("empty_cache")).status_code
        except httpx.HTTPError as error:
            raise CommandError(f"{url} does not answer: {error}") from error
    if status != httpx.codes.FOUND:
        raise CommandError(f"{url} did not empty its cache, but answered {status}: is it this site?")


def run_phase(name: str, url: str, paths: Sequence[str], clients: int, bars: Progress) -> Phase:
    """Visit ``paths``, distributed over ``clients`` threads, each of which is a visitor with its own session."""
    task = bars.add_task(name, total=len(paths))
    shares = [paths[client::clients] for client in range(clients)]
    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        visits = list(chain.from_iterable(pool.map(partial(_visit_all, url, bars, task), shares)))
    return Phase(name, visits, time.perf_counter() - started)


def _visit_all(url: str, bars: Progress, task: TaskID, paths: Sequence[str]) -> list[Visit]:
    visits = []
    with client_of(url) as client:
        for path in paths:
            visits.append(visit(client, path))
            bars.advance(task)
    return visits


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
