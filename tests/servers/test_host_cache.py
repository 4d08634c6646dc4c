"""Two workers of a real server with a HostCache: one session, and one computation of each page, fragment and value."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from tests.servers.process import running
from tests.waiting import PATIENCE, until

GUNICORN = [
    *("-m", "gunicorn", "--workers=2", "--worker-class=gthread", "--threads=8", "--keep-alive=75"),
    *("--bind=127.0.0.1:{port}", "--log-level=warning"),
]
UVICORN = ["-m", "uvicorn", "--workers=2", "--timeout-keep-alive=75", "--port={port}", "--log-level=warning"]
DJANGO, FLASK = ("tests.servers.host_django_site", "tests.servers.host_flask_site")
SITES = {
    "django on gunicorn": [*GUNICORN, f"{DJANGO}:application"],
    "django on gunicorn, preloaded": [*GUNICORN, "--preload", f"{DJANGO}:application"],
    "django on uvicorn": [*UVICORN, "--timeout-worker-healthcheck=60", f"{DJANGO}:asgi_application"],
    "flask on gunicorn": [*GUNICORN, f"{FLASK}:application"],
    "flask on gunicorn, preloaded": [*GUNICORN, "--preload", f"{FLASK}:application"],
}
NUMBERS = range(5)


@pytest.fixture(params=SITES)
def kind(request):
    return request.param


@pytest.fixture
def start(tmp_path, kind):
    """Start the site. It has the same folder each time."""
    # In a process of pytest-xdist, each process of the site would have entries of its own.
    environment = {"HOST_FOLDER": str(tmp_path), "PYTEST_XDIST_WORKER": ""}
    return lambda: running(SITES[kind], tmp_path / "log", is_up=lambda site: site.is_up("count"), **environment)


def ask(connection, path, cookie=""):
    """Return the body, and the cookie of the session."""
    # The URL, and with it the key of a page, must not contain the port, which differs from start to start.
    connection.request("GET", f"/{path}", headers={"Host": "localhost", "Cookie": cookie})
    response = connection.getresponse()
    body = response.read().decode()
    assert response.status == 200, body
    return body, (response.headers["Set-Cookie"] or cookie).partition(";")[0]


def both_workers(site, stack):
    """Return a connection to each worker."""
    found = {}

    def connect():
        connection = stack.enter_context(closing(HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE)))
        found.setdefault(json.loads(ask(connection, "count")[0])["pid"], connection)
        return len(found) == 2

    assert until(connect)
    return [*found.values()]


def count(worker, cookie):
    body, cookie = ask(worker, "count", cookie)
    return json.loads(body)["count"], cookie


def ask_together(site, path):
    with ThreadPoolExecutor(16) as pool:

        def visit(number):
            with closing(HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE)) as connection:
                return ask(connection, path.format(number))[0]

        asked = [number for number in NUMBERS for _ in range(16)]
        assert [*pool.map(visit, asked)] == [f"number {number}" for number in asked]


def test_the_workers_have_one_session_and_each_computation_runs_once_for_both_also_after_a_restart(
    start, kind, tmp_path
):
    ways = ["page/{}", "value/{}", *(["fragment/{}"] if "django" in kind else [])]
    cookie, total = "", 0
    for starts in range(2):
        with ExitStack() as stack:
            site = stack.enter_context(start())
            workers = both_workers(site, stack)
            for _ in range(5):
                for worker in workers:
                    total += 1
                    number, cookie = count(worker, cookie)
                    assert number == total
            runs = {}
            for way in ways:
                before = computations(tmp_path)
                ask_together(site, way)
                runs[way] = computations(tmp_path) - before
            expected = dict.fromkeys(ways, 0 if starts else len(NUMBERS))
            if "django" in kind and not starts:
                # Two callers may compute a page of ``cache_page``: see docs/how-to/stampedes.md.
                assert len(NUMBERS) <= runs.pop("page/{}") <= 2 * expected.pop("page/{}")
            assert runs == expected
            site.stop()
    assert "Traceback" not in (tmp_path / "log").read_text()


def computations(folder):
    file = folder / "runs"
    return file.stat().st_size if file.exists() else 0
