"""The directory that the processes of a user share, where another user has taken its name."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.engine.boards import BOARD_CHECK, QUIET, share
from wheelcache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.errors import FileUnusable
from wheelcache.observability.figures_directory import FiguresDirectory, directory_of
from wheelcache.runtime import private_files
from wheelcache.runtime.private_files import runtime_directory

NOBODY = 65534


def take(path):
    """As another user would: make what is not there. Only root can; for others it looks so."""
    path.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        return
    lstat = os.lstat

    def of_another(found_path, *args, **kwargs):
        found = lstat(found_path, *args, **kwargs)
        if os.fspath(found_path) != os.fspath(path):
            return found
        return os.stat_result([NOBODY if index == stat.ST_UID else item for index, item in enumerate(found[:10])])

    os.lstat = of_another


@pytest.fixture
def preferred(monkeypatch, tmp_path):
    """The directory's usual name, in a place that all users may write to."""
    monkeypatch.setattr(os, "lstat", os.lstat)
    monkeypatch.setattr(os, "access", lambda *args: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    return tmp_path / f"wheelcache-{os.geteuid()}"


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "wheelcache"]


def test_a_directory_of_another_user_is_replaced_by_a_private_one_with_one_warning(preferred, caplog):
    take(preferred)
    assert share(SharedStamps("test"), SharedStamps("test"))
    directory = runtime_directory()
    assert directory.parent == preferred.parent
    assert directory != preferred
    found = directory.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
    assert warnings(caplog) == [f"{preferred} belongs to the user {NOBODY}: {directory} is used in its place."]
    assert list(preferred.iterdir()) == []


def test_what_another_user_has_put_beside_it_is_not_used(preferred):
    take(preferred)
    take(preferred.with_name(f"{preferred.name}.0"))
    preferred.with_name(f"{preferred.name}.1").touch(mode=0o600)
    preferred.with_name(f"{preferred.name}.2").mkdir(mode=0o700)
    preferred.with_name(f"{preferred.name}.2").chmod(0o770)
    preferred.with_name(f"{preferred.name}.3").symlink_to(preferred.parent)
    if os.geteuid() != 0:
        shutil.rmtree(preferred.with_name(f"{preferred.name}.0"))
    assert runtime_directory().name not in {f"{preferred.name}.{number}" for number in range(4)}
    assert runtime_directory() == runtime_directory()


def test_when_the_other_user_has_left_later_processes_find_those_that_run(preferred):
    take(preferred)
    one = SharedStamps("test")
    preferred.rmdir()
    assert share(one, SharedStamps("test"))
    assert not one.is_gone()


def test_a_directory_of_this_user_is_never_left_for_another_one(preferred):
    directory = runtime_directory()
    assert directory == preferred
    preferred.with_name(f"{preferred.name}.0").mkdir(mode=0o700)
    assert runtime_directory() == preferred


def test_a_directory_of_this_user_that_others_may_use_is_an_error_as_ever(preferred):
    preferred.mkdir()
    preferred.chmod(0o770)
    with pytest.raises(FileUnusable, match=f"{preferred} must be for its owner only, not have the mode 770"):
        runtime_directory()


def test_a_process_from_before_the_name_was_taken_meets_those_that_start_later(preferred, clock, caplog):
    """systemd removed the directory at the user's logout, and then another user made it."""

    def process():
        return Cache(stamps=SharedStamps("test"), clock=clock, jitter=0, **QUIET)

    before = process()
    before.get("k")
    before.set("k", "old")
    shutil.rmtree(preferred)
    take(preferred)
    after = process()
    clock.advance(BOARD_CHECK)
    assert before.get("other") is None
    after.set("k", "new")
    assert before.get("k") is None
    before.delete("k")
    assert after.get("k") is None


def test_a_process_from_before_the_name_was_taken_meets_them_also_if_it_may_not_look_into_it(preferred, monkeypatch):
    before = SharedStamps("test")
    shutil.rmtree(preferred)
    take(preferred)
    look = os.stat

    def denied(path, *args, **kwargs):
        if os.fspath(path).startswith(f"{preferred}{os.sep}"):
            raise PermissionError
        return look(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", denied)
        assert before.is_gone()
    before.open()
    assert share(before, SharedStamps("test"))


def test_processes_that_were_kept_from_choosing_together_meet(preferred):
    take(preferred)
    later = preferred.with_name(f"{preferred.name}.b")
    later.mkdir(mode=0o700)
    one = SharedStamps("test")
    preferred.with_name(f"{preferred.name}.a").mkdir(mode=0o700)
    assert one.is_gone()
    one.open()
    assert not one.is_gone()
    assert share(one, SharedStamps("test"))


def test_a_lock_of_the_place_that_another_user_holds_delays_no_process_for_long(preferred, monkeypatch):
    take(preferred)
    monkeypatch.setattr(private_files, "FALLBACK_PATIENCE", 0.05)
    held = os.open(preferred.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        directory = runtime_directory()
    finally:
        os.close(held)
    assert runtime_directory() == directory


def test_figures_are_published_and_found_where_the_name_was_taken(preferred):
    take(preferred)
    directory = directory_of("site")
    assert directory is not None
    assert directory == directory_of("site")
    figures = FiguresDirectory(directory)
    shutil.rmtree(directory.parent)
    figures.make_again()
    assert figures.read() == []
    assert directory == directory_of("site")


def test_a_name_that_is_taken_at_the_very_moment_is_left_as_well(preferred, monkeypatch):
    mkdir = Path.mkdir

    def taken_first(path, *args, **kwargs):
        if path == preferred and not path.exists():
            with monkeypatch.context() as patched:
                patched.setattr(Path, "mkdir", mkdir)
                take(preferred)
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", taken_first)
    assert runtime_directory() == runtime_directory() != preferred


def test_processes_that_start_at_once_choose_the_same(preferred):
    take(preferred)
    script = """
    import os, stat, sys, tempfile

    sys.stdin.readline()
    preferred, tempfile.tempdir = sys.argv[1], os.path.dirname(sys.argv[1])
    os.access = lambda *args: False
    lstat = os.lstat
    os.lstat = lambda path: (
        os.stat_result([65534 if index == stat.ST_UID else item for index, item in enumerate(lstat(path)[:10])])
        if os.fspath(path) == preferred
        else lstat(path)
    )
    from wheelcache.runtime.private_files import runtime_directory

    print("ready", flush=True)
    sys.stdin.readline()
    print(runtime_directory(), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(preferred)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(6)]
    try:
        for process in processes:
            process.stdin.write("import\n")
            process.stdin.flush()
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 6
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        chosen = {process.communicate(timeout=60)[0] for process in processes}
    finally:
        for process in processes:
            process.kill()
    assert len(chosen) == 1
    assert len(list(preferred.parent.glob(f"{preferred.name}.*"))) == 1
