"""Restarts the site under load, without and with a snapshot of its cache, and compares the first second."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from atlas.management.commands.demo import CLIENTS, ENVIRONMENT, GUNICORN, PAGES_A_VISITOR
from atlas.management.progress import progress
from atlas.management.visiting import (
    START_SECONDS,
    Server,
    Visit,
    client_of,
    complain_of_failures,
    free_address,
    positive,
    ranked_pages,
    server_at,
    visit,
    zipf_mix,
)
from atlas.models import City
from wheelcache import command_line

FIRST: Final = 1.0
"""Seconds of the restarted site that are compared."""

PAUSE: Final = 0.02
"""Seconds until a visitor without an answer tries again."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The mix of visited pages, the most popular first."""

    pages: Sequence[str]
    seed: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it was sent and answered, on the monotonic clock, and its result."""

    sent: float
    answered: float
    visit: Visit


@dataclass(frozen=True, slots=True)
class Restart:
    """The figures of one restart.

    Attributes:
        before: the requests of the last second before the restart.
        first: the requests from the end of the old server until a second after the first answer of the new one.
        stop: seconds from the signal until the end of the old server.
        start: seconds from then until the first answer of the new server.
    """

    name: str
    before: Sequence[Visit]
    first: Sequence[Visit]
    stop: float
    start: float


class Command(BaseCommand):
    help = "Restart the site under load, without and with a snapshot of its cache, and print its first second."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--seconds", type=command_line.seconds, default=30, help="the time before a restart (%(default)s)"
        )
        parser.add_argument("--pages", type=positive, default=500, help="the number of visited pages (%(default)s)")
        parser.add_argument("--seed", type=int, default=1, help="the seed of the mix of pages (%(default)s)")

    def handle(self, *, seconds: float, pages: int, seed: int, **options: Any) -> None:
        if not City.objects.exists():
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        mix = Mix(ranked_pages()[:pages], seed)
        with tempfile.TemporaryDirectory() as directory, progress() as bars:
            restarts = [
                restarted(name, {**ENVIRONMENT, "ATLAS_SNAPSHOT": snapshot}, seconds, mix, bars)
                for name, snapshot in (("without", ""), ("with", str(Path(directory, "cache"))))
            ]
        printer = Console(no_color=options["no_color"])
        with printer.capture() as printed:
            printer.print(_table(restarts))
        self.stdout.write(printed.get())
        self.stdout.write(
            "After: all requests from the end of the old server until a second after the first answer of the new one.\n"
            "Before: all requests of the last second before the old server received the signal to stop.\n"
            "A hit: a page that was served without any computation. A warm page: all of its requests after were hits.\n"
            "Seconds: from the signal to the end of the old server, and from then to the first answer of the new one."
        )
        complain_of_failures([each for restart in restarts for each in restart.first])


def restarted(name: str, environment: Mapping[str, str], seconds: float, mix: Mix, bars: Progress) -> Restart:
    """Visit the site for ``seconds`` seconds, and restart it meanwhile."""
    address = free_address()
    task = bars.add_task(f"{name} SNAPSHOT", total=None)
    visitors = Visitors(f"http://{address}", mix, partial(bars.advance, task))
    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            sent = [pool.submit(visitors.run, number) for number in range(CLIENTS)]
            with server_at(address, GUNICORN, environment) as server:
                visitors.wait_for_an_answer(server, 0.0)
                time.sleep(seconds)
                signaled = time.monotonic()
            gone = time.monotonic()
            with server_at(address, GUNICORN, environment) as server:
                visitors.wait_for_an_answer(server, gone)
                time.sleep(FIRST)
                visitors.stop()
                # The server waits for the end of the last request.
                requests = list(chain.from_iterable(each.result() for each in sent))
        finally:
            visitors.stop()
    up = min(each.answered for each in requests if each.sent >= gone and not each.visit.failed)
    return Restart(
        name,
        [each.visit for each in requests if each.sent >= signaled - FIRST and each.answered < signaled],
        # Until the server listens, the visitors fail and try again.
        [each.visit for each in requests if gone <= each.sent <= up + FIRST and each.answered >= up],
        gone - signaled,
        up - gone,
    )


class Visitors:
    """Visitors of a site, even while it does not answer: one after another, each with some pages in a new session."""

    def __init__(self, url: str, mix: Mix, count_one: Callable[[], object] = lambda: None) -> None:
        self._url = url
        self._mix = mix
        self._count_one = count_one
        self._stopped = threading.Event()
        # The last answered request of each place in the queue.
        self._last: dict[int, Request] = {}

    def run(self, number: int) -> list[Request]:
        """Visit the site as one visitor after the other until ``stop``. Return the requests."""
        generator = random.Random(f"{self._mix.seed} {number}")
        requests: list[Request] = []
        while not self._stopped.is_set():
            with client_of(self._url) as client:
                for path in zipf_mix(self._mix.pages, PAGES_A_VISITOR, generator):
                    sent = time.monotonic()
                    done = visit(client, path)
                    requests.append(Request(sent, time.monotonic(), done))
                    self._count_one()
                    if done.failed:
                        self._stopped.wait(PAUSE)
                        break
                    self._last[number] = requests[-1]
                    if self._stopped.is_set():
                        break
        return requests

    def stop(self) -> None:
        self._stopped.set()

    def wait_for_an_answer(self, server: Server, since: float) -> None:
        """Wait until ``server`` answers a request that was sent after ``since``."""
        deadline = time.monotonic() + START_SECONDS
        while not any(each.sent >= since for each in list(self._last.values())):
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise CommandError(f"The server did not start:\n{server.said()}")
            time.sleep(PAUSE)


def _table(restarts: Sequence[Restart]) -> Table:
    table = Table(title="A restart under load")
    table.add_column("SNAPSHOT", no_wrap=True)
    after = ("hit ratio\nafter", "warm\npages", "requests\nafter", "median\nms after")
    for heading in ("hit ratio\nbefore", "seconds:\nstop+start", *after):
        table.add_column(heading, justify="right", no_wrap=True)
    for restart in restarts:
        table.add_row(
            restart.name,
            _hit_ratio(restart.before),
            f"{restart.stop:.1f}+{restart.start:.1f}",
            _hit_ratio(restart.first),
            f"{_warm_pages(restart.first):,}",
            f"{len(restart.first):,}",
            f"{median(each.latency_ms for each in restart.first):.1f}",
        )
    return table


def _hit_ratio(visits: Sequence[Visit]) -> str:
    return f"{sum(each.hit for each in visits) / len(visits):.1%}" if visits else "-"


def _warm_pages(visits: Sequence[Visit]) -> int:
    # Unlike the hit ratio, this does not rise with the number of requests: a page that was not saved is computed once.
    return len({each.path for each in visits} - {each.path for each in visits if not each.hit})
