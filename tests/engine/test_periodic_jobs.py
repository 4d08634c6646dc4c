"""Jobs of a cache that come round: its samples, and its line a minute."""

import logging
import time

import pytest

from tests.waiting import until
from wheelcache import Cache, ManualClock

JOBS = {"log_interval": 10, "sample_interval": 10}


def sampled(cache):
    return [each.at for each in cache.figures().samples]


@pytest.fixture
def on_line(caplog):
    """Have a function called with each line of statistics that is logged."""
    logger = logging.getLogger("wheelcache.stats")
    caplog.set_level(logging.INFO, "wheelcache.stats")
    handlers = []

    def add(function):
        handlers.append(logging.Handler())
        handlers[-1].emit = function
        logger.addHandler(handlers[-1])

    yield add
    for handler in handlers:
        logger.removeHandler(handler)


def test_of_many_threads_that_write_first_one_starts_them(clock, together):
    cache = Cache(clock=clock, **JOBS)
    together(lambda number: cache.set(number, 1))
    clock.advance(30)
    assert sampled(cache) == [0, 10, 20, 30]


def test_a_cache_that_only_misses_goes_on_with_its_samples_though_the_line_has_the_same_period(clock):
    cache = Cache(clock=clock, ttl=5, **JOBS)
    cache.set("a", 1)
    for _ in range(20):
        cache.get("missing")
        clock.advance(10)
    assert len(sampled(cache)) == 21


@pytest.mark.parametrize("log_interval", [5, 10, 20])
def test_a_job_that_raises_is_logged_and_all_go_on_and_start_again(clock, caplog, on_line, log_interval):
    def fail(record):
        raise LookupError

    cache = Cache(clock=clock, ttl=5, sample_interval=10, log_interval=log_interval)
    cache.set("a", 1)
    on_line(fail)
    for _ in range(4):
        cache.get("a")
        clock.advance(10)
    assert sampled(cache) == [0, 10, 20, 30, 40]
    failures = [record for record in caplog.records if record.exc_info]
    assert {record.exc_info[0] for record in failures} == {LookupError}
    assert len(failures) == 40 // max(10, log_interval)
    # They rest, and start again.
    clock.advance(1000)
    rested = len(sampled(cache))
    cache.set("a", 1)
    clock.advance(10)
    assert sampled(cache)[rested:] == [1040, 1050]


def test_a_cache_that_is_closed_by_what_a_job_sets_off_ends_them_and_logs_nothing(clock, caplog, on_line):
    cache = Cache(clock=clock, **JOBS)
    cache.set("a", 1)
    cache.get("a")
    on_line(lambda record: cache.close())
    clock.advance(100)
    assert [record.name for record in caplog.records] == ["wheelcache.stats"]


@pytest.mark.parametrize("seconds", [1e9, pytest.param(1e12, marks=pytest.mark.deep)])
def test_a_jump_of_centuries_ends(seconds):
    clock = ManualClock()
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(seconds)
    assert clock() == seconds
    assert cache.get("a") == 1


def test_with_a_clock_of_ones_own_they_run_in_the_time_of_the_wheel_thread():
    cache = Cache(clock=lambda: time.monotonic() + 1000, sample_interval=0.01)
    cache.set("a", 1)
    assert until(lambda: len(sampled(cache)) > 3)
    cache.close()
