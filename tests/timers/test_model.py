"""Keyed timers against a dict, on a clock that the test moves."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.timers.conftest import Fired
from wheelcache import ManualClock
from wheelcache.timers import Timers


class TimersAgainstADict(RuleBasedStateMachine):
    """Maps key to (value, due). Due timers are compared as a set for each step of the clock."""

    keys = st.integers(0, 5)
    delays = st.one_of(st.integers(1, 20), st.floats(0.01, 3000))

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.fired = Fired()
        self.timers = Timers(1.0, self.fired, clock=self.clock)
        self.model = {}

    def teardown(self):
        self.timers.stop()

    def executed(self):
        """Wait for the calls of all timers that are no longer pending. Return those since the last call."""
        calls = self.fired.wait(len(self.model) - len(self.timers))
        self.fired.calls.clear()
        return calls

    @rule(key=keys, value=st.integers(), delay=delays)
    def set_timer(self, key, value, delay):
        self.timers.set_timer(key, value, delay)
        self.model[key] = (value, self.clock() + delay)

    @rule(key=keys, delay=delays)
    def move_timer(self, key, delay):
        assert self.timers.move_timer(key, delay) == (key in self.model)
        if key in self.model:
            value, _ = self.model[key]
            self.model[key] = (value, self.clock() + delay)
            if delay < 1:
                assert self.executed() == [(key, value)]
                del self.model[key]

    @rule(key=keys)
    def remove_timer(self, key):
        assert self.timers.remove_timer(key) == (self.model.pop(key, None) is not None)

    @rule()
    def drain(self):
        drained = []
        self.timers.drain(lambda key, value: drained.append((key, value)))
        assert sorted(drained) == sorted((key, value) for key, (value, _) in self.model.items())
        self.model.clear()

    @rule(seconds=st.one_of(st.floats(0, 5), st.floats(0, 5000)))
    def advance(self, seconds):
        self.clock.advance(seconds)
        for key, value in self.executed():
            expected, due = self.model.pop(key)
            assert value == expected
            assert due <= self.clock()
        assert all(due > self.clock() - 1 for _, due in self.model.values())

    @invariant()
    def as_many(self):
        assert len(self.timers) == len(self.model)


TimersAgainstADict.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestTimersAgainstADict = TimersAgainstADict.TestCase
