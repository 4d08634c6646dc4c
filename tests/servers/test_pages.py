"""The HTTP cache on servers: no page reaches another user, and a slow page is made once for a hundred requests."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from tests.pages.users import requests
from tests.servers.process import Fleet
from tests.waiting import PATIENCE, until

SERVERS = {
    "granian": [
        *("-m", "granian", "--interface", "wsgi", "--no-ws", "--blocking-threads", "128", "--port", "{port}"),
        "tests.servers.page_site:wsgi",
    ],
    "uvicorn": ["-m", "uvicorn", "--log-level=warning", "--port={port}", "tests.servers.page_site:asgi"],
    "gunicorn": [
        *("-m", "gunicorn", "--worker-class", "gthread", "--threads", "128", "--bind", "127.0.0.1:{port}"),
        "tests.servers.page_site:wsgi",
    ],
}
SECONDS = 2.0
"""That the application needs for a slow page."""
LARGE = 2**24
"""Bytes of a large page: more than the operating system keeps for a client that does not read."""
CLIENTS = 8
REQUESTS = {"granian": 10_000, "uvicorn": 20_000, "gunicorn": 10_000}
"""As many for WSGI as for ASGI."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))
        yield lambda name: fleet(name, SERVERS[name], SLOW_SECONDS=str(SECONDS))


def ask_quickly(server, all_requests):
    """Make requests on one connection, with less work than ``http.client`` has. Return the bodies."""
    bodies = []
    with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as answers:
        for path, headers in all_requests:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: example.com\r\n{lines}\r\n".encode())
            assert answers.readline().startswith(b"HTTP/1.1 200 ")
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line[:15].lower() == b"content-length:":
                    length = int(line[15:])
            bodies.append(json.loads(answers.read(length)))
    return bodies


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SERVERS)
def test_mixed_requests_of_two_users_never_mix_their_pages(serve, name):
    server = serve(name)
    all_requests = requests(REQUESTS[name])
    parts = [all_requests[first::CLIENTS] for first in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [*pool.map(partial(ask_quickly, server), parts)]
    for part, bodies in zip(parts, answers, strict=True):
        assert bodies == [user for _, headers in part for user in headers.values()]
    # Half of the paths have pages that can be stored.
    assert server("runs") < REQUESTS[name] * 0.7


def test_a_visitor_does_not_wait_for_a_client_that_does_not_read(serve):
    server = serve("uvicorn")
    runs = server("runs")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
        assert until(lambda: server("runs") == runs + 1)
        assert len(server("large")) == LARGE
        # After a wait in vain, the visitor would have caused a run.
        assert server("runs") == runs + 1
        slow.settimeout(PATIENCE)
        received = 0
        while received < LARGE:
            data = slow.recv(2**20)
            assert data
            received += len(data)


@pytest.mark.parametrize("name", SERVERS)
def test_a_hundred_requests_cause_one_run_and_none_waits_for_a_renewal(serve, name):
    server = serve(name)
    runs = server("runs")
    assert server.together(*["slow"] * 100) == [(200, "slow")] * 100
    assert server("runs") == runs + 1
    # The page is fresh for one second. A visitor that waited for its renewal would find no run in progress.
    assert until(lambda: server("slow") == "slow" and server("is-running"))
    assert until(lambda: server("runs") > runs + 1)
