"""The folders of caches: one for each site and alias, one for each process that runs tests."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import scripts
from wheelcache.errors import FileUnusable
from wheelcache.host_cache.place import Place, folder_of, is_test_process

IN_TESTS = """
    import os, sys
    from pathlib import Path
    from tests.host_cache.workers import HostedCache
    from wheelcache.host_cache.place import Place, folder_of

    folder = folder_of("", "site", is_test=True)
    cache = HostedCache(lambda: Place(folder_of("", "site", is_test=True)), 1 << 20, log_interval=None)
    cache.set("key", 1)
    if os.fork() == 0:
        # A child shares the folder, and does not remove it.
        assert cache.get("key") == 1
        sys.exit()
    os.wait()
    assert folder.exists() and cache.get("key") == 1
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def in_tests():
    """Run a process that runs tests. Yield it and its folder."""
    with scripts.start(IN_TESTS) as process:
        yield process, Path(process.stdout.readline().strip())
        process.stdin.close()
        process.wait(60)


def test_the_folder_of_a_test_process_is_removed_at_its_end():
    with in_tests() as (process, folder):
        assert folder.exists()
        process.stdin.close()
        assert process.wait(60) == 0
        assert not folder.exists()


def test_a_later_test_process_removes_the_folder_of_a_killed_one_and_no_other():
    with in_tests() as (killed, old), in_tests() as (_, alive):
        assert old != alive
        killed.kill()
        killed.wait(60)
        assert old.exists()
        # Older than a folder that is being made.
        for folder in (old, alive):
            os.utime(folder, (0, 0))
        with in_tests():
            assert not old.exists()
            assert alive.exists()


def test_two_sites_and_two_aliases_have_different_folders(runtime_parent):
    folders = {folder_of("", identity) for identity in ("site default", "site other", "another site default")}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {runtime_parent}
    assert folder_of("", "site default") in folders


def test_an_absolute_path_is_the_folder(tmp_path):
    assert folder_of(str(tmp_path / "cache"), "site") == tmp_path / "cache"


def test_each_worker_of_pytest_xdist_runs_tests(monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert not is_test_process(is_testing=False)
    assert is_test_process(is_testing=True)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert is_test_process(is_testing=False)


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_can_read_is_refused(tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(FileUnusable, match="accessible to its owner only"):
        Place(tmp_path / "cache")


def test_a_missing_parent_of_the_folder_is_an_error_with_its_path(tmp_path):
    with pytest.raises(FileUnusable, match="missing/cache"):
        Place(tmp_path / "missing" / "cache")
