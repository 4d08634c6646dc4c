"""The Flask app of the example: on a database that the Django site filled, through its test client and its command."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.example.conftest import served
from tests.ports import serving
from tests.waiting import PATIENCE

pytestmark = pytest.mark.servers

EXAMPLE_PROJECT = Path(__file__).resolve().parents[2] / "example_project"


@pytest.fixture(scope="module")
def database(filled_database, tmp_path_factory):
    return shutil.copy(filled_database, tmp_path_factory.mktemp("flask_atlas") / "an atlas?#.sqlite3")


@pytest.fixture
def make_app(monkeypatch):
    """Make an app over a database. The log settings that an app makes for the process end with the test."""
    monkeypatch.syspath_prepend(EXAMPLE_PROJECT)
    from flask_atlas import create_app

    logger = logging.getLogger("wheelcache")
    level, handlers = logger.level, logger.handlers[:]
    yield lambda database: create_app({"DATABASE": database, "TESTING": True})
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def client(make_app, database):
    return make_app(database).test_client()


@pytest.mark.parametrize("path", ["/", "/country/FR", "/nearest?lat=48.86&lon=2.29", "/nearest"])
def test_a_page_is_computed_once_and_then_comes_from_the_cache(client, path):
    assert [served(client.get(path)) for _ in range(3)] == ["MISS", "HIT", "HIT"]


@pytest.mark.parametrize("query", ["lat=-90.01", "lon=180.5", "lat=x", "lon=", "lat=nan", "lon=inf"])
def test_a_point_that_is_none_is_a_bad_request_that_says_what_is_taken(client, query):
    response = client.get(f"/nearest?{query}")
    assert response.status_code == 400
    assert re.search(r"(lat|lon) must be a number of degrees from -(90 to 90|180 to 180)", response.text)


def test_emptying_the_cache_has_everything_computed_anew(client):
    paths = ["/", "/country/FR", "/nearest"]
    assert [served(client.get(path)) for path in paths * 2] == ["MISS"] * 3 + ["HIT"] * 3
    assert client.get("/cache/empty").status_code == 405
    assert client.post("/cache/empty").location == "/"
    assert [served(client.get(path)) for path in paths] == ["MISS"] * 3


def test_the_figures_of_the_cache_are_for_this_machine(client):
    path = re.search(r'href="([^"]+)">The cache', client.get("/").text)[1]
    assert client.get(path).status_code == 200
    assert client.get(f"{path}figures.json").json["caches"][0]["name"] == "flask_atlas"
    stranger = {"REMOTE_ADDR": "192.0.2.1"}
    for each in (path, f"{path}figures.json"):
        assert client.get(each, environ_overrides=stranger).status_code == 403
    assert client.post(f"{path}clear", environ_overrides=stranger).status_code == 403


@pytest.mark.parametrize("there_is", ["none", "an empty one"])
def test_without_a_database_or_with_an_empty_one_every_page_says_what_to_run(make_app, database, tmp_path, there_is):
    path = tmp_path / "atlas.sqlite3"
    if there_is == "an empty one":
        shutil.copy(database, path)
        with closing(sqlite3.connect(path)) as connection:
            for table in ("city", "country"):
                connection.execute(f"DELETE FROM atlas_{table}")
            connection.commit()
    client = make_app(path).test_client()
    for page in ("/", "/country/FR", "/nearest") * 2:
        response = client.get(page)
        assert response.status_code == 503 or (there_is == "an empty one" and page == "/country/FR")
        assert response.status_code == 404 or "import_cities" in response.text
    assert path.exists() == (there_is == "an empty one")


def test_flasks_own_command_serves_it(database):
    """As in ``make run-flask``, on another port."""
    command = [sys.executable, "-m", "flask", "--app", "example_project/flask_atlas", "run", "--port", "{port}"]
    # As if tests ran in parallel: with entries of its own, not those of the last run.
    environment = {**os.environ, "ATLAS_DATABASE": str(database), "PYTEST_XDIST_WORKER": "gw0"}
    with serving(command, cwd=EXAMPLE_PROJECT.parent, env=environment) as port:
        url = f"http://127.0.0.1:{port}/country/FR"
        assert [served(httpx.get(url, trust_env=False, timeout=PATIENCE)) for _ in range(2)] == ["MISS", "HIT"]
