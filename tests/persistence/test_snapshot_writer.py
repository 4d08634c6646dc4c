"""The files that a snapshot writer leaves if it succeeds, fails or is killed, and refused files."""

import errno
import fcntl
import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from tests.full_disk import room_for
from tests.persistence.snapshot_files import NAME, NEW, OLD, RECORDS, SECRET, read, run, start, umask, write
from tests.waiting import THREADS, until
from wheelcache.persistence import snapshot_file
from wheelcache.persistence.snapshot_file import SnapshotWriter, remove_leftovers, set_aside


@pytest.fixture
def unbuffered(monkeypatch):
    """Write each record immediately."""
    monkeypatch.setattr(snapshot_file, "BUFFER_BYTES", 2)


def is_alone(path, records):
    return read(path) == (records, None) and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mask", [0, 0o277, 0o777], ids=oct)
def test_the_file_is_its_owners_only_whatever_the_umask(path, mask):
    with umask(mask), SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        (temporary,) = path.parent.iterdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == ([b"one"], None)


def test_there_is_nothing_new_until_all_of_it_is_there(path, unbuffered):
    write(path, OLD)
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        for record in NEW:
            writer.write(record)
            assert read(path) == (OLD, None)
    assert is_alone(path, NEW)


# A writer that fails.


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_while_it_is_written_leaves_the_old_one_and_nothing_else(path, error, unbuffered):
    write(path, OLD)

    def new():
        yield b"new"
        raise error

    with pytest.raises(error):
        write(path, new())
    assert is_alone(path, OLD)


@pytest.mark.parametrize("buffer", [2, 1 << 20], ids=["when written to", "when left"])
@pytest.mark.parametrize("size", [0, 200])
def test_a_full_disk_leaves_the_old_one_and_nothing_else(path, size, buffer, monkeypatch):
    monkeypatch.setattr(snapshot_file, "BUFFER_BYTES", buffer)
    write(path, OLD)
    with room_for(size), pytest.raises(OSError, match="File too large"):
        write(path, NEW)
    assert is_alone(path, OLD)


def test_what_could_not_be_written_is_written_once_there_is_room(path, unbuffered):
    """A caller that continues after the error gets no file with a hole in it."""
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        with room_for(150), pytest.raises(OSError, match="File too large"):
            writer.write(b"two" * 100)
        writer.write(b"three")
    assert read(path) == ([b"one", b"two" * 100, b"three"], None)


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_a_device_that_fails_leaves_the_old_one_and_nothing_else(path, name, monkeypatch):
    write(path, OLD)

    def fail(*args, **options):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write(path, NEW)
    assert is_alone(path, OLD)


def test_a_directory_in_its_place_or_none_to_be_in_is_an_error_and_nothing_is_left(path):
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write(path)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write(path / "missing" / NAME)


def test_in_a_directory_that_may_not_be_written_it_is_an_error_and_nothing_changes(open_folder):
    """Run as another user than root, which has the permission."""
    assert run(
        """
        become_nobody(folder)
        write(path, OLD)
        folder.chmod(0o500)
        try:
            write(path, NEW)
        except OSError as error:
            print(error.strerror)
        print(set_aside(path), read(path) == (OLD, None), *os.listdir(folder))
        folder.chmod(0o700)
        """,
        open_folder,
    ) == ["Permission denied", f"None True {NAME}"]


def test_a_writer_killed_at_any_step_leaves_the_old_file_or_the_new_one_and_the_next_writer_cleans_up(tmp_path):
    """Each child is killed one call later than the previous one; a write is cut in the middle."""
    steps = run(
        """
        snapshot_file.BUFFER_BYTES = 256
        real_write = os.write

        def until_killed(at):
            left = at

            def counted(name, function):
                def call(*args, **options):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        if name == "write":
                            real_write(args[0], bytes(args[1])[: len(args[1]) // 2])
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **options)
                return call

            for name in ("listdir", "open", "fchmod", "write", "fsync", "replace", "unlink", "close"):
                setattr(os, name, counted(name, getattr(os, name)))
            fcntl.flock = counted("flock", fcntl.flock)
            write(path, NEW, SECRET)

        for at in count():
            write(path, OLD, SECRET)
            assert os.listdir(folder) == [NAME]
            pid = os.fork()
            if pid == 0:
                until_killed(at)
                os._exit(0)
            end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            records, message = read(path, SECRET)
            state = {tuple(OLD): "old", tuple(NEW): "new"}[tuple(records)]
            print(end, state, message, len(os.listdir(folder)) - 1)
            if end == 0:
                break
        """,
        tmp_path,
    )
    killed, last = [tuple(line.split()) for line in steps[:-1]], steps[-1]
    assert last == "0 new None 0"
    assert {(end, message) for end, _, message, _ in killed} == {("-9", "None")}
    # First the old file, then also a temporary file, then only the new file, and no other state.
    states = [(state, left) for _, state, _, left in killed]
    changes = [states[0], *(new for old, new in pairwise(states) if new != old)]
    assert changes == [("old", "0"), ("old", "1"), ("new", "0")]
    assert len(killed) > 12


# Temporary files, and other writers.


def test_leftovers_of_dead_writers_are_removed_and_nothing_that_only_looks_like_them(path):
    dead = path.with_name(f"{NAME}.{'0' * 16}.tmp")
    others = [f"{NAME}.tmp", f"{NAME}.refused", f"{NAME}.{'g' * 16}.tmp", f"x{dead.name}", f"{dead.name}x"]
    for name in [dead.name, *others, NAME.replace(".", "x") + dead.name[len(NAME) :]]:
        path.with_name(name).touch()
    # These cannot be removed.
    path.with_name(f"{NAME}.{'1' * 16}.tmp").mkdir()
    path.with_name(f"{NAME}.{'2' * 16}.tmp").symlink_to("missing")
    before = set(path.parent.iterdir())
    assert read(write(path)) == (RECORDS, None)
    assert set(path.parent.iterdir()) == before - {dead} | {path}


def test_the_temporary_file_of_a_writer_that_lives_is_left_alone_here_and_in_another_process(path):
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        remove_leftovers(path)
        write(path, OLD)
        assert run("remove_leftovers(path); print(len(os.listdir(folder)))", path.parent) == ["2"]
    assert is_alone(path, [b"one"])


def test_what_a_killed_process_left_is_removed_once_its_children_that_have_its_lock_are_gone(path):
    process = start(
        """
        with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
            if os.fork() == 0:
                print("up", flush=True)
                sys.stdin.read()
                os._exit(0)
            signal.pause()
        """,
        path.parent,
    )
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.wait()
    remove_leftovers(path)
    assert len(list(path.parent.iterdir())) == 1
    process.communicate(timeout=250)
    assert until(lambda: remove_leftovers(path) or not list(path.parent.iterdir()))


def test_a_writer_whose_file_is_taken_for_a_dead_ones_before_it_is_locked_makes_another(path, monkeypatch):
    lock, made = fcntl.flock, []

    def late(file, how):
        """The other writers come first, twice: once they are done, once they are about to remove it."""
        monkeypatch.setattr(fcntl, "flock", lock)
        made.extend(path.parent.iterdir())
        if len(made) == 1:
            remove_leftovers(path)
            monkeypatch.setattr(fcntl, "flock", late)
            return lock(file, how)
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", late)
    write(path, NEW)
    assert len(set(made)) == 2
    assert read(path) == (NEW, None)
    remove_leftovers(path)
    assert list(path.parent.iterdir()) == [path]


def test_many_threads_that_write_the_same_at_once_leave_one_whole_snapshot_and_nothing_else(path, together, unbuffered):
    assert together(lambda number: write(path, [b"%d" % number] * 20, SECRET)) == [path] * THREADS
    records, message = read(path, SECRET)
    assert message is None
    assert len(records) == 20
    assert len(set(records)) == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_child_of_a_fork_cannot_write_or_end_or_remove_what_its_parent_writes(tmp_path):
    refusal = f"{tmp_path / NAME} is being written by a parent of this process; only the parent may write"
    assert run(
        """
        def in_child(work):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)

        writer = SnapshotWriter(path, {"kind": "cache"}, None)
        with writer:
            writer.write(b"one")
            in_child(lambda: writer.__exit__(None, None, None))
            in_child(lambda: writer.__exit__(SystemExit, SystemExit(), None))
            in_child(lambda: writer.write(bytes(2 << 20)))
            print(len(os.listdir(folder)))
            writer.write(b"two")
        print(*read(path), *os.listdir(folder))
        """,
        tmp_path,
    ) == [refusal, refusal, "1", f"[b'one', b'two'] None {NAME}"]


# Set aside.


def test_a_file_that_was_refused_is_kept_and_only_the_last_one(path):
    aside = path.with_name(f"{NAME}.refused")
    for content in (b"first", b"second"):
        path.write_bytes(content)
        assert set_aside(path) == aside
        assert aside.read_bytes() == content
        assert list(path.parent.iterdir()) == [aside]


def test_what_is_no_file_or_cannot_be_set_aside_stays_where_it_is(path):
    assert set_aside(path) is None
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("missing")):
        make(path)
        assert set_aside(path) is None
        assert [each.name for each in path.parent.iterdir()] == [NAME]
        (Path.rmdir if path.is_dir() else Path.unlink)(path)
    path.with_name(f"{NAME}.refused").mkdir()
    assert set_aside(write(path)) is None
    assert read(path) == (RECORDS, None)
