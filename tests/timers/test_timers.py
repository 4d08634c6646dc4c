"""Keyed timers, broadcasts and periodic jobs."""

import os
import threading
from math import inf, nan

import pytest

from tests.runtime.forking import run
from tests.runtime.interruptions import Worker
from tests.waiting import PATIENCE, until
from wheelcache import ManualClock, WheelClosed
from wheelcache.timers import STOP, Timers


class Fired:
    """The executed calls and their threads. ``wait(n)`` waits for n calls."""

    def __init__(self):
        self.calls = []
        self.threads = set()
        self._changed = threading.Condition()

    def __call__(self, key, value):
        with self._changed:
            self.calls.append((key, value))
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, PATIENCE)
            return list(self.calls)


@pytest.fixture
def fired():
    return Fired()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def timers(clock, fired):
    made = Timers(1.0, fired, clock=clock)
    yield made
    made.stop()


def test_a_timer_executes_once_at_its_time_on_the_pool(timers, clock, fired):
    timers.set_timer("a", 1, 3)
    clock.advance(2.9)
    assert len(timers) == 1
    clock.advance(0.1)
    assert fired.wait(1) == [("a", 1)]
    assert len(timers) == 0
    clock.advance(100)
    assert fired.calls == [("a", 1)]
    assert all(name.startswith("wheelcache-timers") for name in fired.threads)


def test_drain_may_set_timers_which_stay_and_takes_none_of_the_others_from_its_function(timers, clock, fired):
    for key in range(3000):
        timers.set_timer(key, "first", 1 + key % 700)
    event = timers.after(5)
    drained = []

    def again(key, value):
        drained.append(key)
        timers.set_timer(key, "again", 1)

    timers.drain(again)
    assert sorted(drained) == list(range(3000))
    assert len(timers) == 3000
    clock.advance(1)
    assert sorted(fired.wait(3000)) == [(key, "again") for key in range(3000)]
    clock.advance(4)
    assert event.is_set(), "an event is no timer of a key"


def test_while_threads_set_timers_each_is_drained_once(timers, together):
    drained = []

    def work(number):
        for turn in range(50):
            if number % 8:
                timers.set_timer((number, turn), 1, 1000)
            else:
                timers.drain(lambda key, value: drained.append(key))

    together(work)
    timers.drain(lambda key, value: drained.append(key))
    assert sorted(drained) == [(number, turn) for number in range(32) if number % 8 for turn in range(50)]


def test_a_timer_that_is_due_before_its_tick_can_be_moved_replaced_and_removed(timers, clock, fired):
    for key in "abcd":
        timers.set_timer(key, "first", 0.5)
    clock.advance(0.7)
    assert timers.move_timer("a", 2)
    assert timers.remove_timer("b")
    assert not timers.remove_timer("b")
    assert not timers.move_timer("b", 2)
    timers.set_timer("c", "second", 1)
    assert timers.move_timer("d", 0.1)
    assert fired.wait(1) == [("d", "first")]
    clock.advance(1.3)
    assert fired.wait(2)[1:] == [("c", "second")]
    clock.advance(1)
    assert fired.wait(3)[2:] == [("a", "first")]
    assert len(timers) == 0


def test_an_exception_in_drain_or_execute_is_logged_with_its_key_and_harms_nothing_else(clock, caplog):
    survived = threading.Event()

    def execute(key, value):
        if key == "good":
            survived.set()
        raise RuntimeError("no")

    timers = Timers(1.0, execute, clock=clock)
    for key in ("bad", "good"):
        timers.set_timer(key, 1, 1)
    clock.advance(1)
    assert survived.wait(PATIENCE)
    drained = []
    for key in "xy":
        timers.set_timer(key, 1, 1)
    timers.drain(lambda key, value: drained.append(key) or 1 / 0)
    assert sorted(drained) == ["x", "y"]
    timers.stop()
    for key in ("bad", "good", "x", "y"):
        assert until(lambda key=key: f"The timer of {key!r} raised" in caplog.text)


def test_the_waiters_of_one_tick_share_one_event(timers, clock):
    events = {id(timers.after(3.5)) for _ in range(1000)}
    assert len(events) == 1
    event = timers.after(3.2)
    assert id(event) in events
    assert timers.after(4.5) is not event
    clock.advance(3.9)
    assert not event.is_set()
    clock.advance(0.1)
    assert event.is_set()
    assert timers.after(3.5) is not event


def test_what_after_returns_is_an_event_of_the_threading_module(timers, clock):
    event = timers.after(1)
    assert isinstance(event, threading.Event)
    assert "unset" in repr(event)
    assert not event.wait(-1)
    assert not event.wait(0.001)
    waiting = Worker()
    clock.advance(1)
    assert waiting.does(event.wait)
    assert event.wait(-1)
    assert "unset" not in repr(event)
    event.clear()
    assert not event.is_set()
    event.set()
    assert event.is_set()


def test_a_periodic_job_says_when_it_wants_to_run_again(timers, clock):
    runs = []
    answers = iter([None, 10, None, STOP])

    def job():
        runs.append(clock())
        return next(answers)

    timers.every(3, job)
    clock.advance(1000)
    assert runs == [3, 6, 16, 19]


def test_periodic_jobs_run_on_the_wheel_thread():
    names = []
    timers = Timers(0.01, print)
    timers.every(0.01, lambda: names.append(threading.current_thread().name))
    assert until(lambda: len(names) > 2)
    timers.stop()
    assert set(names) == {"wheelcache-wheel"}


@pytest.mark.parametrize("answer", [-1, 0, nan, inf, "soon", True, LookupError])
def test_a_periodic_job_that_raises_or_gives_a_wrong_answer_is_logged_and_goes_on(timers, clock, caplog, answer):
    runs = []

    def job():
        runs.append(clock())
        if answer is LookupError:
            raise LookupError
        return answer

    timers.every(3, job)
    clock.advance(9)
    assert runs == [3, 6, 9]
    wrong = "the result of a periodic job must be a number of seconds > 0"
    assert ("LookupError" if answer is LookupError else wrong) in caplog.text


def test_stop_is_idempotent_releases_waiters_and_ends_everything(timers, clock, fired):
    timers.set_timer("a", 1, 1)
    event = timers.after(1000)
    timers.every(1, lambda: fired("job", 0))
    timers.stop()
    timers.stop()
    assert event.is_set()
    clock.advance(10)
    assert fired.calls == []
    for use in (
        lambda: timers.set_timer("a", 1, 1),
        lambda: timers.move_timer("a", 1),
        lambda: timers.remove_timer("a"),
        lambda: timers.drain(print),
        lambda: timers.after(1),
        lambda: timers.every(1, print),
        lambda: len(timers),
        lambda: timers.save("file"),
        lambda: timers.load("no file"),
    ):
        with pytest.raises(WheelClosed, match="were stopped"):
            use()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, print), "interval must be a number of seconds > 0, at least 0.000001, not 0"),
        ((nan, print), "interval must be"),
        (("1", print), "interval must be"),
        ((1, None), "execute must be callable, not None"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Timers(*arguments)


@pytest.mark.parametrize("delay", [0, -1, nan, inf, None, "1"])
def test_wrong_delays_are_errors_that_name_them(timers, delay):
    for use in (
        lambda: timers.set_timer("a", 1, delay),
        lambda: timers.move_timer("a", delay),
        lambda: timers.after(delay),
    ):
        with pytest.raises((TypeError, ValueError), match="delay must be a number of seconds > 0, not"):
            use()
    with pytest.raises((TypeError, ValueError), match="period must be a number of seconds > 0, not"):
        timers.every(delay, print)


def test_a_key_of_none_and_a_job_that_cannot_be_called_are_errors_that_name_them(timers):
    for use in (
        lambda: timers.set_timer(None, 1, 1),
        lambda: timers.move_timer(None, 1),
        lambda: timers.remove_timer(None),
    ):
        with pytest.raises(ValueError, match="key must not be None"):
            use()
    with pytest.raises(TypeError, match="fn must be callable, not 5"):
        timers.every(1, 5)
    with pytest.raises(TypeError, match="fn must be callable, not 5"):
        timers.drain(5)


def test_lag_tells_how_far_behind_and_is_warned_of_once_an_episode():
    """Run in a separate process, whose wheel thread only these timers wake."""
    printed = run("""
        import logging
        from wheelcache.timers import Timers
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        now = [0.0]
        timers = Timers(1.0, lambda key, value: None, clock=lambda: now[0])
        for delay in (100, 101, 102, 170):
            timers.set_timer(delay, 0, delay)
        for moment in (0, 140, 173, 680):
            now[0] = moment
            print(timers.lag)
            # Due when a slot begins, on every level of both cores.
            timers.set_timer(("at", moment), 0, 512)
            assert timers.lag == 0
        timers.stop()
        """)
    assert " ".join(printed) == (
        "0.0 40.0 <Timers every 1.0 s> is 40.0 s behind; catching up. "
        "3.0 168.0 <Timers every 1.0 s> is 168.0 s behind; catching up."
    )


def test_keys_with_code_of_their_own_are_compared_and_hashed_while_other_threads_may_use_the_timers(clock, fired):
    worker = Worker()

    class Key:
        def __init__(self, name):
            self.name = name

        def __hash__(self):
            assert worker.does(lambda: timers.remove_timer("another"))
            return 1

        def __eq__(self, other):
            assert worker.does(lambda: timers.remove_timer("another"))
            return self.name == other.name

    timers = Timers(1.0, fired, clock=clock)
    timers.set_timer(Key("a"), 1, 5)
    timers.set_timer(Key("a"), 2, 5)
    timers.set_timer(Key("b"), 3, 5)
    assert len(timers) == 2
    assert timers.remove_timer(Key("b"))
    clock.advance(5)
    ((key, value),) = fired.wait(1)
    assert (key.name, value) == ("a", 2)
    timers.stop()


def test_a_job_that_is_due_with_one_that_stops_the_timers_does_not_run(timers, clock):
    ran = []
    timers.every(1, lambda: ran.append("set before"))
    timers.every(1, timers.stop)
    timers.every(1, lambda: ran.append("set after"))
    clock.advance(5)
    # Jobs of one tick run in any order.
    assert ran in (["set before"], ["set after"])


def test_a_job_may_drain_its_own_timers_and_goes_on(timers, clock, fired):
    runs = []

    def job():
        runs.append(clock())
        timers.drain(lambda key, value: None)

    timers.every(1, job)
    timers.every(3, lambda: runs.append("other"))
    timers.set_timer("a", 1, 50)
    clock.advance(4)
    assert runs == [1, 2, 3, "other", 4] or runs == [1, 2, "other", 3, 4]
    timers.set_timer("b", 1, 1)
    assert len(timers) == 1
    assert fired.calls == []


def test_a_timer_that_finds_no_thread_is_logged_and_takes_nothing_with_it(timers, clock, caplog, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ran = []
    timers.set_timer("a", 1, 1)
    event = timers.after(1)
    timers.every(1, lambda: ran.append(clock()))
    clock.advance(2)
    assert event.is_set()
    assert ran == [1, 2]
    assert "The timer of 'a' found no thread" in caplog.text


def test_an_event_that_was_taken_out_is_set_although_the_timers_stop_meanwhile(timers, clock):
    event = timers.after(1)
    timers.every(1, timers.stop)
    clock.advance(1)
    assert event.is_set()


@pytest.mark.parametrize("interval", [0.1, 0.3, 1 / 3, 0.7])
def test_a_thread_that_shares_an_event_waits_one_interval_too_long_at_most(interval):
    clock = ManualClock(100_000.1)
    timers = Timers(interval, print, clock=clock)
    for _ in range(100):
        start = clock()
        delays = [interval * (1 + share / 7) for share in range(8)]
        events = [(start + delay, timers.after(delay)) for delay in delays]
        for _ in range(40):
            clock.advance(interval / 10)
            for due, event in events:
                assert not (event.is_set() and clock() < due)
                assert event.is_set() or clock() <= due + interval * (1 + 1e-6)
    timers.stop()


def test_an_event_comes_at_its_tick_although_time_passes_while_it_is_set():
    class Running(ManualClock):
        """Advance by a microsecond with every read."""

        start = None

        def __call__(self):
            self._now += 1e-6
            self.start = self.start or self._now
            return self._now

    clock = Running()
    timers = Timers(1.0, print, clock=clock)
    for tick in range(1, 100):
        # The call reads the clock once more for itself.
        event = timers.after(clock.start + tick - clock() - 1.5e-6)
        clock.advance(clock.start + tick + 1e-4 - clock())
        assert event.is_set()
    timers.stop()


def test_a_job_that_forks_runs_again_in_the_parent_only():
    assert run("""
        from wheelcache import ManualClock
        from wheelcache.timers import Timers
        clock, runs, pids = ManualClock(), [], []
        timers = Timers(1.0, print, clock=clock)

        def job():
            runs.append(clock())
            if not pids:
                pids.append(os.fork())

        timers.every(1, job)
        clock.advance(3)
        if pids[0]:
            os.waitpid(pids[0], 0)
        print("parent" if pids[0] else "child", *runs, flush=True)
        """) == ["child", "1.0", "parent", "1.0", "2.0", "3.0"]


def test_a_fork_meets_no_half_built_timers(caplog):
    # The traceback keeps them.
    with pytest.raises(TypeError) as refused:
        Timers(1, None)
    pid = os.fork()
    if pid == 0:
        os._exit(bool(caplog.records))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert refused.value
    assert caplog.records == []
