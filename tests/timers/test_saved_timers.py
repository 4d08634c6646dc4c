"""Pending timers survive a restart. Overdue timers fire immediately, in order."""

import logging
import os
import pickle
import threading
import time
from math import inf, nan

import pytest

from tests.full_disk import room_for
from wheelcache.runtime.worker_pool import WorkerPool
from wheelcache.timers.saved_timers import save_timers


@pytest.fixture
def path(tmp_path):
    """Return the path of a file of timers, in an otherwise empty directory."""
    return tmp_path / "timers"


@pytest.fixture
def wall(monkeypatch):
    """A fake of ``time.time``, which returns ``now``."""

    class Wall:
        now = 1_000_000.0

    monkeypatch.setattr(time, "time", lambda: Wall.now)
    return Wall


@pytest.fixture
def warnings(caplog):
    """Return the messages that were logged as a warning or worse."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def save(make, path):
    """Save timers, given as {key: (value, delay)}."""

    def save_file(timers, **options):
        saving = make()
        for key, (value, delay) in timers.items():
            saving.set_timer(key, value, delay)
        assert saving.save(path, **options) == len(saving) == len(timers), "they stay pending"

    return save_file


class TestTimes:
    @pytest.mark.parametrize("moved", [50, -5000], ids=["ahead", "set back"])
    def test_what_is_saved_is_set_again_with_the_time_that_is_left(self, save, timers, fired, path, wall, moved):
        save({"b": ([2], 200), "a": (1, 100)}, secret="a secret")
        wall.now += moved
        left = 100 - max(0, moved)
        assert timers.load(path, secret="a secret") == len(timers) == 2
        timers.clock.advance(left - 0.5)
        assert fired.calls == []
        timers.clock.advance(1)
        assert fired.wait(1) == [("a", 1)]
        timers.clock.advance(100)
        assert fired.wait(2) == [("a", 1), ("b", [2])]

    def test_what_is_due_fires_immediately_and_in_order(self, save, timers, fired, path, wall, monkeypatch):
        save({**{number: (1, number) for number in range(50, 0, -1)}, "later": (1, 60.5), 25: (1, 7.5)})
        wall.now += 60
        submitted = []
        monkeypatch.setattr(WorkerPool, "submit", lambda pool, job, context: submitted.append(job))
        assert timers.load(path) == 51
        for job in submitted:
            job()
        assert [key for key, _ in fired.calls] == [*range(1, 8), 25, *range(8, 25), *range(26, 51)]
        assert len(timers) == 1

    def test_a_key_that_has_a_timer_keeps_it_also_if_the_saved_one_is_due(self, save, timers, fired, path, wall):
        save({"a": ("saved", 10), "b": ("saved", 20)})
        wall.now += 15
        timers.set_timer("a", "here", 5)
        assert timers.load(path) == 1
        timers.clock.advance(6)
        assert sorted(fired.wait(2)) == [("a", "here"), ("b", "saved")]


class TestWriting:
    def test_what_cannot_be_pickled_is_an_error_with_its_key_and_the_old_file_stays(self, save, timers, path):
        save({"good": (1, 10)})
        with pytest.raises(TypeError, match=r"the timer of \('bad', 1\) cannot be pickled"):
            save({("bad", 1): (threading.Lock(), 5)})
        assert list(path.parent.iterdir()) == [path]
        assert timers.load(path) == 1

    def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(self, save, path):
        save({"a": (1, 10)})
        before = path.read_bytes()
        with room_for(50_000), pytest.raises(OSError, match="File too large"):
            save({"b": ("x" * 100_000, 10)})
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_the_content_is_on_the_disk_before_it_replaces_the_old_file(self, save, monkeypatch):
        done = []
        for name in ("fsync", "replace"):
            call = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *given, name=name, call=call: (done.append(name), call(*given)))
        save({})
        assert done == ["fsync", "replace"]

    def test_only_the_user_can_read_the_file_whatever_the_umask(self, save, path):
        before = os.umask(0)
        try:
            save({})
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o600


def changed(path):
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "changed": (changed, "is damaged, or was saved with another secret"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-60]), "is damaged, or was saved with another secret"),
    "of another make": (lambda path: path.write_bytes(b"?" * 500), "is not a file of timers that this version of"),
    "writable for others": (
        lambda path: path.chmod(0o622),
        "must be accessible to its owner only, but its mode is 622",
    ),
}


class TestReading:
    def test_a_missing_file_is_no_error(self, timers, path, warnings):
        assert (timers.load(path), warnings()) == (0, [])

    @pytest.mark.parametrize(
        "record", [("a", 1), ("a", 1, "soon"), ("a", 1, nan), ("a", 1, inf), (["a"], 1, 1.0), (None, 1, 1.0)]
    )
    def test_timers_that_cannot_be_read_are_logged_and_left_out(self, timers, fired, path, record, warnings):
        save_timers(path, [record, ("good", 1, 10.0)], saved_at=time.time(), secret=None)
        assert timers.load(path) == len(timers) == len(warnings()) == 1
        timers.clock.advance(1_000_000)
        assert fired.wait(1) == [("good", 1)]
        assert timers.lag == 0

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_file_that_is_not_whole_or_not_private_is_set_aside_with_the_reason(
        self, save, timers, path, warnings, damage
    ):
        change, reason = DAMAGES[damage]
        save({"a": ("x" * 100, 10)})
        change(path)
        assert timers.load(path) == 0
        (warning,) = warnings()
        assert f"A file of timers is not loaded by <Timers every 1.0 s>: {path} {reason}" in warning
        assert warning.endswith(f"; it is kept as {path}.refused.")
        assert [each.name for each in path.parent.iterdir()] == ["timers.refused"]

    @pytest.mark.parametrize("make_path", [os.mkfifo, lambda path: path.symlink_to("elsewhere")], ids=["pipe", "link"])
    def test_a_path_that_is_no_file_is_not_loaded_and_stays(self, timers, path, warnings, make_path):
        make_path(path)
        assert timers.load(path) == 0
        assert [each.name for each in path.parent.iterdir()] == ["timers"]
        assert len(warnings()) == 1

    @pytest.mark.parametrize(
        ("saved", "asked"),
        [("s3cret", None), ("s3cret", "s3cret\0"), ("s3cret", b"s3cret\0\0"), ("s3cret", b"S3cret"), (None, b"\0")],
    )
    def test_nothing_is_unpickled_unless_the_secret_is_that_of_the_file(
        self, save, timers, path, monkeypatch, saved, asked
    ):
        save({"a": (1, 10)}, secret=saved)
        monkeypatch.setattr(pickle, "loads", lambda content: pytest.fail("it was unpickled"))
        assert timers.load(path, secret=asked) == 0
        assert path.with_name("timers.refused").exists()
