"""Where there is no room for the board's file."""

import resource
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import pytest

from wheelcache.coherence.shared_stamps import HEADER_BYTES, SharedStamps
from wheelcache.errors import FileUnusable

SLOTS = 1024


@contextmanager
def room_for(size):
    """No file of this process can be larger, as on a full disk. Python ignores the signal that comes with the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, HEADER_BYTES, 10_000], ids=["nothing", "the header", "a part"])
def test_no_room_leaves_no_file(tmp_path, size):
    with room_for(size), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps("test", tmp_path, SLOTS)
    assert list(tmp_path.iterdir()) == []
    SharedStamps("test", tmp_path, SLOTS)


def test_what_a_killed_process_left_is_removed_if_there_is_no_room_for_the_rest(tmp_path):
    SharedStamps("test", tmp_path, SLOTS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:10_000])
    with room_for(10_000), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps("test", tmp_path, SLOTS)
    assert list(tmp_path.iterdir()) == []


def test_a_whole_board_is_left_alone_where_there_is_no_room(tmp_path):
    one = SharedStamps("test", tmp_path, SLOTS)
    with room_for(0), pytest.raises(FileUnusable, match="cannot be made"):
        SharedStamps("test", tmp_path, SLOTS)
    other = SharedStamps("test", tmp_path, SLOTS)
    assert one.write(3) == other.stamps[3]


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
