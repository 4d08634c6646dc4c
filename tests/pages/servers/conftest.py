"""``site`` on servers that stay up for all tests of a module."""

from contextlib import ExitStack

import pytest

from tests.servers.process import Fleet

ASGI, WSGI = (f"tests.pages.servers.site:{name}" for name in ("asgi", "wsgi"))
SERVERS = {
    "uvicorn": ["uvicorn", "--log-level=warning", "--port={port}", ASGI],
    "gunicorn": ["gunicorn", "--worker-class=gthread", "--threads=128", "--bind=127.0.0.1:{port}", WSGI],
    "granian": ["granian", "--interface=wsgi", "--no-ws", "--blocking-threads=128", "--port={port}", WSGI],
    "waitress": ["waitress", "--no-clear-untrusted-proxy-headers", "--listen=127.0.0.1:{port}", WSGI],
}


@pytest.fixture(scope="module")
def on_server(tmp_path_factory):
    """Start a server of the site, or return the one that runs."""
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))

        def start(name):
            return fleet(name, ["-m", *SERVERS[name]])

        start.logs = fleet.logs
        yield start
