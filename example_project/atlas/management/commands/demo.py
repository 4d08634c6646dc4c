"""Has the site visited for a while in two workers, and prints what the cache did in them."""

import random
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.progress import Progress, TaskID

from atlas.management.commands.demo_user import NAME, PASSWORD, make_demo_user
from atlas.management.progress import progress
from atlas.management.visiting import Visit, client_of, complain_of_failures, own_site, ranked_pages, visit, zipf_mix
from atlas.models import City
from wheelcache.django_backend.aliases import engines
from wheelcache.observability import console
from wheelcache.observability.publisher import INTERVAL

WORKERS: Final = 2
CLIENTS: Final = 8
PAGES_A_VISITOR: Final = 20
STEPS_A_SECOND: Final = 10

# Workers keep a connection longer than any visitor thinks, so that none is closed in his face.
GUNICORN: Final = [
    *("-m", "gunicorn", f"--workers={WORKERS}", "--threads=4", "--keep-alive=75", "--bind={address}"),
    "atlas_site.wsgi:application",
]
ENVIRONMENT: Final = {"ATLAS_SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies"}


class Command(BaseCommand):
    help = "Serve the site with two workers, drive a Zipf-like mix of its pages, and print the figures of the cache."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=_seconds, default=20, help="of visits (%(default)s)")
        parser.add_argument("--seed", type=int, default=1, help="of the mix of pages (%(default)s)")
        parser.add_argument("--stay", action="store_true", help="serve on afterwards, until Ctrl-C")

    def handle(self, *, seconds: float, seed: int, stay: bool, **options: Any) -> None:
        if not City.objects.exists():
            raise CommandError("There is nothing to visit yet: run import_cities first.")
        make_demo_user()
        with own_site(GUNICORN, ENVIRONMENT) as url:
            with progress() as bars:
                visits = drive(url, seconds, seed, bars)
                wait_for_figures(bars)
            self.stdout.write(f"{len(visits):,} requests in {seconds:g} seconds, by {CLIENTS} visitors at a time.\n")
            self.stdout.ending = ""
            console.show(engines(), cast(TextIO, self.stdout), styled=not options["no_color"])
            self.stdout.ending = "\n"
            if stay:
                self.stdout.write(f"See it as a page at {url}/wheelcache/, {LOGIN}. Ctrl-C ends it.")
                with suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(3600)
            else:
                self.stdout.write(
                    f"See it as a page: make run, then http://localhost:8000/wheelcache/, {LOGIN}.\n"
                    "In a terminal, while the site runs: .venv/bin/python example_project/manage.py wheelcache --watch"
                )
        complain_of_failures(visits)


LOGIN: Final = f"user {NAME}, password {PASSWORD}"


def drive(url: str, seconds: float, seed: int, bars: Progress) -> list[Visit]:
    """What came of visits that went on for so long."""
    task = bars.add_task("visits", total=round(seconds * STEPS_A_SECOND))
    pages = ranked_pages()
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        pool.submit(_show_time, bars, task, end)
        visits = pool.map(
            lambda client: _visit_until(end, url, pages, random.Random(f"{seed} {client}")), range(CLIENTS)
        )
        return list(chain.from_iterable(visits))


def wait_for_figures(bars: Progress) -> None:
    """Until every worker has published what it counted by now."""
    task = bars.add_task("figures", total=1)
    now = time.time()
    while time.time() < now + 2 * INTERVAL:
        _, caches = console.look(engines())
        if caches and all(each.taken > now for cache in caches for each in cache.workers):
            break
        time.sleep(0.1)
    bars.advance(task)


def _visit_until(end: float, url: str, pages: Sequence[str], generator: random.Random) -> list[Visit]:
    """One visitor after the other, each with a session and a connection of his own."""
    visits: list[Visit] = []
    while time.monotonic() < end:
        with client_of(url) as client:
            paths = zipf_mix(pages, PAGES_A_VISITOR, generator)
            visits.extend(visit(client, path) for path in paths if time.monotonic() < end)
    return visits


def _show_time(bars: Progress, task: TaskID, end: float) -> None:
    while time.monotonic() < end:
        time.sleep(1 / STEPS_A_SECOND)
        bars.advance(task)
    bars.update(task, completed=bars.tasks[task].total)


def _seconds(text: str) -> float:
    try:
        return console.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
