"""The ring of samples of a cache."""

import os

import pytest

from wheelcache import Cache
from wheelcache.observability.history import LENGTH, History, Sample, sample
from wheelcache.stats import Stats


def samples(cache):
    return cache.figures().samples


def test_a_sample_is_taken_at_the_first_write_and_every_ten_seconds(clock):
    cache = Cache(clock=clock)
    clock.advance(5)
    cache.get("a")
    assert samples(cache) == ()
    cache.set("a", 1)
    clock.advance(60)
    assert [each.at for each in samples(cache)] == [5, 15, 25, 35, 45, 55, 65]
    assert samples(cache)[0].misses == 1


def test_a_sample_has_the_figures_of_its_moment(clock):
    cache = Cache(clock=clock, max_entries=2, ttl=1000, jitter=0, weigher=lambda key, value: value, max_weight=100)
    cache.set("a", 1)
    clock.advance(1)
    for key in "abcd":
        cache.set(key, 10)
    cache.delete("d")
    cache.get("c")
    cache.get("x")
    cache.take("y", lambda: 20)
    with pytest.raises(LookupError):
        cache.take("z", lambda: {}["z"])
    cache.clear()
    cache.set("e", 5, ttl=2)
    clock.advance(9)
    assert samples(cache)[-1] == Sample(
        at=10,
        lag=0,
        hits=1,
        misses=3,
        loads=2,
        load_seconds=0,
        coalesced=0,
        expirations=1,
        evictions=2,
        replacements=1,
        deletions=1,
        clearings=2,
        size=0,
        weight=0,
    )


def test_the_last_hour_is_kept(clock):
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(7200)
    assert len(samples(cache)) == LENGTH == 360
    assert [each.at for each in samples(cache)] == [7200 - 10 * number for number in reversed(range(360))]


def test_after_a_jump_of_ten_years_it_is_the_last_hour_as_well(clock):
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(315_360_000)
    at = [each.at for each in samples(cache)]
    assert len(at) == LENGTH
    assert at[0] >= 315_360_000 - 3600
    assert at == sorted(at)


def test_while_there_is_nothing_to_hit_and_nobody_asks_there_are_no_samples_but_a_last_one(clock):
    cache = Cache(clock=clock, ttl=5, log_interval=None)
    cache.set("a", 1)
    clock.advance(1000)
    assert [each.at for each in samples(cache)] == [0, 10]
    cache.set("a", 1, ttl=1000)
    clock.advance(10)
    assert [each.at for each in samples(cache)] == [0, 10, 1000, 1010]


def test_the_interval_is_an_option_and_none_is_none(clock):
    cache = Cache(clock=clock, sample_interval=2)
    cache.set("a", 1)
    clock.advance(10)
    assert [each.at for each in samples(cache)] == [0, 2, 4, 6, 8, 10]
    assert cache.figures().interval == 2
    without = Cache(clock=clock, sample_interval=None)
    without.set("a", 1)
    clock.advance(100)
    assert (samples(without), without.figures().interval) == ((), None)


def test_in_the_child_of_a_fork_they_are_taken_from_its_first_write_on_and_once_each(clock):
    cache = Cache(clock=clock)
    cache.set("a", 1)
    clock.advance(20)
    pid = os.fork()
    if pid == 0:
        before = len(samples(cache))
        clock.advance(15)
        rested = len(samples(cache)) == before
        cache.set("a", 2)
        clock.advance(20)
        at = [each.at for each in samples(cache)][before:]
        os._exit(not (rested and at == [35, 45, 55]))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("wrong", [0, -1, "10", True, float("nan"), float("inf")])
def test_a_wrong_interval_is_an_error_that_names_it(wrong):
    with pytest.raises((TypeError, ValueError), match="sample_interval must be a number of seconds > 0"):
        Cache(sample_interval=wrong)


def test_the_lag_of_the_wheel_is_in_it(clock):
    history = History(10, clock, Stats, lambda: 7.25)
    history.run()
    assert history.samples[-1].lag == 7.25


def test_samples_are_rounded_to_what_matters():
    taken = sample(Stats(load_seconds=1 / 3), 1000 / 3, 2 / 3)
    assert (taken.at, taken.lag, taken.load_seconds) == (333.333, 0.666667, 0.333333)
