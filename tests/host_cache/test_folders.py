"""The folders of host caches, and the bounds that a file has."""

import subprocess
import sys

import pytest

from tests.host_cache.test_operators import SIZE
from wheelcache import ManualClock
from wheelcache.host_cache import place
from wheelcache.host_cache.hosted_cache import HostedCache
from wheelcache.host_cache.place import Place, folder_of
from wheelcache.host_cache.place import test_process as process_name
from wheelcache.runtime import private_files


def make(folder, size=SIZE, **options):
    given = {"name": "shared", "clock": ManualClock(), **options}
    return HostedCache(lambda: Place(folder), size, **given)


def test_the_folders_of_ended_test_processes_are_removed_and_those_of_others_stay(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    of_ended, of_site = tmp_path / f"cache-tests-0-{ended.pid}", tmp_path / "cache"
    own, next_own = (folder_of(str(of_site), "", process_name(is_testing=True, number=number)) for number in (1, 2))
    for folder in (of_ended, of_site, own):
        folder.mkdir(mode=0o700)
        make(folder).set("k", 1)
    assert folder_of(str(of_site), "", process_name(is_testing=True, number=2)) == next_own
    assert {*tmp_path.iterdir()} == {of_site, own}


@pytest.mark.parametrize("name", ["cache-tests-data", "cache-tests-4194305", "cache-tests-0-4194305"])
def test_a_folder_of_the_site_with_a_similar_name_stays(tmp_path, name):
    (tmp_path / name / "data").mkdir(parents=True)
    folder_of(str(tmp_path / "cache"), "", process_name(is_testing=True, number=0))
    assert (tmp_path / name / "data").is_dir()


def test_without_shared_memory_the_folder_is_in_that_of_temporary_files(runtime_parent, monkeypatch):
    monkeypatch.setattr(place, "runtime_directory", private_files.runtime_directory)
    folder = folder_of("", "shop")
    assert folder.parent == runtime_parent
    make(folder).set("k", 1)
    assert make(folder).get("k") == 1


@pytest.mark.parametrize(
    ("before", "after"), [((SIZE, 5), (4 * SIZE, 50)), ((4 * SIZE, 50), (SIZE, 5))], ids=["more", "less"]
)
def test_an_existing_file_gets_the_bounds_of_a_new_release(tmp_path, before, after):
    folder = tmp_path / "cache"
    old = make(folder, before[0], max_entries=before[1])
    old.set("k", 1)
    clock = ManualClock()
    new = make(folder, after[0], max_entries=after[1], clock=clock)
    new.set("other", 1)
    clock.advance(2)
    for number in range(100):
        new.set(f"{number}", "x")
    assert len(new) == after[1]
