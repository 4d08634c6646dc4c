"""``site`` on servers that stay up for all tests of a module."""

from contextlib import ExitStack
from functools import cache

import pytest

from tests.servers.process import Fleet

SITE = "tests.pages.servers.site"
SERVERS = {
    "uvicorn": ["-m", "uvicorn", "--log-level=warning", "--port={port}", "{module}:asgi"],
    "gunicorn": [
        *("-m", "gunicorn", "--worker-class=gthread", "--threads={threads}", "--bind=127.0.0.1:{port}"),
        "{module}:wsgi",
    ],
    "granian": [
        *("-m", "granian", "--interface=wsgi", "--no-ws", "--blocking-threads={threads}", "--port={port}"),
        "{module}:wsgi",
    ],
    "waitress with DEBUG": [
        *("-m", "waitress", "--no-clear-untrusted-proxy-headers", "--listen=127.0.0.1:{port}"),
        "{module}:wsgi",
    ],
}
"""The only server of ASGI is the first one, so that the tests with pairs run each case on it and on one of WSGI."""


def command_of(name, module, threads=4):
    return [part.replace("{module}", module).replace("{threads}", str(threads)) for part in SERVERS[name]]


@pytest.fixture(scope="module")
def on_server(tmp_path_factory):
    """Start a server of the site, or get the one that runs: ``on_server(name, make)`` returns ``make(server, ...)``."""
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))

        @cache
        def start(name, make):
            environment = {"SITE_FOLDER": str(tmp_path_factory.mktemp("site")), "SITE_DEBUG": f"{'DEBUG' in name:d}"}
            return make(fleet(name, command_of(name, SITE), **environment))

        start.logs = fleet.logs
        yield start
