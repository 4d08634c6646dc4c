"""The HTTP cache on servers: a slow page is made once for a hundred requests, and a slow client delays nobody."""

import socket
from contextlib import ExitStack

import pytest

from tests.pages.servers.conftest import command_of
from tests.servers.process import Fleet
from tests.waiting import PATIENCE, until

SECONDS = 2.0
"""That the application needs for a slow page."""
LARGE = 2**24
"""Bytes of a large page: more than the operating system keeps for a client that does not read."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))
        module = "tests.pages.servers.page_site"
        yield lambda name: fleet(name, command_of(name, module, 128), SLOW_SECONDS=str(SECONDS))


def test_a_visitor_does_not_wait_for_a_client_that_does_not_read(serve):
    server = serve("uvicorn")
    runs = server("runs")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
        assert until(lambda: server("runs") == runs + 1)
        assert len(server("large")) > LARGE
        # After a wait in vain, the visitor would have caused a run.
        assert server("runs") == runs + 1
        slow.settimeout(PATIENCE)
        received = 0
        while received < LARGE:
            data = slow.recv(2**20)
            assert data
            received += len(data)


@pytest.mark.parametrize("name", ["granian", "uvicorn", "gunicorn"])
def test_a_hundred_requests_cause_one_run_and_none_waits_for_a_renewal(serve, name):
    server = serve(name)
    runs = server("runs")
    assert server.together(*["slow"] * 100) == [(200, "slow")] * 100
    assert server("runs") == runs + 1
    # The page is fresh for one second. A visitor that waited for its renewal would find no run in progress.
    assert until(lambda: server("slow") == "slow" and server("is-running"))
    assert until(lambda: server("runs") > runs + 1)
