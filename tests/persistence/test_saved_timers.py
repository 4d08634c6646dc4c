"""Pending timers survive a restart. Overdue timers fire immediately, in order."""

import pickle
import threading
import time
from math import inf, nan

import pytest

from tests.persistence.calling import Calling, Unreadable
from tests.waiting import until
from wheelcache import ManualClock, Timers
from wheelcache.persistence.snapshot_file import SnapshotWriter
from wheelcache.runtime.worker_pool import WorkerPool


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
    # Set again, with the time of another timer: it comes after that one.
    timers.set_timer(25, "value", 7)
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
    [None, ("a", 1), ("a", 1, "soon"), ("a", 1, nan), ("a", 1, inf), (["a"], 1, 1.0), (None, 1, 1.0), Unreadable()],
)
def test_records_of_another_make_are_logged_and_left_out(make, path, record, warnings):
    with SnapshotWriter(path, {"kind": "timers", "saved_at": time.time()}, None) as file:
        file.write(pickle.dumps(record))
        file.write(pickle.dumps(("good", 1, 10.0)))
    timers, fired = make()
    assert timers.load(path) == len(timers) == 1
    assert len(warnings()) == 1
    timers.clock.advance(1_000_000)
    assert until(lambda: fired == [("good", 1)])
    assert timers.lag == 0


@pytest.mark.parametrize("header", [{}, {"saved_at": None}, {"saved_at": 10**400}])
def test_a_header_that_says_not_when_it_was_saved_is_refused(make, path, warnings, header):
    with SnapshotWriter(path, {"kind": "timers", **header}, None) as file:
        file.write(pickle.dumps(("a", 1, 10.0)))
    assert make()[0].load(path) == 0
    assert len(warnings()) == 1
    assert path.with_name(f"{path.name}.refused").exists()
    # A missing file is not an error.
    assert make()[0].load(path) == 0
    assert len(warnings()) == 1


def test_a_damaged_tail_costs_the_tail_only(make, path, warnings):
    timers, _ = make()
    for number in range(10):
        timers.set_timer(number, "x" * 50, 10 + number)
    timers.save(path)
    path.write_bytes(path.read_bytes()[:-60])
    assert make()[0].load(path) == 9
    assert len(warnings()) == 1


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
