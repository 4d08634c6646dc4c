"""Source distributions are unpacked by every Python that is supported."""

import io
import tarfile

import pytest

from tests.conformance import sources

OLD = tarfile.TarFile.extractall


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A place where pip has put the archive of version 1.0 of the project Example."""
    archives = tmp_path / "archives"
    archives.mkdir()
    with tarfile.open(archives / "Example-1.0.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("Example-1.0/tests/suite.py")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"pass"))
    monkeypatch.setattr(sources, "FETCHED", tmp_path)
    monkeypatch.setattr(sources, "version", lambda project: "1.0")
    monkeypatch.setattr(sources.subprocess, "run", lambda *args, **options: None)
    return tmp_path


def test_a_source_distribution_is_unpacked_once(fetched):
    folder = sources.source_of("Example")
    assert (folder / "tests" / "suite.py").read_text() == "pass"
    (fetched / "archives" / "Example-1.0.tar.gz").unlink()
    assert sources.source_of("Example") == folder


def test_a_source_distribution_is_unpacked_by_a_python_without_filters(fetched, monkeypatch):
    def extractall(self, path):
        OLD(self, path, **({"filter": "data"} if has_filters else {}))

    has_filters = hasattr(tarfile, "data_filter")
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    assert (sources.source_of("Example") / "tests" / "suite.py").read_text() == "pass"
