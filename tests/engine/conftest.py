import os
import tempfile

import pytest

from wheelcache import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def runtime_parent(tmp_path, monkeypatch):
    """Where this user's processes have their directory: in a temporary one, as where there is no shared memory."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wheelcache-{os.geteuid()}"
