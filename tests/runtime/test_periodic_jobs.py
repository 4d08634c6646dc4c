"""The periodic jobs of a cache: their times, their pauses, and their end."""

from math import inf

import pytest

from wheelcache.errors import CacheClosed
from wheelcache.runtime.periodic_jobs import IdleCheck, PeriodicJobs


class Noted:
    """A job that records the calls of its methods, and their times."""

    def __init__(self, period, clock, notes, matters=1000, run=None):
        self.period = period
        self.matters = matters
        self.clock = clock
        self.notes = notes
        self.on_run = run

    def run(self):
        self.notes.append((self.clock(), self.period, "run"))
        if self.on_run is not None:
            self.on_run()

    def next_run(self, due, now):
        return due + self.period

    def __getattr__(self, name):
        if name not in ("begin", "start_over", "close"):
            raise AttributeError(name)
        return lambda: self.notes.append((self.clock(), self.period, name))


@pytest.fixture
def notes():
    return []


@pytest.fixture
def idle():
    return [False]


@pytest.fixture
def make(clock, notes, idle):
    # The clock has only weak references to the jobs.
    made = []

    def make_jobs(*periods, **options):
        jobs = PeriodicJobs(clock, lambda: idle[0], [Noted(period, clock, notes, **options) for period in periods])
        made.append(jobs)
        return jobs

    return make_jobs


def runs(notes, period):
    return [at for at, of, what in notes if of == period and what == "run"]


def fail(error=LookupError):
    raise error


def test_jobs_run_after_their_period_and_again_and_again(make, clock, notes):
    make(3, 10).start_jobs()
    assert [(of, what) for _, of, what in notes] == [(3, "begin"), (10, "begin")]
    clock.advance(20)
    assert runs(notes, 3) == [3, 6, 9, 12, 15, 18]
    assert runs(notes, 10) == [10, 20]


def test_whether_to_pause_is_found_out_in_the_longest_period_and_then_all_run_once_more(make, clock, notes, idle):
    jobs = make(3, 10)
    jobs.start_jobs()
    idle[0] = True
    clock.advance(100)
    assert runs(notes, 3) == [3, 6, 9, 10]
    assert runs(notes, 10) == [10]
    assert jobs.wake_at == inf
    idle[0] = False
    jobs.start_jobs()
    clock.advance(10)
    assert runs(notes, 3)[4:] == [103, 106, 109]
    assert runs(notes, 10)[1:] == [110]


def test_one_of_several_jobs_with_the_longest_period_finds_out_whether_to_pause(clock, notes):
    """The check covers the time since the last check, so a second one would always find the cache idle."""
    looks = []
    jobs = PeriodicJobs(clock, lambda: looks.append(clock()), [Noted(10, clock, notes) for _ in range(3)])
    jobs.start_jobs()
    clock.advance(30)
    assert looks == [10, 20, 30]


def test_a_write_while_the_cache_is_found_to_be_idle_has_the_jobs_go_on(clock, notes):
    """The write comes between the check and the pause, before ``paused`` is set, and is the last for a long time."""
    answers = iter([True, False])
    jobs = PeriodicJobs(clock, lambda: next(answers, False), [Noted(10, clock, notes)])
    jobs.start_jobs()
    clock.advance(30)
    assert runs(notes, 10) == [10, 20, 30]


def test_a_job_that_raises_is_logged_and_keeps_none_from_running_or_starting_again(clock, notes, idle, caplog):
    jobs = PeriodicJobs(clock, lambda: idle[0], [Noted(10, clock, notes), Noted(3, clock, notes, run=fail)])
    jobs.start_jobs()
    clock.advance(7)
    idle[0] = True
    clock.advance(13)
    idle[0] = False
    jobs.start_jobs()
    clock.advance(10)
    assert runs(notes, 10) == [10, 30]
    assert runs(notes, 3) == [3, 6, 9, 10, 23, 26, 29]
    assert [record.exc_info[0] for record in caplog.records] == [LookupError] * 7


def test_a_job_that_finds_its_cache_closed_by_another_thread_ends_without_a_word(make, clock, notes, caplog):
    make(10, run=lambda: fail(CacheClosed)).start_jobs()
    clock.advance(30)
    assert runs(notes, 10) == [10]
    assert caplog.records == []


def test_a_cache_that_is_closed_while_its_jobs_begin_runs_none(make, clock, notes):
    jobs = make(3)
    jobs._jobs[0].begin = jobs.close
    jobs.start_jobs()
    clock.advance(10)
    assert (runs(notes, 3), jobs.paused) == ([], False)


def test_after_close_none_runs_and_none_is_started(make, clock, notes):
    jobs = make(3)
    jobs.start_jobs()
    jobs.close()
    for restart in (lambda: None, jobs.start_over):
        restart()
        assert not jobs.paused
        jobs.start_jobs()
    clock.advance(100)
    assert [what for *_, what in notes] == ["begin", "close", "start_over"]


def test_in_the_child_of_a_fork_they_start_with_the_next_write_and_only_once(make, clock, notes):
    jobs = make(3)
    jobs.start_jobs()
    jobs.start_over()
    assert jobs.paused
    clock.advance(3)
    assert runs(notes, 3) == []
    jobs.start_jobs()
    clock.advance(6)
    assert runs(notes, 3) == [6, 9]


def test_a_jump_of_years_runs_what_matters_of_it(make, clock, notes):
    """In ten years, 30 million samples would be taken, of which 360 are kept."""
    make(3, matters=5).start_jobs()
    clock.advance(10**9)
    at = runs(notes, 3)
    assert at[0] == 3
    assert at[1:] == [10**9 - 3 * number for number in (5, 4, 3, 2, 1, 0)]


def test_a_run_that_takes_longer_than_its_period_is_followed_by_one_a_period_later(make, clock, notes, monkeypatch):
    jobs = make(3)
    jobs.start_jobs()
    monkeypatch.setattr(clock, "_now", 100.0)
    jobs.advance(clock())
    assert (runs(notes, 3), jobs.wake_at) == ([100], 103)


@pytest.mark.parametrize(
    ("before", "after", "is_computing", "is_idle"),
    [
        ((5, 1, 0), (5, 1, 0), False, True),
        ((5, 1, 0), (6, 1, 0), False, False),
        ((5, 1, 0), (5, 2, 0), False, False),
        ((5, 1, 1), (5, 1, 1), False, False),
        ((5, 1, 1), (5, 1, 0), False, False),
        ((5, 1, 0), (5, 1, 0), True, False),
    ],
    ids=["idle", "look-up", "write", "entry", "expiry", "load"],
)
def test_a_cache_is_idle_that_was_empty_at_the_last_check_and_was_not_used_since(before, after, is_computing, is_idle):
    """Uses, stored values and entries."""
    expected, seen = [], iter([before, after])
    check = IdleCheck(lambda: next(seen), lambda: expected.append(1), lambda: is_computing)
    check()
    assert check() == is_idle
    assert expected == [1, 1], "the next write reports that the cache is used"
