import logging
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.persistence import calling


@pytest.fixture(autouse=True)
def quiet_values():
    yield
    calling.quiet()


@pytest.fixture
def wall(monkeypatch):
    """Stands in for ``time.time``: its ``now`` is that time."""

    class Wall:
        now = 1_000_000.0

    monkeypatch.setattr(time, "time", lambda: Wall.now)
    return Wall


@pytest.fixture
def warnings(caplog):
    """What was logged so far as a warning or worse."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def open_folder():
    """A directory to which the way is open for any user, which it is not to those of pytest."""
    folder = tempfile.mkdtemp()
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path):
    """The place of a snapshot, in a directory with nothing else."""
    return tmp_path / "a.snapshot"


@pytest.fixture
def folder(tmp_path):
    """The place of a directory of snapshots."""
    return tmp_path / "kept"
