"""Two workers of a real server with a HostCache: one session, and one computation of each page, fragment and value."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from tests.servers.process import one_of_each_worker, running
from tests.waiting import PATIENCE

GUNICORN = [
    *("-m", "gunicorn", "--workers=2", "--worker-class=gthread", "--threads=8", "--keep-alive=75"),
    *("--bind=127.0.0.1:{port}", "--log-level=warning"),
]
UVICORN = ["-m", "uvicorn", "--workers=2", "--timeout-keep-alive=75", "--port={port}", "--log-level=warning"]
SITE = "tests.host_cache.servers.{}_site:application"
SITES = {
    "django on gunicorn": [*GUNICORN, SITE.format("django")],
    "django on uvicorn": [*UVICORN, "--timeout-worker-healthcheck=60", SITE.format("django").replace(":", ":asgi_")],
    "flask on gunicorn, preloaded": [*GUNICORN, "--preload", SITE.format("flask")],
}
NUMBERS = range(5)


class Connection:
    """A connection that stays open, and with it at one worker."""

    def __init__(self, port):
        self.connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.pid = json.loads(self.ask("count")[0])["pid"]

    def ask(self, path, cookie=""):
        """Return the body, and the cookie of the session."""
        # The URL, and with it the key of a page, must not contain the port, which differs from start to start.
        self.connection.request("GET", f"/{path}", headers={"Host": "localhost", "Cookie": cookie})
        response = self.connection.getresponse()
        body = response.read().decode()
        assert response.status == 200, body
        return body, (response.headers["Set-Cookie"] or cookie).partition(";")[0]


def ask_together(port, path):
    """Let 16 visitors at a time request each page. Check what they see."""

    def visit(number):
        visitor = Connection(port)
        with closing(visitor.connection):
            return visitor.ask(path.format(number))[0]

    asked = [number for number in NUMBERS for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(visit, asked)] == [f"number {number}" for number in asked]


@pytest.mark.parametrize("kind", SITES)
def test_the_workers_have_one_session_and_each_computation_runs_once_for_both_also_after_a_restart(kind, tmp_path):
    # In a process of pytest-xdist, each process of the site would have entries of its own.
    environment = {"HOST_FOLDER": str(tmp_path), "PYTEST_XDIST_WORKER": ""}
    ways = ["page/{}", "value/{}", *(["fragment/{}"] if "django" in kind else [])]
    runs, log, cookie, total = tmp_path / "runs", tmp_path / "log", "", 0
    runs.touch()
    for is_restarted in (False, True):
        with ExitStack() as stack:
            site = stack.enter_context(running(SITES[kind], log, is_up=lambda site: site.is_up("count"), **environment))
            workers = one_of_each_worker(lambda site=site: Connection(site.port), stack, log)
            for worker in workers * 5:
                total += 1
                answer, cookie = worker.ask("count", cookie)
                assert json.loads(answer)["count"] == total
            for way in ways:
                before = runs.stat().st_size
                ask_together(site.port, way)
                # Two callers may compute a page of ``cache_page``: see docs/how-to/stampedes.md.
                most = 2 if way == "page/{}" and "django" in kind else 1
                least = 0 if is_restarted else len(NUMBERS)
                assert least <= runs.stat().st_size - before <= most * least
            site.stop()
    assert "Traceback" not in log.read_text()
