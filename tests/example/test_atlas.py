"""The example site, run as a user would: its commands in processes of their own, its pages over HTTP."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.example.conftest import served
from tests.ports import serving
from tests.prepared_python import PreparedPython
from tests.waiting import PATIENCE

pytestmark = pytest.mark.servers

MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"


class Atlas:
    """The site with a database and a cache of its own."""

    def __init__(self, database: Path, python: PreparedPython) -> None:
        self.database = database
        run = database.with_name("run")
        run.mkdir()
        # In a process of pytest-xdist, each process of the site would have entries of its own.
        self.variables = {"ATLAS_DATABASE": str(database), "ATLAS_RUN_DIR": str(run), "PYTEST_XDIST_WORKER": ""}
        self.environment = {**os.environ, **self.variables}
        self.python = python

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "manage", *arguments, cwd=MANAGE.parent, **self.variables)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Run waitress. Yields the URL of the site."""
        command = [sys.executable, "-m", "waitress", "--listen=127.0.0.1:{port}", "atlas_site.wsgi:application"]
        with serving(command, env=self.environment, cwd=MANAGE.parent) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def atlas(filled_database, tmp_path_factory, python):
    return Atlas(shutil.copy(filled_database, tmp_path_factory.mktemp("atlas") / "atlas.sqlite3"), python)


@pytest.fixture(scope="module")
def url(atlas):
    with atlas.serve() as url:
        yield url


@pytest.fixture
def visitor(url):
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        client.post("/cache/empty/")
        yield client


def test_the_checks_find_nothing_and_the_migrations_are_complete(atlas):
    checked = atlas.manage("check", "--fail-level", "WARNING")
    assert checked.returncode == 0
    # The core in Python is reported, as information.
    assert {*re.findall(r"\((\w+\.\w\d+)\)", checked.stdout + checked.stderr)} <= {"wheelcache.I001"}
    assert atlas.manage("makemigrations", "--check", "--dry-run").returncode == 0


@pytest.mark.parametrize("path", ["/", "/country/FR/", "/city/2988507/", "/statistics/", "/async/EU/"])
def test_a_page_is_computed_once_and_then_comes_from_the_cache(visitor, path):
    assert [served(visitor.get(path)) for _ in range(3)] == ["MISS", "HIT", "HIT"]


def test_a_city_that_is_renamed_in_the_admin_has_its_new_name_in_all_workers_immediately(atlas):
    code = "from django.contrib.auth.models import User; User.objects.create_superuser('chief', password='chief')"
    assert atlas.manage("shell", "--command", code).returncode == 0
    with ExitStack() as stack:
        visitors = []
        for _ in range(2):
            url = stack.enter_context(atlas.serve())
            visitors.append(stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE)))
        editor, other = visitors
        neighbour = re.search(r'href="(/city/\d+/)"', other.get(PARIS).text)[1]
        paths = ["/country/FR/", neighbour, "/statistics/", "/async/EU/", "/"]
        for path in (*paths, "/country/JP/"):
            assert [served(visitor.get(path)) for visitor in visitors for _ in range(2)][1::2] == ["HIT", "HIT"]
        assert [name_of_paris(other.get(path)) for path in paths[:2]] == ["Paris", "Paris"]
        assert other.get(SUMMARY_OF_PARIS).json()["cities"][0]["name"] == "Paris"
        editor.follow_redirects = True
        for path, changes in (
            ("/admin/login/", {"username": "chief", "password": "chief"}),
            ("/admin/atlas/city/2988507/change/", {"name": "Lutetia"}),
        ):
            fields = dict(re.findall(r'<input[^>]* name="(\w+)" value="([^"]*)"', editor.get(path).text))
            fields.pop("_save", None)
            answer = editor.post(path, data={**fields, **changes})
        assert "was changed successfully" in answer.text
        for visitor, outcome in zip(visitors, ("MISS", "HIT"), strict=True):
            # The first one computes the pages for both.
            assert [served(visitor.get(path)) for path in paths] == [outcome] * len(paths)
            assert served(visitor.get("/country/JP/")) == "HIT"
            assert [name_of_paris(visitor.get(path)) for path in paths[:2]] == ["Lutetia", "Lutetia"]
            assert visitor.get(SUMMARY_OF_PARIS).json()["cities"][0]["name"] == "Lutetia"


def name_of_paris(page):
    return re.search(rf'href="{PARIS}">([^<]+)<', page.text)[1]


PARIS = "/city/2988507/"
SUMMARY_OF_PARIS = "/cities/?id=2988507"


def test_the_figures_of_the_cache_are_for_users_that_log_in(atlas, url):
    assert atlas.manage("demo_user").stdout.count("http://localhost:8000/wheelcache/, user demo, password demo") == 1
    assert atlas.manage("demo_user", "--port", "81").stdout.count("http://localhost:81/wheelcache/") == 1
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE, follow_redirects=True) as stranger:
        login = stranger.get(re.search(r'href="([^"]+)">The cache', stranger.get("/").text)[1])
        assert login.url.path == "/login/"
        assert "<code>demo</code>" in login.text
        assert "X-Cache" not in login.headers
        assert stranger.get("/wheelcache/figures.json", follow_redirects=False).status_code != 200
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', login.text)[1]
        form = {"csrfmiddlewaretoken": token, "username": "demo", "next": "/wheelcache/"}
        assert "no such user" in stranger.post(login.url, data={**form, "password": "x"}).text
        page = stranger.post(login.url, data={**form, "password": "demo"})
        assert (page.url.path, page.status_code) == ("/wheelcache/", 200)
        assert '"may_operate": true' in page.text
        figures = stranger.get("/wheelcache/figures.json").json()
        assert {"default", "sessions"} <= {each["name"] for each in figures["caches"]}
        # A user that empties the cache does not have to log in again.
        stranger.post("/cache/empty/")
        assert stranger.get("/wheelcache/figures.json").status_code == 200


def test_the_demo_ends_with_the_figures_of_its_workers_the_speed_of_pages_and_where_to_look(atlas):
    earlier = "from django.core.cache import cache; cache.set('a', 1); [cache.get('a') for _ in range(99999)]"
    assert atlas.manage("shell", "--command", earlier).returncode == 0
    done = atlas.manage("demo", "--seconds", "5")
    assert done.returncode == 0, done.stderr
    requests = re.match(r"([\d,]+) requests in 5 seconds", done.stdout)[1].replace(",", "")
    assert int(requests) > 0
    # The bar counts visits.
    assert f"{requests}/?" in done.stderr
    (shown,) = re.findall(r"^default .*\n(?:  \d+ .* (?:running|parked) .*\n){2}", done.stdout, re.MULTILINE)
    # Only this run: the requests, and the one that found that the site answers. A page makes one look-up or two.
    total, *workers = (int(row.split()[3].replace(",", "")) for row in shown.splitlines())
    assert total == sum(workers)
    assert int(requests) < total < 2 * (int(requests) + 1)
    speeds = [int(speed.replace(",", "")) for speed in re.findall(r"^│ .* │ +([\d,]+) │", done.stdout, re.MULTILINE)]
    # Pages per second without a cache, with cache_page, and with the HTTP cache.
    assert len(speeds) == 3
    # On a busy machine, the client limits the other two.
    assert speeds[0] == min(speeds)
    assert "make run, then http://localhost:8000/wheelcache/, user demo, password demo" in done.stdout
    assert "Both workers share one cache: 80 of 80 visits of pages that one of them had made were hits." in done.stdout
    assert "visits" in done.stderr


def test_the_demo_stays_until_ctrl_c(atlas):
    with subprocess.Popen(
        [sys.executable, "-u", MANAGE, "demo", "--seconds", "1", "--stay"],
        env=atlas.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            # This comes first, while visitors come.
            url = re.search(r"a page at (\S+)/wheelcache/,", demo.stdout.readline())[1]
            assert httpx.get(url, trust_env=False, timeout=PATIENCE).status_code == 200
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE) == 0
        finally:
            demo.terminate()
        assert "Traceback" not in demo.stderr.read()
