"""Keyed timers, broadcasts and periodic jobs."""

import threading
from decimal import Decimal
from math import inf, nan

import pytest

from tests.runtime.forking import run
from tests.runtime.interruptions import Worker
from tests.waiting import PATIENCE, until
from wheelcache import ManualClock, WheelClosed
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

    def test_a_timer_that_is_due_before_its_tick_can_be_moved_replaced_and_removed(self, timers, clock, fired):
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

    def test_a_timer_that_finds_no_thread_is_logged_and_takes_nothing_with_it(self, timers, clock, caplog, monkeypatch):
        def refuse(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        ran, event = [], timers.after(1)
        timers.set_timer("a", 1, 1)
        timers.every(1, lambda: ran.append(clock()))
        clock.advance(2)
        assert (event.is_set(), ran) == (True, [1, 2])
        assert "The timer of 'a' found no thread" in caplog.text

    def test_keys_may_be_compared_by_code_of_their_own(self, timers, clock, fired):
        for key, value in (("1.0", 1), ("1", 2), ("2", 3)):
            timers.set_timer(Decimal(key), value, 5)
        assert len(timers) == 2
        assert timers.move_timer(Decimal("2.0"), 100)
        assert timers.remove_timer(Decimal("2.00"))
        clock.advance(5)
        assert fired.wait(1) == [(Decimal(1), 2)]

    def test_lag_tells_how_far_behind_and_is_warned_of_once_an_episode(self):
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


class TestEvents:
    def test_the_waiters_of_one_tick_share_one_event(self, timers, clock):
        event = timers.after(3.5)
        assert timers.after(3.2) is timers.after(4) is event
        assert timers.after(4.1) is not event
        clock.advance(3.9)
        assert not event.is_set()
        clock.advance(0.1)
        assert event.is_set()
        assert timers.after(3.5) is not event

    def test_what_after_returns_is_an_event_of_the_threading_module(self, timers, clock):
        event, waiting = timers.after(1), Worker()
        assert isinstance(event, threading.Event)
        assert "unset" in repr(event)
        assert event.wait(-1) is event.wait(0.001) is False
        clock.advance(1)
        assert waiting.does(event.wait)
        assert event.wait(-1)
        assert "unset" not in repr(event)
        event.clear()
        assert not event.is_set()
        event.set()
        assert event.is_set()

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

    def test_an_event_comes_at_its_tick_although_time_passes_while_it_is_set(self, make):
        class Running(ManualClock):
            """Advance by a microsecond with every read."""

            start = None

            def __call__(self):
                self._now += 1e-6
                self.start = self.start or self._now
                return self._now

        clock = Running()
        timers = make(clock=clock)
        for tick in range(1, 100):
            # The call reads the clock once more for itself.
            event = timers.after(clock.start + tick - clock() - 1.5e-6)
            clock.advance(clock.start + tick + 1e-4 - clock())
            assert event.is_set()


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

    def test_a_job_that_forks_runs_again_in_the_parent_only(self):
        assert run("""
            from wheelcache import ManualClock
            from wheelcache.timers import Timers
            clock, runs, pids = ManualClock(), [], []
            timers = Timers(1.0, print, clock=clock)
            timers.set_timer("of the parent", 1, 100)

            def job():
                runs.append(clock())
                if not pids:
                    pids.append(os.fork())

            timers.every(1, job)
            clock.advance(3)
            if pids[0]:
                os.waitpid(pids[0], 0)
            print("parent" if pids[0] else "child", *runs, len(timers), flush=True)
            """) == ["child", "1.0", "0", "parent", "1.0", "2.0", "3.0", "1"]


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
