"""Pending timers survive a restart. Overdue timers fire immediately, in order."""

import logging
import os
import threading
import time
from math import inf, nan

import pytest

from tests.full_disk import room_for
from tests.waiting import until
from wheelcache import ManualClock
from wheelcache.runtime.worker_pool import WorkerPool
from wheelcache.timers import Timers
from wheelcache.timers.saved_timers import save_timers


class Calling:
    """A value that calls a function when it is unpickled."""

    loading = staticmethod(lambda: None)

    def __reduce__(self):
        return made, ()


def made():
    Calling.loading()
    return "called"


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


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
def make():
    made = []

    def one(interval=1, execute=None):
        fired = []
        timers = Timers(interval, execute or (lambda key, value: fired.append((key, value))), clock=ManualClock())
        made.append(timers)
        return timers, fired

    yield one
    for timers in made:
        timers.stop()


@pytest.mark.parametrize("moved", [50, -5000], ids=["ahead", "set back"])
def test_what_is_saved_is_set_again_with_the_time_that_is_left(make, path, wall, moved):
    timers, _ = make()
    timers.set_timer("b", [2], 200)
    timers.set_timer("a", 1, 100)
    assert timers.save(path, secret="a secret") == len(timers) == 2
    wall.now += moved
    left = 100 - max(0, moved)
    other, fired = make()
    assert other.load(path, secret="a secret") == len(other) == 2
    other.clock.advance(left - 1)
    assert fired == []
    other.clock.advance(2)
    assert until(lambda: fired == [("a", 1)])
    other.clock.advance(100)
    assert until(lambda: fired == [("a", 1), ("b", [2])])
    # They stay pending in the saved object.
    assert len(timers) == 2


def test_what_is_due_fires_at_once_and_in_order(make, path, wall, monkeypatch):
    timers, _ = make()
    for number in range(50, 0, -1):
        timers.set_timer(number, "value", number)
    timers.set_timer("later", "value", 1000)
    timers.set_timer(25, "value", 7.5)
    assert timers.save(path) == 51
    wall.now += 60
    submitted = []
    monkeypatch.setattr(WorkerPool, "submit", lambda pool, job, context: submitted.append(job))
    other, fired = make()
    assert other.load(path) == 51
    for job in submitted:
        job()
    assert [key for key, _ in fired] == [1, 2, 3, 4, 5, 6, 7, 25, *(number for number in range(8, 51) if number != 25)]
    assert len(other) == 1


def test_the_time_that_loading_takes_counts(make, path, wall):
    timers, _ = make()
    timers.set_timer("slow", Calling(), 100)
    timers.set_timer("a", 1, 101)
    timers.save(path)
    other, fired = make()
    Calling.loading = staticmethod(lambda: other.clock.advance(60))
    other.load(path)
    other.clock.advance(42)
    assert until(lambda: sorted(fired) == [("a", 1), ("slow", "called")])


def test_a_key_that_has_a_timer_keeps_it(make, path):
    timers, _ = make()
    timers.set_timer("a", "saved", 10)
    timers.set_timer("b", "saved", 10)
    timers.save(path)
    other, fired = make()
    other.set_timer("a", "here", 5)
    assert other.load(path) == 1
    other.clock.advance(11)
    assert until(lambda: sorted(fired) == [("a", "here"), ("b", "saved")])


def test_what_cannot_be_pickled_is_an_error_with_its_key_and_the_old_file_stays(make, path, tmp_path):
    timers, _ = make()
    timers.set_timer("good", 1, 10)
    timers.save(path)
    timers.set_timer(("bad", 1), threading.Lock(), 5)
    with pytest.raises(TypeError, match=r"the timer of \('bad', 1\) cannot be pickled"):
        timers.save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert make()[0].load(path) == 1


@pytest.mark.parametrize(
    "record",
    [
        ("a", 1),
        ("a", 1, "soon"),
        ("a", 1, nan),
        ("a", 1, inf),
        (["a"], 1, 1.0),
        (None, 1, 1.0),
        ("a", Unreadable(), 1.0),
    ],
)
def test_timers_that_cannot_be_read_are_logged_and_left_out(make, path, record, warnings):
    save_timers(path, [record, ("good", 1, 10.0)], saved_at=time.time(), secret=None)
    timers, fired = make()
    assert timers.load(path) == len(timers) == 1
    assert len(warnings()) == 1
    timers.clock.advance(1_000_000)
    assert until(lambda: fired == [("good", 1)])
    assert timers.lag == 0


def test_a_missing_file_is_no_error(make, path, warnings):
    assert make()[0].load(path) == 0
    assert warnings() == []


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-60])


def changed(path):
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


def of_others(path):
    path.chmod(0o622)


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGES = {
    "cut off": (cut_off, "is damaged, or was saved with another secret"),
    "changed": (changed, "is damaged, or was saved with another secret"),
    "empty": (lambda path: path.write_bytes(b""), "is not a file of timers that this version of wheelcache can read"),
    "of another make": (lambda path: path.write_bytes(b"?" * 500), "is not a file of timers that this version of"),
    "writable for others": (of_others, "must be accessible to its owner only, but its mode is 622"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_whole_or_not_private_is_set_aside_with_the_reason(make, path, warnings, damage):
    change, reason = DAMAGES[damage]
    timers, _ = make()
    timers.set_timer("a", "x" * 100, 10)
    timers.save(path)
    change(path)
    assert make()[0].load(path) == 0
    (warning,) = warnings()
    assert f"A file of timers is not loaded by <Timers every 1.0 s>: {path} {reason}" in warning
    assert warning.endswith(f"; it is kept as {path}.refused.")
    assert [each.name for each in path.parent.iterdir()] == ["timers.refused"]


@pytest.mark.parametrize("make_it", [linked, lambda path: (path.unlink(), os.mkfifo(path))], ids=["a link", "a pipe"])
def test_what_is_no_file_is_neither_loaded_nor_renamed(make, path, warnings, make_it):
    timers, _ = make()
    timers.set_timer("a", 1, 10)
    timers.save(path)
    make_it(path)
    before = path.lstat()
    assert make()[0].load(path) == 0
    assert len(warnings()) == 1
    assert path.lstat() == before


@pytest.mark.parametrize("secret", [None, "s3cret\0", b"s3cret\0\0", b"S3cret"])
def test_a_file_is_signed_by_one_secret_only(make, path, secret):
    timers, _ = make()
    timers.set_timer("a", 1, 10)
    timers.save(path, secret="s3cret")
    assert make()[0].load(path, secret=secret) == 0
    assert path.with_name("timers.refused").exists()


def test_a_file_without_a_signature_is_refused_by_one_who_asks_for_it(make, path):
    timers, _ = make()
    timers.set_timer("a", 1, 10)
    timers.save(path)
    assert make()[0].load(path, secret=b"\0") == 0


def test_nothing_is_unpickled_before_it_was_checked(make, path):
    timers, _ = make()
    timers.set_timer("a", Calling(), 10)
    timers.save(path, secret="one")
    Calling.loading = staticmethod(lambda: pytest.fail("it was unpickled"))
    assert make()[0].load(path, secret="two") == 0


def test_only_the_user_can_read_the_file_whatever_the_umask(make, path):
    before = os.umask(0)
    try:
        make()[0].save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_path_that_no_file_can_have_is_named_and_one_of_any_bytes_is_used(make, tmp_path):
    timers, _ = make()
    for call in (timers.save, timers.load):
        with pytest.raises(ValueError, match=r"^path must be a path that the file system can encode, not '.*\\ud800'"):
            call(f"{tmp_path}/a\ud800")
    timers.save(f"{tmp_path}/a\udcff")
    assert os.listdir(os.fsencode(tmp_path)) == [b"a\xff"]
    assert timers.load(f"{tmp_path}/a\udcff") == 0


def test_a_secret_that_cannot_be_encoded_is_refused_without_being_shown(make, path):
    with pytest.raises(ValueError, match="secret must be a string without lone surrogates") as error:
        make()[0].save(path, secret="s3cret\ud800")
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(make, path):
    timers, _ = make()
    timers.set_timer("a", 1, 10)
    timers.save(path)
    before = path.read_bytes()
    timers.set_timer("b", "x" * 100_000, 10)
    with room_for(50_000), pytest.raises(OSError, match="File too large"):
        timers.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_runs_at_once_may_set_timers_while_the_others_are_loaded(make, path, wall):
    timers, _ = make()
    for number in range(100):
        timers.set_timer(number, 1, number + 1)
    timers.save(path)
    wall.now += 1000
    fired = []

    def execute(key, value):
        fired.append(key)
        other.set_timer(("again", key), 1, 5)

    other, _ = make(execute=execute)
    assert other.load(path) == 100
    assert until(lambda: len(other) == 100)
    assert sorted(fired) == list(range(100))


def test_while_threads_set_and_remove_every_file_is_whole(make, path, together):
    timers, _ = make()
    for number in range(200):
        timers.set_timer(number, number, 1000)

    def work(number):
        for turn in range(20):
            if number == 0:
                assert timers.save(path) >= 200
                other, _ = make()
                assert other.load(path) >= 200
            else:
                timers.set_timer((number, turn), turn, 1000)
                timers.remove_timer((number, turn))

    assert together(work) == [None] * 32
