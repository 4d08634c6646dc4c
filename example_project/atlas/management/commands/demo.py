"""Serves the site with two workers, visits it, and prints the figures of the cache and the speed of cached pages."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Final, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import Progress

from atlas.management import page_speed
from atlas.management.commands.demo_user import NAME, PASSWORD, make_demo_user
from atlas.management.progress import progress
from atlas.management.visiting import (
    Visit,
    client_of,
    complain_of_failures,
    own_site,
    ranked_pages,
    run_folder,
    visit,
    zipf_mix,
)
from atlas.models import City
from wheelcache import Cache
from wheelcache.watch import command_line, console, site_commands
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.site import Own, Site

WORKERS: Final = 2
CLIENTS: Final = 8
PAGES_A_VISITOR: Final = 20
AGAIN: Final = 4
"""How often a page is asked for again, to show that both workers have it."""

# Workers keep an idle connection longer than any visitor pauses, so that no visitor loses a connection.
GUNICORN: Final = [
    *("-m", "gunicorn", f"--workers={WORKERS}", "--threads=4", "--keep-alive=75", "--bind={address}"),
    "atlas_site.wsgi:application",
]
ENVIRONMENT: Final = {
    # With these, some entries expire and some are evicted within twenty seconds.
    "ATLAS_PAGE_SECONDS": "5",
    "ATLAS_MAX_ENTRIES": "300",
}


class Command(BaseCommand):
    help = (
        "Serve the site with two workers, drive a Zipf-like mix of its pages, and print the figures of the cache. "
        "Then serve pages that are the same for all visitors, and print the pages per second with and without a cache."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--seconds", type=command_line.seconds, default=20, help="the duration of the visits (%(default)s)"
        )
        parser.add_argument("--seed", type=int, default=1, help="the seed of the mix of pages (%(default)s)")
        parser.add_argument("--stay", action="store_true", help="serve and visit the site until Ctrl-C")

    def handle(self, *, seconds: float, seed: int, stay: bool, **options: Any) -> None:
        if not City.objects.exists():
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        make_demo_user()
        with (
            run_folder() as folder,
            own_site(GUNICORN, {**ENVIRONMENT, "ATLAS_RUN_DIR": folder}) as url,
            suppress(KeyboardInterrupt) if stay else nullcontext(),
        ):
            # Reads the figures of this run alone: those of its workers, without earlier runs and other servers.
            reader = Cache(name="default", figures_dir=Path(folder, "figures"))
            if stay:
                self.stdout.write(f"See it as a page at {url}/wheelcache/, {LOGIN}. Ctrl-C ends it.")
                self.stdout.flush()
            with progress() as bars:
                visits = drive(url, seconds, seed, bars)
                wait_for_figures(reader, bars)
            self.stdout.write(f"{len(visits):,} requests in {seconds:g} seconds, by {CLIENTS} visitors at a time.\n")
            complain_of_failures(visits)
            self.stdout.ending = ""
            console.show(site_commands.figures([reader]), cast(TextIO, self.stdout), styled=not options["no_color"])
            self.stdout.ending = "\n"
            self.stdout.write(f"Both workers share one cache: {share_of_hits(url)}.\n")
            if stay:
                with progress() as bars:
                    drive(url, inf, seed, bars)
        if stay:
            return
        with progress() as bars:
            speeds = page_speed.measure(bars)
        printer = Console(no_color=options["no_color"])
        with printer.capture() as printed:
            printer.print(page_speed.table_of(speeds))
        self.stdout.write(
            f"{printed.get()}\n"
            f"See it as a page: make run, then http://localhost:8000/wheelcache/, {LOGIN}.\n"
            "In a terminal, while the site runs: .venv/bin/python example_project/manage.py wheelcache --watch"
        )


LOGIN: Final = f"user {NAME}, password {PASSWORD}"


def drive(url: str, seconds: float, seed: int, bars: Progress) -> list[Visit]:
    """Visit the site for ``seconds`` seconds or until Ctrl-C. Return the visits."""
    task = bars.add_task("visits", total=None)
    pages, end, over = ranked_pages(), time.monotonic() + seconds, threading.Event()

    def visits(client: int) -> list[Visit]:
        found = []
        for each in _visits(url, pages, random.Random(f"{seed} {client}")):
            bars.advance(task)
            # The visits of an endless drive are not kept.
            if seconds < inf:
                found.append(each)
            if over.is_set() or time.monotonic() >= end:
                break
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            return list(chain.from_iterable(pool.map(visits, range(CLIENTS))))
        finally:
            over.set()


def share_of_hits(url: str) -> str:
    """Ask for pages again on many connections, some of which are at either worker.

    Raises:
        CommandError: if a worker has made a page that the other one had made.
    """
    # Not of countries, which expire within seconds, perhaps between two visits.
    pages = [city.get_absolute_url() for city in City.objects.all()[:PAGES_A_VISITOR]]
    asked = list(chain.from_iterable(zip(*[pages] * (1 + AGAIN), strict=True)))
    visits = []
    for path in asked:
        with client_of(url) as client:
            visits.append(visit(client, path))
    complain_of_failures(visits)
    again = [each for number, each in enumerate(visits) if number % (1 + AGAIN)]
    hits = sum(each.hit for each in again)
    if hits < len(again):
        raise CommandError(f"The workers do not share one cache: only {hits} of {len(again)} visits were hits.")
    return f"{hits} of {len(again)} visits of pages that one of them had made were hits"


def wait_for_figures(reader: Cache, bars: Progress) -> None:
    """Wait until every worker has published its current figures."""
    task = bars.add_task("figures", total=1)
    now = time.time()
    while time.time() < now + 2 * INTERVAL:
        site = Site([reader], Own.NONE)
        if site.caches and all(worker.published > now for each in site.caches for worker in site.workers(each.name)):
            break
        time.sleep(0.1)
    bars.advance(task)


def _visits(url: str, pages: Sequence[str], generator: random.Random) -> Iterator[Visit]:
    """Visit the site forever, as one visitor after the other, each with a new session and a new connection."""
    while True:
        with client_of(url) as client:
            for path in zipf_mix(pages, PAGES_A_VISITOR, generator):
                yield visit(client, path)
