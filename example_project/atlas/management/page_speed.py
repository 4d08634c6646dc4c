"""Measures the pages per second that one worker serves, without a cache and with each way to cache whole pages."""

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, repeat
from typing import Final

from django.core.management.base import CommandError
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table

from atlas.management.visiting import own_site, run_folder
from atlas.models import Country

COUNTRIES: Final = 20
CONNECTIONS: Final = 8
SECONDS: Final = 2.0
"""The duration of each measurement."""

CACHED_BY: Final = {
    "nothing": "no cache: every page is made",
    "cache_page": "cache_page over HostCache",
    "HTTPCache": "HTTPCache of wheelcache",
}
GRANIAN: Final = [
    *("-m", "granian", "--interface=wsgi", "--no-ws", "--blocking-threads=1", "--log-level=error"),
    *("--host=127.0.0.1", "--port={port}", "atlas_site.wsgi:application"),
]


def measure(bars: Progress) -> dict[str, float]:
    """Serve the pages of the most populous countries in each way. Return the pages per second, by key of CACHED_BY."""
    paths = paths_of_countries()
    task = bars.add_task("pages per second", total=len(CACHED_BY))
    found = {}
    for name in CACHED_BY:
        environment = {"DJANGO_SETTINGS_MODULE": "atlas_site.shared_pages", "ATLAS_CACHED_BY": name}
        with run_folder() as folder, own_site(GRANIAN, {**environment, "ATLAS_RUN_DIR": folder}) as url:
            found[name] = _pages_per_second(int(url.rpartition(":")[2]), paths, are_hits=name == "HTTPCache")
        bars.advance(task)
    return found


def paths_of_countries() -> list[str]:
    return [country.get_absolute_url() for country in Country.objects.order_by("-population")[:COUNTRIES]]


def table_of(speeds: Mapping[str, float]) -> Table:
    """Return the table of the results, with bars."""
    table = Table(title=f"Pages of countries, by one worker of granian to {CONNECTIONS} connections")
    table.add_column("cached by", no_wrap=True)
    table.add_column("pages\nper second", justify="right", no_wrap=True)
    table.add_column("", width=24)
    for name, speed in speeds.items():
        bar = ProgressBar(total=max(speeds.values()), completed=speed)
        table.add_row(CACHED_BY[name], f"{speed:,.0f}", bar)
    return table


def _pages_per_second(port: int, paths: Sequence[str], are_hits: bool) -> float:
    # Each page has been made once when the time begins.
    _ask(port, paths)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        started = time.monotonic()
        over = repeat(started + SECONDS)
        counts = pool.map(_ask, repeat(port, CONNECTIONS), repeat(paths), over, repeat(are_hits))
        return sum(counts) / (time.monotonic() - started)


def _ask(port: int, paths: Sequence[str], end: float | None = None, are_hits: bool | None = None) -> int:
    """Ask for all pages over one connection: once, or again and again until ``end``. Return the number of pages.

    This needs less time for a page than a client for all of HTTP, and so shows what the server can do.

    Args:
        are_hits: whether an HTTP cache must answer with each page, or with none; None if it does not matter.

    Raises:
        CommandError: if a page has another status than 200, or is a hit against ``are_hits``.
    """
    count = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        for path in paths if end is None else cycle(paths):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            status, length, is_hit = answers.readline(), 0, False
            if not status.startswith(b"HTTP/1.1 200"):
                raise CommandError(f"{path} was answered with {status.decode()!r}")
            while (line := answers.readline()) != b"\r\n":
                if line[:15].lower() == b"content-length:":
                    length = int(line[15:])
                elif line[:13].lower() == b"cache-status:":
                    is_hit = b"; hit" in line
            if are_hits not in (None, is_hit):
                raise CommandError(f"{path} was {'' if is_hit else 'not '}answered by the HTTP cache")
            answers.read(length)
            count += 1
            if end is not None and time.monotonic() >= end:
                break
    return count
