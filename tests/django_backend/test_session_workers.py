"""A session that two workers count in: with COHERENCE and the database behind it, nothing is lost."""

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
INCREMENTS = 60


class Worker:
    """A connection that stays open, and with it at one worker."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.pid = self.count()["pid"]

    def count(self, cookie=None):
        self.connection.request("GET", "/", headers={} if cookie is None else {"Cookie": cookie})
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        set_cookie = response.headers["Set-Cookie"]
        return {**json.loads(body), "cookie": set_cookie and set_cookie.split(";")[0]}


@pytest.fixture
def serve(tmp_path):
    """Two workers of a site with this session engine and these OPTIONS; a connection to each."""
    servers, workers = [], {}

    def start(engine, options):
        given = {
            "engine": engine,
            "options": {"FIGURES_DIR": None, **options},
            "location": f"sessions {secrets.token_hex(4)}",
            "database": str(tmp_path / "sessions.sqlite3"),
        }
        environment = {**os.environ, "SESSION_SITE": json.dumps(given)}
        site = "tests.django_backend.session_site"
        subprocess.run([sys.executable, "-m", site], cwd=ROOT, env=environment, check=True, timeout=60)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        command = [
            *(sys.executable, "-m", "gunicorn", "--workers", "2", "--worker-class", "gthread", "--threads", "4"),
            *("--keep-alive", "75", "--bind", f"127.0.0.1:{port}", "--log-level", "warning", f"{site}:application"),
        ]
        with (tmp_path / "log").open("w") as log:
            servers.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))

        def both():
            with suppress(OSError, http.client.HTTPException):
                worker = Worker(port)
                if worker.pid in workers:
                    worker.connection.close()
                else:
                    workers[worker.pid] = worker
            return len(workers) == 2

        assert until(both, 30), (tmp_path / "log").read_text()
        return list(workers.values())

    yield start
    for worker in workers.values():
        worker.connection.close()
    for server in servers:
        server.terminate()
        server.wait(PATIENCE)


def lost(workers):
    """Of 60 increments of one session, asked of the workers in turns, how many were lost."""
    cookie = workers[0].count()["cookie"]
    last = 1
    for number in range(1, INCREMENTS):
        answer = workers[number % 2].count(cookie)
        cookie = answer["cookie"] or cookie
        last = answer["count"]
    return INCREMENTS - last


def test_with_coherence_and_cached_db_no_increment_is_lost(serve):
    assert lost(serve("cached_db", {"COHERENCE": "host"})) == 0


@pytest.mark.parametrize(("engine", "options"), [("cached_db", {}), ("cache", {}), ("cache", {"COHERENCE": "host"})])
def test_what_the_deployment_check_warns_of_loses_increments(serve, engine, options):
    assert lost(serve(engine, options)) > 0
