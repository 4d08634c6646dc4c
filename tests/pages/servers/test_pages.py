"""The HTTP cache on servers: a slow page is made once for a hundred requests, and nobody waits for a renewal."""

from contextlib import ExitStack

import pytest

from tests.pages.servers.conftest import command_of
from tests.servers.process import Fleet
from tests.waiting import until

SECONDS = 2.0
"""That the application needs for a slow page."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))
        module = "tests.pages.servers.page_site"
        yield lambda name: fleet(name, command_of(name, module, 128), SLOW_SECONDS=str(SECONDS))


@pytest.mark.parametrize("name", ["granian", "uvicorn", "gunicorn"])
def test_a_hundred_requests_cause_one_run_and_none_waits_for_a_renewal(serve, name):
    server = serve(name)
    runs = server("runs")
    assert server.together(*["slow"] * 100) == [(200, "slow")] * 100
    assert server("runs") == runs + 1
    # The page is fresh for one second. A visitor that waited for its renewal would find no run in progress.
    assert until(lambda: server("slow") == "slow" and server("is-running"))
    assert until(lambda: server("runs") > runs + 1)
