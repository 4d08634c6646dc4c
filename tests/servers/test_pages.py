"""The HTTP cache on servers: no page reaches another user, and a slow page is made once for a hundred requests."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.http_cache.users import requests
from tests.servers.process import Fleet
from tests.waiting import until

SERVERS = {
    "granian": [
        *("-m", "granian", "--interface", "wsgi", "--no-ws", "--blocking-threads", "128", "--port", "{port}"),
        "tests.servers.page_site:wsgi",
    ],
    "uvicorn": ["-m", "uvicorn", "--port", "{port}", "tests.servers.page_site:asgi"],
    "gunicorn": [
        *("-m", "gunicorn", "--worker-class", "gthread", "--threads", "128", "--bind", "127.0.0.1:{port}"),
        "tests.servers.page_site:wsgi",
    ],
}
SECONDS = 2.0
"""That the application needs for a slow page."""
CLIENTS = 8
REQUESTS = 4_000


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))
        yield lambda name: fleet(name, SERVERS[name], SLOW_SECONDS=str(SECONDS))


@pytest.mark.parametrize("name", SERVERS)
def test_mixed_requests_of_two_users_never_mix_their_pages(serve, name):
    server = serve(name)
    all_requests = requests(REQUESTS)

    def ask(first):
        connection = server.connect()
        answers = []
        for path, headers in all_requests[first::CLIENTS]:
            connection.request("GET", path, headers=headers)
            answers.append((json.loads(connection.getresponse().read()), *headers.values()))
        connection.close()
        return answers

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [each for part in pool.map(ask, range(CLIENTS)) for each in part]
    assert len(answers) == REQUESTS
    assert [answer for answer in answers if answer[0] != answer[1]] == []
    # More than half of the pages can be stored.
    assert server("runs") < REQUESTS * 0.8


@pytest.mark.parametrize("name", SERVERS)
def test_a_hundred_requests_cause_one_run_and_none_waits_for_a_renewal(serve, name):
    server = serve(name)
    runs = server("runs")
    assert server.together(*["slow"] * 100) == [(200, "slow")] * 100
    assert server("runs") == runs + 1
    # The page is fresh for one second. A visitor that waited for its renewal would find no run in progress.
    assert until(lambda: server("slow") == "slow" and server("is-running"))
    assert until(lambda: server("runs") > runs + 1)
