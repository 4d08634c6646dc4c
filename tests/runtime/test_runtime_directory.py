"""The private directory that the processes of a user share, also if another user has taken its name."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.memory import descriptors
from tests.runtime.forks import fork
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files
from wheelcache.runtime.private_files import FileLocked, locked_file, runtime_directory

ANOTHER_USER = os.geteuid() + 1


@pytest.fixture
def preferred(monkeypatch, runtime_parent):
    """The directory's usual name, in a place that all users may write to."""
    monkeypatch.setattr(os, "lstat", os.lstat)
    runtime_parent.parent.chmod(0o1777)
    return runtime_parent


def take(path):
    """Create ``path`` as another user. Only root can do that; otherwise, it is simulated."""
    path.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
        return
    lstat = os.lstat

    def of_another(found_path, *args, **kwargs):
        found = lstat(found_path, *args, **kwargs)
        if os.fspath(found_path) != os.fspath(path):
            return found
        owned = [ANOTHER_USER if index == stat.ST_UID else item for index, item in enumerate(found[:10])]
        return os.stat_result(owned)

    os.lstat = of_another


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


# Its name is free.


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_the_directory_is_in_memory_and_private():
    directory = runtime_directory()
    assert directory == Path(f"/dev/shm/wheelcache-{os.geteuid()}")
    assert mode_of(directory) == 0o700


def test_without_shared_memory_the_directory_is_where_temporary_files_are(preferred):
    assert runtime_directory() == runtime_directory() == preferred
    assert mode_of(preferred) == 0o700


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: (path.mkdir(), path.chmod(0o770)), "must be accessible to its owner only, but its mode is 770"),
        (Path.touch, "must be a directory"),
        (lambda path: path.symlink_to(path.parent), "must be a directory"),
        (lambda path: path.symlink_to(path.parent / "missing"), "must be a directory"),
        (lambda path: path.parent.rmdir(), "cannot be created: .*No such file"),
    ],
    ids=["mode", "file", "link", "dead link", "no parent"],
)
def test_a_directory_of_this_user_that_others_may_use_is_refused(preferred, prepare, message):
    prepare(preferred)
    with pytest.raises(FileUnusable, match=f"{preferred}.* {message}"):
        runtime_directory()


# Another user has taken its name.


def test_a_directory_of_another_user_is_replaced_by_a_private_one_with_one_warning(preferred, caplog):
    take(preferred)
    directory = runtime_directory()
    assert directory.parent == preferred.parent
    assert directory != preferred
    assert (mode_of(directory), directory.stat().st_uid) == (0o700, os.geteuid())
    assert [record.getMessage() for record in caplog.records if record.name == "wheelcache"] == [
        f"{preferred} belongs to the user {ANOTHER_USER}; using {directory} instead."
    ]
    assert list(preferred.iterdir()) == []
    # When the other user has left, later processes find those that run.
    preferred.rmdir()
    assert runtime_directory() == directory


def test_what_another_user_has_put_beside_it_is_not_used(preferred):
    take(preferred)
    beside = [preferred.with_name(f"{preferred.name}.{number}") for number in range(4)]
    take(beside[0])
    beside[1].touch(mode=0o600)
    beside[2].mkdir(mode=0o700)
    beside[2].chmod(0o770)
    beside[3].symlink_to(preferred.parent)
    if os.geteuid() != 0:
        shutil.rmtree(beside[0])
    assert runtime_directory() not in beside
    assert runtime_directory() == runtime_directory()


# Locked files.


def test_a_locked_file_is_private_and_waits_for_others_as_long_as_it_is_told(tmp_path, monkeypatch):
    path = tmp_path / "file"
    with locked_file(path):
        assert mode_of(path) == 0o600
        assert {*descriptors(str(path))} <= private_files.not_for_children
        for options in ({"patience": 0.0}, {"patience": 0.02, "shared": True}):
            with (
                pytest.raises(FileLocked, match="has been locked by another process for 0"),
                locked_file(path, **options),
            ):
                pass
        monkeypatch.setattr(private_files, "LOCK_PATIENCE", 0.01)
        with pytest.raises(FileLocked, match=r"for 0\.01 s"), locked_file(path):
            pass
    with locked_file(path, shared=True), locked_file(path, 0.0, shared=True):
        pass
    assert descriptors(str(path)) == {}


@pytest.mark.parametrize("wrong", ["mode", "link", "folder"])
def test_a_file_that_others_may_use_a_link_and_a_folder_are_not_locked(tmp_path, wrong):
    path = tmp_path / "file"
    if wrong == "folder":
        path.mkdir()
    elif wrong == "link":
        path.symlink_to(tmp_path / "other")
    else:
        path.touch()
        path.chmod(0o640)
    with pytest.raises(FileUnusable, match=str(path)), locked_file(path):
        pass
    assert not (tmp_path / "other").exists()


def test_the_child_of_a_fork_does_not_hold_a_lock(tmp_path):
    def child():
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)

    with locked_file(tmp_path / "file") as file:
        assert fork(child)
        assert os.fstat(file)
