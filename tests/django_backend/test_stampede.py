"""A stampede of 200 clients on real servers, with FILL_WAIT and without, and holders of leases that fail."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.django_backend.test_servers import ROOT, free_ports
from tests.waiting import until

pytestmark = pytest.mark.servers

SITE = "tests.django_backend.stampede_site"
CLIENTS = 200
FEW = 8
SHORT = 2
"""The site's FILL_WAIT where it hangs. Everywhere else it is LONG."""

LONG = 60
IN_TIME = 20
"""Seconds, generous for a busy machine, and far from LONG: what takes less did not wait for it."""

COMMANDS = {
    "waitress": [
        *("waitress", "--threads", "32", "--connection-limit", "1000", "--backlog", "1000"),
        *("--listen", "127.0.0.1:{port}", f"{SITE}:application"),
    ],
    "uvicorn": [
        *("uvicorn", "--log-level", "warning", "--backlog", "1000"),
        *("--port", "{port}", f"{SITE}:asgi_application"),
    ],
}

names = map("number-{}".format, count())


class Site:
    def __init__(self, port):
        self.port = port

    def ask(self, method, path):
        """Status and answer. A connection for each request."""
        connection = self.connect()
        try:
            return self._ask(connection, method, path)
        finally:
            connection.close()

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG * 1.5)
        connection.connect()
        return connection

    def _ask(self, connection, method, path):
        connection.request(method, f"/{path}")
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if response.status == 200 else None

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path):
        status, answer = self.ask("POST", path)
        assert status == 200
        return answer

    def is_up(self):
        try:
            return "waiting" in self.post("waiting")
        except ConnectionError:
            return False

    def waiting(self):
        return self.post("waiting")["waiting"]

    def runs(self, name):
        return self.post(f"ran/{name}")["runs"]

    def stampede(self, path, clients=CLIENTS):
        """All ask at once, each on a connection that is open by then; their answers."""
        barrier = threading.Barrier(clients)

        def one(_):
            connection = self.connect()
            try:
                barrier.wait(IN_TIME)
                return self._ask(connection, "GET", path)
            finally:
                connection.close()

        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(one, range(clients), timeout=LONG))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start a server, or give the one that runs already: ``start("waitress", fill_wait=True, site_wide=False)``."""
    running = {}

    def start_server(name, *, fill_wait, site_wide):
        key = (name, fill_wait, site_wide)
        if key not in running:
            (port,) = free_ports(1)
            log = tmp_path_factory.mktemp("server") / "log"
            with log.open("w") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", *(part.format(port=port) for part in COMMANDS[name])],
                    cwd=ROOT,
                    env={**os.environ, "FILL_WAIT": f"{fill_wait:d}", "SITE_WIDE": f"{site_wide:d}"},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            running[key] = process, Site(port), log
            assert until(running[key][1].is_up, IN_TIME), log.read_text()
        return running[key][1]

    yield start_server
    for process, _, _ in running.values():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    logs = {key: log.read_text() for key, (_, _, log) in running.items()}
    assert not [key for key, log in logs.items() if "Traceback" in log], logs


KINDS = {
    "cache_page on waitress": ("waitress", "page", False),
    "cache middleware on waitress": ("waitress", "whole", True),
    "cache_page on uvicorn, sync view": ("uvicorn", "page", False),
    "cache middleware on uvicorn, async view": ("uvicorn", "awhole", True),
    "aget and aset on uvicorn": ("uvicorn", "avalue", False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_that_200_clients_ask_for_at_once_runs_once_with_fill_wait(start, capsys, kind):
    server, view, site_wide = KINDS[kind]
    runs = {}
    for fill_wait in (True, False):
        site = start(server, fill_wait=fill_wait, site_wide=site_wide)
        name = next(names)
        started = time.monotonic()
        # Cold: there is no list of headers either.
        cold = site.stampede(f"{view}/{name}")
        runs[fill_wait, "cold"] = site.runs(name)
        assert site.post("expire")["expired"] > 0
        expired = site.stampede(f"{view}/{name}")
        runs[fill_wait, "expired"] = site.runs(name)
        seconds = time.monotonic() - started
        assert [status for status, _ in cold + expired] == [200] * 2 * CLIENTS
        if fill_wait:
            assert len({answer["round"] for _, answer in cold}) == len({answer["round"] for _, answer in expired}) == 1
            assert cold[0][1]["round"] + 1 == expired[0][1]["round"]
            assert seconds < LONG
            assert site.waiting() == 0
    with capsys.disabled():
        print(
            f"\n{kind}, {CLIENTS} clients at once: the view ran {runs[True, 'cold']} + {runs[True, 'expired']} times "
            f"with FILL_WAIT, {runs[False, 'cold']} + {runs[False, 'expired']} without (cold + expired)",
            end=" ",
        )
    assert (runs[True, "cold"], runs[True, "expired"]) == (1, 1)
    assert runs[False, "cold"] > 1
    assert runs[False, "expired"] > 1


# Who fails to fill

FAILING = {
    "cache_page on waitress": ("waitress", "fails", False),
    "cache middleware on waitress": ("waitress", "whole-fails", True),
    "cache_page on uvicorn, sync view": ("uvicorn", "fails", False),
    "cache middleware on uvicorn, sync view": ("uvicorn", "whole-fails", True),
    "cache middleware on uvicorn, async view": ("uvicorn", "awhole-fails", True),
    "aget and aset on uvicorn": ("uvicorn", "avalue-fails", False),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize(("how", "status"), [("raises", 500), ("not-found", 404)])
def test_if_a_view_raises_or_is_not_cached_the_next_request_computes_for_all(start, kind, how, status):
    server, view, site_wide = FAILING[kind]
    site = start(server, fill_wait=True, site_wide=site_wide)
    name = next(names)
    site.post("hold")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(site.stampede, f"{view}/{how}/{name}", FEW)
        assert until(lambda: site.waiting() == FEW - 1)
        started = time.monotonic()
        site.post("release")
        answers = asking.result(LONG * 1.5)
    assert time.monotonic() - started < IN_TIME
    assert sorted(answers, key=str) == sorted([(status, None), *[(200, {"run": 2})] * (FEW - 1)], key=str)
    assert site.runs(name) == 2


HANGING = {"waitress": ("waitress", "short"), "uvicorn": ("uvicorn", "short"), "aget": ("uvicorn", "avalue-fails")}


@pytest.mark.parametrize("kind", HANGING)
def test_nobody_waits_longer_than_fill_wait_for_a_view_that_hangs(start, kind):
    server, view = HANGING[kind]
    site = start(server, fill_wait=True, site_wide=False)
    name = f"short:{next(names)}"
    site.post("hold")
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(site.get, f"{view}/hangs/{name}")
        assert until(lambda: site.runs(name) == 1)
        started = time.monotonic()
        answers = site.stampede(f"{view}/hangs/{name}", FEW)
        assert time.monotonic() - started < SHORT + IN_TIME / 2
        assert [status for status, _ in answers] == [200] * FEW
        # Now it is cached, and he who hangs is still at it.
        status, _ = site.get(f"{view}/hangs/{name}")
        assert (status, hanging.done()) == (200, False)
        assert 2 <= site.runs(name) <= 1 + FEW
        site.post("release")
        assert hanging.result(IN_TIME) == (404, None)


CANCELLED = {"aget": ("avalue-fails", False), "cache middleware": ("awhole-fails", True)}


@pytest.mark.parametrize("kind", CANCELLED)
def test_if_the_client_goes_away_its_view_is_cancelled_and_the_next_request_computes(start, kind):
    view, site_wide = CANCELLED[kind]
    site = start("uvicorn", fill_wait=True, site_wide=site_wide)
    name = next(names)
    site.post("hold")
    impatient = socket.create_connection(("127.0.0.1", site.port))
    impatient.sendall(f"GET /{view}/hangs/{name} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
    assert until(lambda: site.runs(name) == 1)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(site.stampede, f"{view}/hangs/{name}", FEW)
        assert until(lambda: site.waiting() == FEW)
        started = time.monotonic()
        impatient.close()
        answers = asking.result(LONG * 1.5)
    assert time.monotonic() - started < IN_TIME
    assert answers == [(200, {"run": 2})] * FEW
    assert site.runs(name) == 2


def test_a_waiter_whose_client_goes_away_takes_nobody_with_it(start):
    site = start("uvicorn", fill_wait=True, site_wide=False)
    name = next(names)
    site.post("hold")
    path = f"avalue-fails/raises/{name}"
    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(site.get, path)
        assert until(lambda: site.runs(name) == 1)
        impatient = socket.create_connection(("127.0.0.1", site.port))
        impatient.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        assert until(lambda: site.waiting() == 1)
        impatient.close()
        assert until(lambda: site.waiting() == 0)
        site.post("release")
        assert failing.result(IN_TIME) == (500, None)
    assert site.get(path) == (200, {"run": 2})


def test_cache_page_on_an_async_view_itself_never_waits_since_that_would_stop_the_loop(start):
    """Django's decorator reads the cache in the event loop. All are in the view at once, so nobody waited."""
    site = start("uvicorn", fill_wait=True, site_wide=False)
    started = time.monotonic()
    answers = site.stampede(f"apage-for/{FEW}", FEW)
    assert time.monotonic() - started < IN_TIME
    assert [status for status, _ in answers] == [200] * FEW
    assert site.runs("together") == FEW
    assert site.get(f"apage-for/{FEW}")[0] == 200
    assert site.runs("together") == FEW
