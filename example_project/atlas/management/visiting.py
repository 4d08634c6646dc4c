"""Visitors and servers of the site, for the commands ``visit`` and ``demo``."""

import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

import httpx
from django.conf import settings
from django.core.management.base import CommandError
from django.urls import reverse

from atlas.models import City, Continent, Country

CITIES: Final = 1000
START_SECONDS: Final = 30
REQUEST_SECONDS: Final = 60

# All clients share this, since they use HTTP only. Otherwise each would make its own, for 20 to 160 ms of CPU time.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request and its result. ``server_ms`` is the duration that the page reports; None if the request failed."""

    path: str
    outcome: str
    hit: bool
    latency_ms: float
    server_ms: float | None

    @property
    def failed(self) -> bool:
        return self.server_ms is None


def ranked_pages() -> list[str]:
    """Return the paths of the site, the most popular first: general pages, then countries and cities by population."""
    general = [reverse("home"), reverse("statistics")]
    places: Iterator[Continent | Country | City] = chain(
        Continent.objects.all(), Country.objects.order_by("-population"), City.objects.all()[:CITIES]
    )
    return general + [place.get_absolute_url() for place in places]


def zipf_mix(pages: Sequence[str], count: int, generator: random.Random) -> list[str]:
    """Return ``count`` of ``pages``, the n-th of which is drawn 1/n as often as the first."""
    return generator.choices(pages, [1 / rank for rank in range(1, len(pages) + 1)], k=count)


def run_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the entries and figures of one run, as a context. It is in memory if the system allows it."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="atlas-", dir=memory if os.access(memory, os.W_OK | os.X_OK) else None)


@contextmanager
def own_site(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server of this site, and yield its URL when it answers.

    Args:
        command: the arguments of Python that start it; {address} stands for its address, {port} for its port.
        environment: variables that it has in addition to those of this process.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = [part.format(address=address, port=address.rpartition(":")[2]) for part in command]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=settings.BASE_DIR,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            if not _answers(f"http://{address}", server):
                log.seek(0)
                raise CommandError(f"The server did not start:\n{log.read()}")
            yield f"http://{address}"
        finally:
            server.terminate()


def _answers(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait for an answer of the site while its server is alive. Return whether there was one."""
    deadline = time.monotonic() + START_SECONDS
    with client_of(url) as client:
        while server.poll() is None and time.monotonic() < deadline:
            try:
                client.head("/")
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return True
    return False


def visit(client: httpx.Client, path: str) -> Visit:
    """Send one request and return its result."""
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


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=REQUEST_SECONDS, trust_env=False, verify=NO_TLS)


def complain_of_failures(visits: Sequence[Visit]) -> None:
    failures = [each for each in visits if each.failed]
    if failures:
        first = failures[0]
        raise CommandError(f"{len(failures)} of {len(visits)} requests failed, first {first.path}: {first.outcome}")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)
