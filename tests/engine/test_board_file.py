"""The file of an invalidation board: who may use it, what may be in it, where it is, and which slot a key has."""

import math
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.engine.boards import NAME, run, share, start
from tests.waiting import until
from wheelcache.coherence.shared_stamps import MAGIC, SLOTS, SharedStamps
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files
from wheelcache.runtime.private_files import runtime_directory

SIZE = (1 << 20) + 64
"""Bytes of the file: a header, and two words for each of 65,536 slots."""

HEADER = 40
"""Bytes of the header that are in use."""


@pytest.fixture
def board_of(tmp_path):
    """Another process's look at the board of this test."""

    def make(slots=SLOTS):
        return SharedStamps(NAME, tmp_path, slots)

    return make


@pytest.fixture
def path(tmp_path, board_of):
    """The file of the board, which was made."""
    board_of()
    (file,) = tmp_path.iterdir()
    return file


@contextmanager
def room_for(size):
    """No file of this process can be larger, as on a full disk. Python ignores the signal that comes with the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# The file.


def test_the_file_is_its_owners_only_and_a_mebibyte_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        SharedStamps(NAME, tmp_path)
    finally:
        os.umask(before)
    (file,) = tmp_path.iterdir()
    found = file.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_uid == os.geteuid()
    assert found.st_size == SIZE
    # All of it is there: no write to the map can fail.
    assert found.st_blocks * 512 >= found.st_size


def test_names_of_any_length_and_letters_have_files_of_their_own_in_the_directory(tmp_path):
    names = ["", "a", "../../etc/passwd", "x" * 5000, "\0", "naïve\n", "A"]
    for name in names:
        SharedStamps(name, tmp_path, 8)
    assert len(list(tmp_path.iterdir())) == len(names)


def test_a_symbolic_link_is_refused_and_what_it_points_to_is_untouched(path, board_of, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_bytes(b"precious")
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(FileUnusable, match="cannot be opened"):
        board_of()
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused(path, board_of, make):
    path.unlink()
    make(path)
    with pytest.raises(FileUnusable, match=r"must be a file|cannot be opened"):
        board_of()


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o777])
def test_a_file_that_others_may_use_is_refused(path, board_of, mode):
    path.chmod(mode)
    with pytest.raises(FileUnusable, match=f"{path} must be for its owner only, not have the mode {mode:o}"):
        board_of()


def test_a_file_of_another_user_is_refused(path, board_of, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileUnusable, match=f"{path} must belong to the user {owner + 1}, not to {owner}"):
        board_of()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: b"x",
        lambda whole: b"x" * 10_000,
        lambda whole: b"\0" * 10_000,
        lambda whole: whole[: len(MAGIC)],
        lambda whole: whole[: HEADER - 1],
        lambda whole: whole.replace(MAGIC, MAGIC[:-1] + b"0"),
    ],
    ids=["a byte", "garbage", "zeros", "short", "half a header", "another version"],
)
def test_a_file_that_is_no_board_is_refused_and_left_alone(path, board_of, spoil):
    content = spoil(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(FileUnusable, match=f"{path} is no file of stamps of this version of wheelcache; remove it"):
        board_of()
    assert path.read_bytes() == content


def test_a_board_with_another_number_of_slots_is_refused(path, board_of):
    board_of(8)
    (other,) = {*path.parent.iterdir()} - {path}
    path.write_bytes(other.read_bytes().ljust(SIZE))
    with pytest.raises(FileUnusable, match=f"{path} has 8 slots and not {SLOTS}; remove it"):
        board_of()


@pytest.mark.parametrize("left", [0, HEADER, 64, 164])
def test_what_a_process_left_that_was_killed_while_it_made_the_file_is_completed(path, board_of, left):
    path.write_bytes(path.read_bytes()[:left])
    one, other = board_of(), board_of()
    assert path.stat().st_size == SIZE
    assert share(one, other)


@pytest.mark.deep
def test_processes_killed_while_they_open_the_board_harm_nothing(tmp_path, board_of):
    script = """
        print("up", flush=True)
        while True:
            for file in Path(sys.argv[1]).iterdir():
                file.unlink(missing_ok=True)
            Cache(stamps=SharedStamps("test", Path(sys.argv[1]))).clear()
    """
    for _ in range(5):
        process = start(script, tmp_path)
        assert process.stdout.readline() == "up\n"
        assert until(lambda: any(tmp_path.iterdir()))
        process.kill()
        process.communicate(timeout=10)
        assert share(board_of(), board_of())


def test_a_lock_held_by_a_stopped_process_is_waited_for_only_so_long(path, board_of, monkeypatch):
    process = start(
        """
        import fcntl
        file = os.open(sys.argv[1], os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        """,
        path,
    )
    try:
        assert process.stdout.readline() == "held\n"
        monkeypatch.setattr(private_files, "LOCK_PATIENCE", 0.05)
        with pytest.raises(FileUnusable, match=f"{path} has been locked by another process for 0.05 s"):
            board_of()
    finally:
        process.kill()
        process.communicate(timeout=10)
    board_of()


# No room.


@pytest.mark.parametrize("size", [0, 64, 10_000], ids=["nothing", "the header", "a part"])
def test_no_room_leaves_no_file(tmp_path, size):
    with room_for(size), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps(NAME, tmp_path)
    assert list(tmp_path.iterdir()) == []
    SharedStamps(NAME, tmp_path)


def test_what_a_killed_process_left_is_removed_if_there_is_no_room_for_the_rest(tmp_path):
    SharedStamps(NAME, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:10_000])
    with room_for(10_000), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps(NAME, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_whole_board_is_left_alone_where_there_is_no_room(tmp_path):
    one = SharedStamps(NAME, tmp_path)
    with room_for(0), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps(NAME, tmp_path)
    assert share(one, SharedStamps(NAME, tmp_path))


def test_processes_that_open_the_board_while_others_find_no_room_share_one_in_the_end(tmp_path):
    """Some fail and remove the file while others wait for its lock: these must not map a file that was removed."""
    script = """
    import resource, sys
    from pathlib import Path
    from wheelcache.coherence.shared_stamps import SharedStamps
    from wheelcache.errors import FileUnusable

    if sys.argv[2] == "no room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    sys.stdin.readline()
    boards = []
    for _ in range(200):
        try:
            boards = [SharedStamps("test", Path(sys.argv[1]), 1024)]
        except FileUnusable:
            pass
    print(boards[0].is_gone() if boards else "no room", flush=True)
    """

    def start(room):
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), room]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    processes = [start(room) for room in ("room", "room", "no room", "no room")]
    try:
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        outcomes = [process.communicate(timeout=60)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    # Once a board is whole, nothing removes it.
    assert outcomes[:2] == ["False", "False"]


def test_a_truncated_board_kills_what_maps_it_as_the_documentation_says(tmp_path):
    script = """
    import os, sys
    from pathlib import Path
    from wheelcache import Cache
    from wheelcache.coherence.shared_stamps import SharedStamps

    cache = Cache(stamps=SharedStamps("test", Path(sys.argv[1])))
    cache.set("k", 1)
    (file,) = Path(sys.argv[1]).iterdir()
    os.truncate(file, 0)
    cache.get("k")
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], timeout=60)
    assert process.returncode == -signal.SIGBUS


# The directory.


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileUnusable, match="cannot be opened"):
        SharedStamps(NAME, tmp_path / "missing")


def test_no_descriptor_stays_open_but_that_of_the_map(board_of):
    before = len(os.listdir("/proc/self/fd"))
    board = board_of()
    for _ in range(20):
        board.open()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.fixture
def no_shared_memory(monkeypatch, tmp_path):
    """A system without /dev/shm: the directory is where temporary files are."""
    monkeypatch.setattr(os, "access", lambda *args: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wheelcache-{os.geteuid()}"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_the_directory_is_in_memory_and_private():
    directory = runtime_directory()
    assert directory == Path(f"/dev/shm/wheelcache-{os.geteuid()}")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_without_shared_memory_the_directory_is_where_temporary_files_are(no_shared_memory):
    assert runtime_directory() == runtime_directory() == no_shared_memory
    assert stat.S_IMODE(no_shared_memory.stat().st_mode) == 0o700


def test_a_directory_that_others_may_use_is_refused(no_shared_memory):
    no_shared_memory.mkdir()
    no_shared_memory.chmod(0o770)
    with pytest.raises(FileUnusable, match=f"{no_shared_memory} must be for its owner only, not have the mode 770"):
        SharedStamps(NAME)


@pytest.mark.parametrize("target", [None, "missing", "."])
def test_a_file_or_a_link_in_the_place_of_the_directory_is_refused(no_shared_memory, target):
    if target is None:
        no_shared_memory.touch()
    else:
        no_shared_memory.symlink_to(no_shared_memory.parent / target)
    with pytest.raises(FileUnusable, match=f"{no_shared_memory} must be a directory"):
        SharedStamps(NAME)


def test_a_directory_that_cannot_be_made_is_an_error_that_says_why(no_shared_memory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(no_shared_memory / "missing"))
    with pytest.raises(FileUnusable, match=f"{no_shared_memory}.* cannot be made: .*No such file"):
        SharedStamps(NAME)


def test_a_directory_that_was_removed_with_all_in_it_is_made_anew(no_shared_memory):
    board = SharedStamps(NAME)
    for file in no_shared_memory.iterdir():
        file.unlink()
    no_shared_memory.rmdir()
    assert board.is_gone()
    board.open()
    assert not board.is_gone()
    assert share(board, SharedStamps(NAME))


def test_a_board_that_is_out_of_sight_since_the_server_became_another_user_is_not_gone(board_of, monkeypatch):
    board = board_of()

    def denied(path):
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", denied)
        assert not board.is_gone()
    assert not board.is_gone()


def test_a_board_is_gone_when_its_file_was_removed_or_replaced_and_opens_anew(path, board_of):
    board = board_of()
    assert not board.is_gone()
    path.unlink()
    assert board.is_gone()
    other = board_of()
    assert board.is_gone()
    board.open()
    assert not board.is_gone()
    assert share(board, other)


# Slots.


def test_the_slot_of_a_key_is_the_same_in_every_process(tmp_path, board_of):
    keys = ["a", "", ":1:user 5", "naïve \N{SNOWMAN}", "\ud800", ("a b",), ("f", 1, None, 2.5, b"x", ("y", True))]
    script = f"""
        board = SharedStamps("test", Path(sys.argv[1]))
        print(*map(board.slot, {keys!a}))
    """
    here = [str(board_of().slot(key)) for key in keys]
    assert run(script, tmp_path, PYTHONHASHSEED="1") == run(script, tmp_path, PYTHONHASHSEED="2") == here


def test_keys_are_spread_evenly_over_the_slots(board_of):
    board = board_of(256)
    hits = Counter(board.slot(f":1:user:{number}:profile") for number in range(256 * 100))
    # Chi-squared with 255 degrees of freedom: at random, 255 give or take 23. A CRC does better.
    assert sum((hits[slot] - 100) ** 2 / 100 for slot in range(256)) < 330


def test_entries_are_lost_to_writes_of_other_keys_as_often_as_the_docstring_says(board_of):
    """100 writes a second to keys at random, entries read every 10 seconds; and, for more of them, on 1,024 slots."""
    assert 1 - math.exp(-100 * 10 / 65_536) == pytest.approx(0.015, abs=0.0005)
    choose = random.Random(5)
    for slots, writes_between in ((SLOTS, 1000), (1024, 300)):
        board = board_of(slots)
        entries = [board.slot(f"entry {number}") for number in range(2000)]
        keys, lost, rounds = count(), 0, 10
        for _ in range(rounds):
            written = {board.slot(f"{next(keys)} {choose.random()}") for _ in range(writes_between)}
            lost += sum(slot in written for slot in entries)
        expected = 1 - math.exp(-writes_between / slots)
        assert lost / (rounds * len(entries)) == pytest.approx(expected, rel=0.15)
