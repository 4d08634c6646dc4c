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
    """A fake of ``time.time``, which returns ``now``."""

    class Wall:
        now = 1_000_000.0

    monkeypatch.setattr(time, "time", lambda: Wall.now)
    return Wall


@pytest.fixture
def warnings(caplog):
    """Return the messages that were logged as a warning or worse."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def open_folder():
    """Return a directory that any user can reach, unlike those of pytest."""
    folder = tempfile.mkdtemp()
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path):
    """Return the path of a snapshot, in an otherwise empty directory."""
    return tmp_path / "a.snapshot"


@pytest.fixture
def folder(tmp_path):
    """Return the path of a directory of snapshots."""
    return tmp_path / "kept"
