"""Stampedes on a real server, waitress with 32 threads: what is computed how often, and who waits how long."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.flask_backend.servers import SLOW, THREADS
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
CLIENTS = 200
WAITERS = 24
"""Fewer than the server's threads: one is for who is waited for, one for what the test asks meanwhile."""

LONG, SHORT = 60, 1
"""Seconds of fill_wait: one that no test waits for the end of, and one for the tests of what is waited for in vain."""

SLACK = 2
"""Seconds that a busy machine may add."""

WAITS = {"": LONG, "view//fails/hangs/": SHORT, "view//fails/broken/": SHORT}


class Site:
    def __init__(self, port):
        self.port = port

    def connect(self):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.connect()
        return connection

    def get(self, path, connection=None):
        """Status, text, and the seconds that the app took."""
        connection = connection or self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode(), float(response.headers["X-Seconds"])
        finally:
            connection.close()

    def tell(self, path):
        connection = self.connect()
        try:
            connection.request("POST", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def runs(self, name):
        return self.tell(f"/runs/{name}")["runs"]

    def together(self, path, clients=CLIENTS):
        """All clients are connected before the first one asks."""
        barrier = threading.Barrier(clients)

        def visit(_):
            connection = self.connect()
            barrier.wait(PATIENCE)
            return self.get(path, connection)

        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(visit, range(clients), timeout=60))

    def is_up(self):
        try:
            return "waiting" in self.tell("/waiting")
        except ConnectionError:
            return False

    def all_wait(self):
        return until(lambda: self.tell("/waiting") == {"waiting": WAITERS})


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """The same site with fill_wait and without."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    processes, logs = [], []
    for port, fill_wait in zip(ports, (WAITS, 0), strict=True):
        log = tmp_path_factory.mktemp("server") / "log"
        command = [sys.executable, "-m", "tests.flask_backend.servers", str(port), json.dumps(fill_wait)]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        processes.append(process)
        logs.append(log)
    both = [Site(port) for port in ports]
    try:
        assert until(lambda: all(site.is_up() for site in both), 20), [log.read_text() for log in logs]
        yield both
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    for log in logs:
        text = log.read_text()
        assert text.count("Traceback") == text.count("\nBoom\n"), text


@pytest.fixture
def site(sites):
    """The one with fill_wait; what hangs in it hangs until the test ends."""
    site, _ = sites
    site.tell("/hold")
    yield site
    site.tell("/release")


@pytest.mark.parametrize("state", ["cold", "expired"])
@pytest.mark.parametrize("way", ["cached", "memoized", "async"])
def test_of_200_clients_at_once_one_has_it_computed_with_fill_wait_and_many_without(sites, capsys, way, state):
    path, name = f"/{way}/{state}-{way}", f"{state}-{way}"
    computed = []
    for site in sites:
        before = 0
        if state == "expired":
            site.get(path)
            assert site.tell("/expire")["expired"] >= 1
            before = 1
        answers = site.together(path)
        assert {status for status, _, _ in answers} == {200}
        computed.append(site.runs(name) - before)
        if site is sites[0]:
            assert {json.loads(text)["run"] for _, text, _ in answers} == {before + 1}
    with capsys.disabled():
        print(
            f"\n{CLIENTS} clients, {THREADS} threads, {way}, {state}:"
            f" computed {computed[0]} x with fill_wait, {computed[1]} x without"
        )
    assert computed[0] == 1
    assert computed[1] > 1


@pytest.mark.parametrize("how", ["raises", "filtered"])
def test_when_the_one_who_computes_fails_one_of_those_who_wait_computes_and_all_others_get_that(site, capsys, how):
    path = f"/fails/{how}/{how}"
    with ThreadPoolExecutor(1 + WAITERS) as pool:
        first = pool.submit(site.get, path)
        assert until(lambda: site.runs(how) == 1)
        waiters = [pool.submit(site.get, path) for _ in range(WAITERS)]
        assert site.all_wait()
        site.tell("/release")
        assert first.result(PATIENCE)[0] == {"raises": 500, "filtered": 503}[how]
        assert {waiter.result(PATIENCE)[:2] for waiter in waiters} == {(200, '{"run":2}\n')}
    with capsys.disabled():
        print(f"\n{WAITERS} wait for one who fails ({how}): computed {site.runs(how)} x in all")
    assert site.runs(how) == 2


def test_while_one_hangs_nobody_waits_longer_than_fill_wait_and_the_next_request_computes(site, capsys):
    path = "/fails/hangs/hangs"
    with ThreadPoolExecutor(1 + WAITERS) as pool:
        first = pool.submit(site.get, path)
        assert until(lambda: site.runs("hangs") == 1)
        waiters = [pool.submit(site.get, path) for _ in range(WAITERS)]
        answers = [waiter.result(SHORT + SLOW + 2 * SLACK) for waiter in waiters]
        assert not first.done()
        assert {status for status, _, _ in answers} == {200}
        longest = max(seconds for _, _, seconds in answers)
        status, text, seconds = site.get(path)
        assert (status, json.loads(text)["run"] > 1) == (200, True)
        assert seconds < SLACK
        site.tell("/release")
        assert first.result(PATIENCE)[0] == 503
    with capsys.disabled():
        print(f"\n{WAITERS} wait for one who hangs, fill_wait {SHORT} s: the longest took {longest:.2f} s")
    assert longest < SHORT + SLOW + SLACK


def test_if_whoever_computes_fails_nobody_waits_longer_than_fill_wait(site, capsys):
    answers = site.together("/fails/broken/broken", WAITERS)
    assert Counter(status for status, _, _ in answers) == {500: WAITERS}
    longest = max(seconds for _, _, seconds in answers)
    with capsys.disabled():
        print(f"\n{WAITERS} clients, all runs fail, fill_wait {SHORT} s: the longest took {longest:.2f} s")
    assert longest < SHORT + SLOW + SLACK
    assert site.runs("broken") == WAITERS


def test_a_request_that_bypasses_the_cache_is_not_held_up_and_holds_nobody_up(site):
    path = "/fails/raises/bypass"
    with ThreadPoolExecutor(1 + WAITERS) as pool:
        first = pool.submit(site.get, path)
        assert until(lambda: site.runs("bypass") == 1)
        waiters = [pool.submit(site.get, path) for _ in range(WAITERS)]
        assert site.all_wait()
        assert site.get(f"{path}?bypass")[:2] == (200, '{"run":2}\n')
        assert site.tell("/waiting") == {"waiting": WAITERS}
        site.tell("/release")
        assert first.result(PATIENCE)[0] == 500
        assert {waiter.result(PATIENCE)[:2] for waiter in waiters} == {(200, '{"run":3}\n')}
