"""Sites with two workers whose cache has state that both need: with separate entries, that is a problem."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from tests.servers.process import ROOT, one_of_each_worker, running, two_workers_of
from tests.waiting import PATIENCE, until

SITE = "tests.watch.servers.separate_site"
COMMANDS = {
    "django": ["-m", SITE, "wheelcache"],
    "flask": ["-m", "flask", "--app", f"{SITE}:application", "wheelcache"],
}
SETTING = {"django": "BACKEND of CACHES['default']", "flask": "CACHE_TYPE"}


class Visitor:
    """A connection that stays open, and with it at one worker."""

    def __init__(self, port):
        self.connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.cookie = None
        self.pid = self("pid")["pid"]

    def __call__(self, path):
        self.connection.request("GET", f"/{path}", headers={"Cookie": self.cookie} if self.cookie else {})
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        if given := response.headers["Set-Cookie"]:
            self.cookie = given.split(";")[0]
        return json.loads(body)


class Site:
    def __init__(self, stack, folder, framework, backend, *, sessions):
        given = {"framework": framework, "backend": backend, "sessions": sessions, "figures": str(folder / "figures")}
        self.log = folder / "log"
        self.environment = {"SITE": json.dumps(given), "PYTEST_XDIST_WORKER": ""}
        self.command = COMMANDS[framework]
        server = stack.enter_context(running(two_workers_of(SITE), self.log, **self.environment))
        self.one, self.other = one_of_each_worker(lambda: Visitor(server.port), stack, self.log)

    def problems(self):
        return [each["sentence"] for each in self.one("wheelcache/figures.json")["problems"]]

    def in_the_terminal(self):
        environment = {**os.environ, **self.environment}
        return subprocess.check_output(
            [sys.executable, *self.command], cwd=ROOT, env=environment, text=True, timeout=60
        )


@pytest.fixture
def serve(tmp_path):
    with ExitStack() as stack:
        yield lambda *given, **options: Site(stack, tmp_path, *given, **options)


@pytest.mark.parametrize("framework", COMMANDS)
def test_sessions_in_separate_entries_are_in_the_log_on_the_page_and_in_the_terminal(serve, framework):
    site = serve(framework, "WheelCache", sessions=True)
    assert site.one("count")["count"] == 1
    site.other.cookie = site.one.cookie
    assert site.other("count")["count"] == 1
    assert until(site.problems, note=site.log.read_text)
    (problem,) = site.problems()
    assert problem.startswith(f"Cache {'default' if framework == 'django' else 'separate'!r}: Sessions are")
    assert "its 2 workers do not share it: a visitor is logged out" in problem
    assert problem.endswith(f"Set {SETTING[framework]} to HostCache.")
    assert problem in site.in_the_terminal()
    assert "in a cache that the worker processes do not share" in site.log.read_text() or framework == "django"
    assert "(wheelcache.W005)" in site.log.read_text() or framework == "flask"


@pytest.mark.parametrize("framework", COMMANDS)
def test_values_that_only_the_other_worker_has_are_a_problem_at_run_time(serve, framework):
    site = serve(framework, "WheelCache", sessions=False)
    site.one("set")

    def is_named():
        assert site.other("get")["found"] == 0
        site.one("get")
        return site.problems()

    assert until(is_named, note=site.log.read_text)
    (problem,) = site.problems()
    assert "miss a value that another worker has" in problem
    assert problem.endswith(f"Set {SETTING[framework]} to HostCache.")
    assert problem in site.in_the_terminal()
    assert "worker processes" not in site.log.read_text()


@pytest.mark.parametrize("framework", COMMANDS)
def test_with_a_host_cache_there_is_neither_a_problem_nor_a_line_in_the_log(serve, framework):
    site = serve(framework, "HostCache", sessions=True)
    site.one("count")
    site.one("set")
    assert site.other("get")["found"] == 60
    site.other.cookie = site.one.cookie
    assert site.other("count")["count"] == 2
    assert until(lambda: len(site.one("wheelcache/figures.json")["caches"]) == 1)
    assert site.problems() == []
    assert site.log.read_text() == ""
