"""The timing wheel of the core in Python, stepped by hand and against a sorted list."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from wheelcache import Timer, TimingWheel


def scheduled(wheel, *delays):
    timers = [Timer() for _ in delays]
    for timer, delay in zip(timers, delays, strict=True):
        wheel.schedule(timer, delay)
    return timers


def test_a_timer_comes_out_at_the_first_tick_that_is_not_before_it():
    wheel = TimingWheel(1.0, 8, 10.0)
    now, past, later = scheduled(wheel, 10.0, 3.0, 12.5)
    assert wheel.advance(10.0) == []
    assert wheel.advance(11.0) == [now, past], "at the next tick, if it is due now or before"
    assert wheel.advance(12.99) == []
    assert wheel.advance(3.0) == [], "the clock goes back"
    assert wheel.advance(13.0) == [later]
    assert wheel.advance(1000.0) == []


@pytest.mark.parametrize(("interval", "origin"), [(0.1, 0.0), (0.3, 1e6 + 0.1), (1 / 3, 12345.678)])
def test_floats_make_no_time_one_tick_early_or_late(interval, origin):
    wheel = TimingWheel(interval, 16, origin)
    for tick in range(1, 500):
        at = wheel.time_of(tick)
        before, after = math.nextafter(at, -math.inf), math.nextafter(at, math.inf)
        assert [wheel.tick_of(each) for each in (before, at, after)] == [tick, tick, tick + 1]
        timers = scheduled(wheel, before, at)
        assert (wheel.advance(before), wheel.advance(at)) == ([], timers)


@pytest.mark.parametrize("slots", [1, 8, 512])
@pytest.mark.parametrize("delay", [1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 32768, 10**7])
def test_any_length_of_delay_comes_out_on_its_tick(slots, delay):
    wheel = TimingWheel(1.0, slots, 0.0)
    (timer,) = scheduled(wheel, float(delay))
    while (wake := wheel.next_wake()) < delay:
        assert wheel.advance(wake) == []
    assert wake == delay
    assert wheel.advance(delay - 0.001) == []
    assert wheel.advance(float(delay)) == [timer]
    assert wheel.next_wake() == math.inf


def test_a_timer_can_be_cancelled_in_a_tick_that_a_budget_has_left_half_done():
    wheel = TimingWheel(1.0, 8, 0.0)
    timers = scheduled(wheel, *[1.0] * 5)
    first = wheel.advance(1.0, budget=3)
    assert first == timers[:3]
    assert wheel.next_wake() == 1.0
    assert wheel.cancel(timers[-1])
    assert not wheel.cancel(timers[-1])
    assert wheel.advance(1.0) == timers[3:4]
    assert wheel.next_wake() == math.inf


def test_moving_to_and_fro_files_a_timer_again_only_below_the_time_of_its_slot():
    wheel = TimingWheel(1.0, 512, 0.0)
    (timer,) = scheduled(wheel, 100.0)
    for due in (300.0, 200.0, 100.0):
        wheel.move(timer, due)
        assert timer.filed == 100.0
    wheel.move(timer, 99.0)
    assert timer.filed == 99.0
    wheel.move(timer, 99.5)
    assert wheel.advance(99.0) == []
    assert wheel.advance(100.0) == [timer]


class WheelAgainstAList(RuleBasedStateMachine):
    """The model is a dict of due times. Intervals that floats cannot hold exactly are part of the game."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.wheel = None
        self.due = {}

    @precondition(lambda self: self.wheel is None)
    @rule(
        interval=st.sampled_from([1.0, 0.1, 0.3, 1 / 3, 7.0]),
        slots=st.sampled_from([1, 2, 5, 16]),
        origin=st.sampled_from([0.0, 12345.678, 1e6 + 0.1]),
    )
    def make(self, interval, slots, origin):
        self.wheel = TimingWheel(interval, slots, origin)
        self.interval = interval
        self.now = origin

    @precondition(lambda self: self.wheel)
    @rule(ticks=st.one_of(st.floats(0.001, 40), st.floats(0.001, 50_000)))
    def schedule(self, ticks):
        timer = Timer()
        self.due[timer] = self.now + ticks * self.interval
        self.wheel.schedule(timer, self.due[timer])

    @precondition(lambda self: self.due)
    @rule(data=st.data(), ticks=st.one_of(st.floats(0.001, 40), st.floats(0.001, 50_000)))
    def move(self, data, ticks):
        timer = data.draw(st.sampled_from(list(self.due)))
        self.due[timer] = self.now + ticks * self.interval
        self.wheel.move(timer, self.due[timer])

    @precondition(lambda self: self.due)
    @rule(data=st.data())
    def cancel(self, data):
        timer = data.draw(st.sampled_from(list(self.due)))
        assert self.wheel.cancel(timer)
        del self.due[timer]

    @precondition(lambda self: self.wheel)
    @rule(ticks=st.one_of(st.floats(0, 5), st.floats(0, 3_000), st.integers(0, 100)), budget=st.integers(1, 5))
    def advance(self, ticks, budget):
        self.now += ticks * self.interval
        out = []
        while self.wheel.next_wake() <= self.now:
            batch = self.wheel.advance(self.now, budget)
            assert len(batch) <= budget
            out += batch
        self.wheel.advance(self.now)
        for timer in out:
            assert self.due.pop(timer) <= self.now, "early"
        late = [due for due in self.due.values() if due + self.interval * (1 + 1e-9) < self.now]
        assert not late
        ticks = [self.wheel.tick_of(timer.due) for timer in out]
        assert ticks == sorted(ticks), "out of order"


TestWheelAgainstAList = WheelAgainstAList.TestCase
TestWheelAgainstAList.settings = settings(max_examples=40, stateful_step_count=40)


def test_a_time_beyond_what_floats_can_count_ticks_to_is_filed_and_waits():
    wheel = TimingWheel(0.1, 8, 0.0)
    scheduled(wheel, 1.7e308)
    assert wheel.next_time(1.7e308) > 1e17
    assert wheel.advance(1e7) == []
    with pytest.raises(ValueError, match="at which floats can tell intervals of"):
        wheel.advance(0.1 * 2**53)


@pytest.mark.parametrize(("interval", "slots"), [(0, 8), (-1, 8), (1e-9, 8), (1, 0), (1, 2.0), (math.nan, 8)])
def test_a_wheel_of_wrong_arguments_is_an_error_that_names_them(interval, slots):
    with pytest.raises((TypeError, ValueError), match=r"(interval|slots) must be"):
        TimingWheel(interval, slots, 0.0)
