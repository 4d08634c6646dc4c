"""The database of the example, which takes seconds to fill: once for all processes that run tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

MANAGE = Path(__file__).resolve().parents[2] / "example_project" / "manage.py"


@pytest.fixture(scope="session")
def filled_database(tmp_path_factory):
    """A database with all cities, to be copied."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    database = folder / "filled.sqlite3"
    with (folder / "filling.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            filling = database.with_suffix(".filling")
            for command in (["migrate", "--verbosity", "0"], ["import_cities"]):
                subprocess.run(
                    [sys.executable, MANAGE, *command],
                    env={**os.environ, "ATLAS_DATABASE": str(filling)},
                    capture_output=True,
                    check=True,
                )
            filling.rename(database)
    return database


def served(response):
    """Return whether a page was a hit, which it says in three places."""
    assert response.status_code == 200
    assert float(response.headers["X-Duration-ms"]) > 0
    assert "<!-- served -->" not in response.text
    outcome = response.headers["X-Cache"]
    assert {"HIT": "from the cache</span> in <b>", "MISS": "computed</span> "}[outcome] in response.text
    return outcome
