"""A session that two workers count in: in a HostCache, nothing is lost."""

import json
import os
import secrets
import subprocess
import sys
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException

import pytest

from tests.servers.process import ROOT, one_of_each_worker, running, two_workers_of
from tests.waiting import PATIENCE

SITE = "tests.servers.session_site"
INCREMENTS = 60


class Worker:
    """A connection that stays open, and with it at one worker."""

    def __init__(self, port):
        self.connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.pid = self.count()["pid"]

    def count(self, cookie=None):
        self.connection.request("GET", "/", headers={} if cookie is None else {"Cookie": cookie})
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        set_cookie = response.headers["Set-Cookie"]
        return {**json.loads(body), "cookie": set_cookie and set_cookie.split(";")[0]}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database that has the table of the sessions."""
    database = tmp_path_factory.mktemp("sessions") / "sessions.sqlite3"
    given = {
        "engine": "db",
        "backend": "WheelCache",
        "location": "none",
        "database": str(database),
    }
    environment = {**os.environ, "SESSION_SITE": json.dumps(given)}
    subprocess.run([sys.executable, "-m", SITE], cwd=ROOT, env=environment, check=True, timeout=250)
    return str(database)


@pytest.fixture
def serve(tmp_path, database):
    """Two workers of a site with this session engine and cache backend; a connection to each."""
    with ExitStack() as stack:

        def start(engine, backend):
            given = {
                "engine": engine,
                "backend": backend,
                "location": f"sessions {secrets.token_hex(4)}",
                "database": database,
            }
            environment = {"SESSION_SITE": json.dumps(given), "PYTEST_XDIST_WORKER": ""}
            log = tmp_path / "log"
            server = stack.enter_context(running(two_workers_of(SITE), log, is_up=answers, **environment))
            return one_of_each_worker(lambda: Worker(server.port), stack, log)

        yield start


def answers(server):
    with suppress(OSError, HTTPException):
        Worker(server.port).connection.close()
        return True
    return False


def lost(workers):
    """Return the number of lost increments, of 60 increments of one session by the workers in turns."""
    cookie = workers[0].count()["cookie"]
    last = 1
    for number in range(1, INCREMENTS):
        answer = workers[number % 2].count(cookie)
        cookie = answer["cookie"] or cookie
        last = answer["count"]
    return INCREMENTS - last


@pytest.mark.parametrize("engine", ["cached_db", "cache"])
def test_in_a_host_cache_no_increment_is_lost(serve, engine):
    assert lost(serve(engine, "HostCache")) == 0


@pytest.mark.parametrize("engine", ["cached_db", "cache"])
def test_what_the_deployment_check_warns_of_loses_increments(serve, engine):
    assert lost(serve(engine, "WheelCache")) > 0
