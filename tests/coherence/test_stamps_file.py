"""The file of stamps: its permissions, its contents, and the slots of keys."""

import fcntl
import math
import os
import random
import stat
import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest

from tests.coherence.processes import NAME, are_shared
from tests.full_disk import room_for
from tests.memory import descriptors
from tests.waiting import PATIENCE, until
from wheelcache.coherence.shared_stamps import HEADER, MAGIC, SLOTS, SharedStamps
from wheelcache.errors import FileUnusable
from wheelcache.runtime import private_files

SIZE = (4 << 19) + (128 << 10) + 64
"""The size of the file in bytes: a header, four words for each of 65,536 slots, and the marks of commits."""


def start(script, *args, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_file_is_its_owners_only_and_complete_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        SharedStamps(NAME, tmp_path)
    finally:
        os.umask(before)
    (file,) = tmp_path.iterdir()
    found = file.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_size) == (0o600, os.geteuid(), SIZE)
    # All blocks are allocated: no write to the map can fail.
    assert found.st_blocks * 512 >= found.st_size


def test_names_of_any_length_and_letters_have_files_of_their_own_in_the_directory(tmp_path):
    names = ["", "a", "../../etc/passwd", "x" * 5000, "\0", "naïve\n", "A"]
    for name in names:
        SharedStamps(name, tmp_path, 8)
    assert len(list(tmp_path.iterdir())) == len(names)


@pytest.mark.alone
def test_no_descriptor_stays_open_but_that_of_the_map(map_stamps, tmp_path):
    stamps = map_stamps()
    for _ in range(20):
        stamps.open()
    assert len(descriptors(f"{tmp_path}/")) == 1


# Refused files.


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (Path.mkdir, "must be a file|cannot be opened"),
        (os.mkfifo, "must be a file|cannot be opened"),
        (lambda path: (path.touch(), path.chmod(0o640)), "must be accessible to its owner only, but its mode is 640"),
        (lambda path: (path.touch(), path.chmod(0o602)), "must be accessible to its owner only, but its mode is 602"),
        (lambda path: path.symlink_to(__file__), "cannot be opened"),
    ],
)
def test_what_is_no_private_file_is_refused(stamps_file, map_stamps, replace, message):
    itself = Path(__file__).read_bytes()
    stamps_file.unlink()
    replace(stamps_file)
    with pytest.raises(FileUnusable, match=message):
        map_stamps()
    assert Path(__file__).read_bytes() == itself, "what a link leads to is left alone"


def test_a_file_of_another_user_is_refused(stamps_file, map_stamps, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileUnusable, match=f"{stamps_file} must belong to the user {owner + 1}, not to {owner}"):
        map_stamps()


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileUnusable, match="cannot be opened"):
        SharedStamps(NAME, tmp_path / "missing")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: b"x",
        lambda whole: b"\0" * 10_000,
        lambda whole: whole[: HEADER.size - 1],
        lambda whole: whole.replace(MAGIC, MAGIC[:-1] + b"0"),
    ],
    ids=["a byte", "zeros", "most of a header", "another version"],
)
def test_a_file_of_anything_else_is_refused_and_left_alone(stamps_file, map_stamps, spoil):
    content = spoil(stamps_file.read_bytes())
    stamps_file.write_bytes(content)
    with pytest.raises(
        FileUnusable, match=f"{stamps_file} is not a file of stamps of this version of wheelcache; remove"
    ):
        map_stamps()
    assert stamps_file.read_bytes() == content


def test_a_file_with_another_number_of_slots_is_refused(stamps_file, map_stamps):
    map_stamps(8)
    (other,) = {*stamps_file.parent.iterdir()} - {stamps_file}
    stamps_file.write_bytes(other.read_bytes().ljust(SIZE))
    with pytest.raises(FileUnusable, match=f"{stamps_file} has 8 slots instead of {SLOTS}; remove it"):
        map_stamps()


# Other processes at the same time.


@pytest.mark.parametrize("left", [0, HEADER.size, 164])
def test_what_a_process_left_that_was_killed_while_it_made_the_file_is_completed(stamps_file, map_stamps, left):
    stamps_file.write_bytes(stamps_file.read_bytes()[:left])
    one, other = map_stamps(), map_stamps()
    assert stamps_file.stat().st_size == SIZE
    assert are_shared(one, other)


def test_a_lock_held_by_a_stopped_process_is_waited_for_only_so_long(stamps_file, map_stamps, monkeypatch):
    script = """
        import fcntl, os, signal, sys
        file = os.open(sys.argv[1], os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    """
    with start(script, stamps_file) as process:
        try:
            assert process.stdout.readline() == "held\n"
            monkeypatch.setattr(private_files, "LOCK_PATIENCE", 0.05)
            with pytest.raises(FileUnusable, match=f"{stamps_file} has been locked by another process for 0.05 s"):
                map_stamps()
        finally:
            process.kill()
    map_stamps()


@pytest.mark.parametrize("size", [0, 10_000], ids=["nothing", "a part"])
@pytest.mark.parametrize("left", [None, 10_000], ids=["a new file", "what a killed process left"])
def test_no_room_leaves_no_file(tmp_path, map_stamps, size, left):
    if left is not None:
        map_stamps()
        (file,) = tmp_path.iterdir()
        os.truncate(file, left)
    with room_for(size), pytest.raises(FileUnusable, match="cannot be created"):
        map_stamps()
    assert list(tmp_path.iterdir()) == []
    map_stamps()


def test_a_whole_file_is_left_alone_where_there_is_no_room(map_stamps):
    one = map_stamps()
    with room_for(0), pytest.raises(FileUnusable, match="cannot be created"):
        map_stamps()
    assert are_shared(one, map_stamps())


@pytest.mark.alone
def test_a_process_maps_no_file_that_another_one_removed_while_it_waited_for_the_lock(
    stamps_file, map_stamps, in_thread
):
    """The other process found no room for the rest of the file."""
    with stamps_file.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        before = len(descriptors(f"{stamps_file.parent}/"))
        waiting = in_thread(map_stamps)
        assert until(lambda: len(descriptors(f"{stamps_file.parent}/")) > before)
        stamps_file.unlink()
    assert not waiting.result(PATIENCE).is_gone()


def test_stamps_are_gone_when_their_file_was_removed_or_replaced_and_open_anew(stamps_file, map_stamps):
    stamps = map_stamps()
    assert not stamps.is_gone()
    stamps_file.unlink()
    assert stamps.is_gone()
    other = map_stamps()
    assert stamps.is_gone()
    stamps.open()
    assert not stamps.is_gone()
    assert are_shared(stamps, other)


def test_stamps_that_are_out_of_sight_since_the_server_became_another_user_are_not_gone(map_stamps, monkeypatch):
    stamps = map_stamps()

    def denied(path):
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", denied)
        assert not stamps.is_gone()
    assert not stamps.is_gone()


# Slots.


def test_the_slot_of_a_key_is_the_same_in_every_process(tmp_path, map_stamps):
    keys = ["a", "", ":1:user 5", "naïve \N{SNOWMAN}", "\ud800", ("a b",), ("f", 1, None, 2.5, b"x", ("y", True))]
    script = f"""
        import sys
        from pathlib import Path
        from wheelcache.coherence.shared_stamps import SharedStamps
        print([*map(SharedStamps("test", Path(sys.argv[1])).slot, {keys!a})])
    """
    here = f"{[*map(map_stamps().slot, keys)]}\n"
    # There, strings have other hashes.
    with start(script, tmp_path, PYTHONHASHSEED="1") as process:
        assert process.communicate(timeout=250)[0] == here


def test_a_process_that_finds_the_new_stamp_of_a_clear_finds_all_its_invalidation_words(tmp_path, map_stamps):
    """Otherwise, a page that was outdated together with its list of headers would be kept: see ``Misses.fill``."""
    stamps = map_stamps()
    script = f"""
        import sys
        from pathlib import Path
        from wheelcache import Cache
        from wheelcache.coherence.shared_stamps import SharedStamps
        cache = Cache(stamps=SharedStamps({NAME!r}, Path(sys.argv[1])))
        while True:
            cache.clear()
    """
    with start(script, tmp_path) as process:
        try:
            before = stamps.table[0]
            assert until(lambda: stamps.table[0] != before)
            found = set()
            while len(found) < 20:
                newest = stamps.table[0]
                assert stamps.invalidations[-1] >= newest
                found.add(newest)
        finally:
            process.kill()


def test_entries_are_lost_to_writes_of_other_keys_as_often_as_the_docstring_says(map_stamps):
    """Make 100 writes per second to random keys and read entries every 10 seconds; with 1,024 slots for more misses."""
    assert 1 - math.exp(-100 * 10 / 65_536) == pytest.approx(0.015, abs=0.0005)
    choose = random.Random(5)
    for slots, writes_between in ((SLOTS, 1000), (1024, 300)):
        stamps = map_stamps(slots)
        entries = [stamps.slot(f"entry {number}") for number in range(2000)]
        keys, lost, rounds = count(), 0, 10
        for _ in range(rounds):
            written = {stamps.slot(f"{next(keys)} {choose.random()}") for _ in range(writes_between)}
            lost += sum(slot in written for slot in entries)
        expected = 1 - math.exp(-writes_between / slots)
        assert lost / (rounds * len(entries)) == pytest.approx(expected, rel=0.15)
