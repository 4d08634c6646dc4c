"""Keyed timers, broadcasts and periodic jobs."""

import threading
from contextlib import suppress
from contextvars import Context, ContextVar
from math import inf, nan

import pytest

from tests.waiting import PATIENCE, until
from wheelcache import ManualClock, WheelClosed
from wheelcache.runtime.worker_pool import WorkerPool
from wheelcache.timers import STOP, Timers


class TestTimers:
    def test_a_timer_executes_once_at_its_time_on_the_pool(self, timers, clock, fired):
        timers.set_timer("a", 1, 3)
        clock.advance(2.9)
        assert len(timers) == 1
        clock.advance(0.1)
        assert fired.wait(1) == [("a", 1)]
        clock.advance(100)
        assert (len(timers), fired.calls) == (0, [("a", 1)])
        assert all(name.startswith("wheelcache-timers") for name in fired.threads)

    def test_four_timers_are_executed_at_the_same_time(self, make, clock):
        meeting, met = threading.Barrier(4), []
        timers = make(execute=lambda key, value: met.append(meeting.wait(PATIENCE)))
        for key in range(4):
            timers.set_timer(key, 1, 1)
        clock.advance(1)
        assert until(lambda: len(met) == 4)

    def test_a_timer_does_not_act_for_the_code_that_set_it(self, make, clock):
        variable, seen = ContextVar("variable", default="unset"), []
        timers = make(execute=lambda key, value: seen.append(variable.get()))
        timers.set_timer("a", 1, 1)
        Context().run(lambda: (variable.set("set"), clock.advance(1)))
        assert until(lambda: seen == ["unset"])

    def test_a_timer_that_is_moved_to_less_than_an_interval_fires_immediately(self, timers, fired):
        for key in "ab":
            timers.set_timer(key, 1, 100)
        assert timers.move_timer("a", 1)
        assert timers.move_timer("b", 0.999)
        assert fired.wait(1) == [("b", 1)]
        assert len(timers) == 1

    def test_drain_may_set_timers_which_stay_and_takes_none_of_the_others_from_its_function(self, timers, clock, fired):
        for key in range(3000):
            timers.set_timer(key, "first", 1 + key % 700)
        event, drained = timers.after(5), []

        def again(key, value):
            drained.append(key)
            timers.set_timer(key, "again", 1)

        timers.drain(again)
        assert sorted(drained) == list(range(3000))
        clock.advance(1)
        assert sorted(fired.wait(3000)) == [(key, "again") for key in range(3000)]
        clock.advance(4)
        assert event.is_set(), "an event is no timer of a key"

    def test_an_exception_in_drain_or_execute_is_logged_with_its_key_and_harms_nothing_else(self, make, clock, caplog):
        timers = make(execute=lambda key, value: 1 / 0)
        for key in "ab":
            timers.set_timer(key, 1, 1)
        clock.advance(1)
        for key in "xy":
            timers.set_timer(key, 1, 1)
        timers.drain(lambda key, value: 1 / 0)
        for key in "abxy":
            assert until(lambda key=key: f"The timer of {key!r} raised" in caplog.text)

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_a_timer_that_cannot_be_executed_loses_no_other_that_is_due(
        self, timers, clock, fired, monkeypatch, caplog, error
    ):
        submit = WorkerPool.submit

        def fail(*_, **options):
            monkeypatch.setattr(WorkerPool, "submit", submit)
            raise error

        monkeypatch.setattr(WorkerPool, "submit", fail)
        for key in "ab":
            timers.set_timer(key, 1, 1)
        with suppress(KeyboardInterrupt):
            clock.advance(1)
        clock.advance(1)
        assert len(fired.wait(1)) == 1
        assert ("found no thread to run on" in caplog.text) is (error is RuntimeError)


class TestEvents:
    def test_the_waiters_of_one_tick_share_one_event(self, timers, clock):
        event = timers.after(3.5)
        assert timers.after(3.2) is timers.after(4) is event
        assert timers.after(4.1) is not event
        clock.advance(3.9)
        assert not event.is_set()
        clock.advance(0.1)
        assert event.wait()
        assert timers.after(3.5) is not event
        event.clear()
        assert not event.wait(-1)

    @pytest.mark.parametrize("interval", [0.1, 0.3, 1 / 3, 0.7])
    def test_a_thread_that_shares_an_event_waits_one_interval_too_long_at_most(self, make, interval):
        clock = ManualClock(100_000.1)
        timers = make(interval, clock=clock)
        for _ in range(100):
            start = clock()
            delays = [interval * (1 + share / 7) for share in range(8)]
            events = [(start + delay, timers.after(delay)) for delay in delays]
            for _ in range(40):
                clock.advance(interval / 10)
                for due, event in events:
                    assert not (event.is_set() and clock() < due)
                    assert event.is_set() or clock() <= due + interval * (1 + 1e-6)


class TestJobs:
    def test_a_periodic_job_says_when_it_wants_to_run_again(self, timers, clock):
        runs, answers = [], iter([None, 10, None, STOP])
        timers.every(3, lambda: runs.append(clock()) or next(answers))
        clock.advance(1000)
        assert runs == [3, 6, 16, 19]

    def test_periodic_jobs_run_on_the_wheel_thread(self):
        names = []
        timers = Timers(0.01, print)
        timers.every(0.01, lambda: names.append(threading.current_thread().name))
        assert until(lambda: len(names) > 2)
        timers.stop()
        assert set(names) == {"wheelcache-wheel"}

    @pytest.mark.parametrize("answer", [-1, 0, nan, "soon", True, LookupError])
    def test_a_job_that_raises_or_gives_a_wrong_answer_is_logged_and_goes_on(self, timers, clock, caplog, answer):
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

    def test_a_job_that_is_due_with_one_that_stops_the_timers_does_not_run(self, timers, clock):
        ran, event = [], timers.after(1)
        timers.every(1, lambda: ran.append("set before"))
        timers.every(1, timers.stop)
        timers.every(1, lambda: ran.append("set after"))
        clock.advance(5)
        # Jobs of one tick run in any order.
        assert ran in (["set before"], ["set after"])
        assert event.is_set(), "no waiter is left"


def test_stop_is_idempotent_releases_waiters_and_ends_everything(timers, clock, fired):
    timers.set_timer("a", 1, 1)
    event = timers.after(1000)
    timers.every(1, lambda: fired("job", 0))
    timers.stop()
    timers.stop()
    assert event.is_set()
    clock.advance(10)
    assert fired.calls == []
    for use, *arguments in (
        (timers.set_timer, "a", 1, 1),
        (timers.move_timer, "a", 1),
        (timers.remove_timer, "a"),
        *((timers.drain, print), (timers.after, 1), (timers.every, 1, print), (timers.__len__,)),
        *((timers.save, "file"), (timers.load, "no file")),
    ):
        with pytest.raises(WheelClosed, match="were stopped"):
            use(*arguments)


@pytest.mark.parametrize("wrong", [0, -1, nan, inf, None, "1"])
def test_wrong_times_are_errors_that_name_them(timers, wrong):
    for name, use, *arguments in (
        ("interval", Timers, wrong, print),
        ("delay", timers.set_timer, "a", 1, wrong),
        ("delay", timers.move_timer, "a", wrong),
        ("delay", timers.after, wrong),
        ("period", timers.every, wrong, print),
    ):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be a number of seconds > 0"):
            use(*arguments)


def test_a_key_of_none_and_a_function_that_cannot_be_called_are_errors_that_name_them(timers):
    for use, *arguments in ((timers.set_timer, None, 1, 1), (timers.move_timer, None, 1), (timers.remove_timer, None)):
        with pytest.raises(ValueError, match="key must not be None"):
            use(*arguments)
    for name, use, *arguments in (("fn", timers.every, 1, 5), ("fn", timers.drain, 5), ("execute", Timers, 1, 5)):
        with pytest.raises(TypeError, match=f"{name} must be callable, not 5"):
            use(*arguments)
