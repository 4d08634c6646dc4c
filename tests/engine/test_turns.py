"""Turns against a model: who leads, who waits, and what the waiters receive."""

from array import array
from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wheelcache import Cache
from wheelcache.engine.loading.waiting_loads import wait_for_claim
from wheelcache.engine.turns import NESTED_WAIT, End, Is, Turn, Turns, led, wait_until
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.steps import Wait

TAG = "tag"


class StoppedLoop:
    def is_running(self):
        return False


def turns_of(cache, clock=lambda: 0.0):
    return Turns(cache._parts.core, cache._parts.core.watch, clock)


class Model(RuleBasedStateMachine):
    """The turns on one key."""

    def __init__(self):
        super().__init__()
        self.trust = array("Q", [1])
        self.cache = Cache(jitter=0, trust=self.trust)
        self.now = 0.0
        self.turns = turns_of(self.cache, lambda: self.now)
        self.open = None
        # Whether the key was written, or the tag dropped, since the open turn began.
        self.is_outdated = False
        # Whether nobody but the next caller ends the open turn.
        self.is_left = False
        # The turns that wait for the open one, and whether they came late.
        self.waiting = {}
        # All turns that were ever queued and not started.
        self.queued = []

    def teardown(self):
        self.cache.close()

    def turn(self, seconds=inf):
        return Turn(self.turns, "k", names=(TAG,), until=self.now + seconds)

    def opens(self, turn):
        self.open, self.is_outdated, self.is_left = turn, False, False

    def has_ended(self, how, payload):
        """Check what the waiters of the open turn receive."""
        for waiter, is_late in self.waiting.items():
            assert self.open.alarm.is_set
            assert waiter.result == ((End.AGAIN, None) if is_late and how is End.VALUE else (how, payload))
            waiter.leave()
        self.open, self.waiting = None, {}

    @rule(seconds=st.sampled_from([5.0, inf]), may_wait=st.booleans())
    def a_caller_comes(self, seconds, may_wait):
        turn = self.turn(seconds)
        state = self.turns.begin(turn, blocking=False, may_wait=may_wait)
        if self.open is not None and (self.is_left or self.open.is_queued):
            assert self.open.ended is End.AGAIN
            self.has_ended(End.AGAIN, None)
        if self.open is None:
            assert state is Is.LEADS
            self.opens(turn)
        elif may_wait:
            assert state is Is.WAITS
            self.waiting[turn] = self.is_outdated
        else:
            assert state is Is.ALONE

    @rule()
    def one_is_queued(self):
        turn = self.turn()
        turn.is_queued = True
        is_claimed = self.turns.claim(turn)
        if self.is_left and self.open is not None:
            self.has_ended(End.AGAIN, None)
        assert is_claimed == (self.open is None)
        if is_claimed:
            self.opens(turn)
            self.queued.append(turn)

    @precondition(lambda self: self.queued)
    @rule()
    def a_queued_one_starts(self):
        turn = self.queued.pop()
        assert self.turns.starts(turn) == (turn is self.open)
        if turn is self.open:
            self.opens(turn)

    @precondition(lambda self: self.open is not None)
    @rule(how=st.sampled_from(End))
    def the_open_one_ends(self, how):
        assert self.open.end(how, "payload")
        assert not self.open.end(End.ERROR, "a second end")
        assert not self.turns.open
        self.has_ended(how, "payload")

    @precondition(lambda self: self.open is not None and not self.open.is_queued)
    @rule()
    def its_leader_is_interrupted(self):
        self.open.close()
        self.open.close()
        self.has_ended(End.AGAIN, None)

    @precondition(lambda self: self.open is not None)
    @rule()
    def its_loop_stops(self):
        self.open.loop = StoppedLoop()
        self.is_left = True

    @precondition(lambda self: self.open is not None)
    @rule()
    def its_time_passes(self):
        self.now += 5
        self.is_left |= self.open.until <= self.now

    @precondition(lambda self: self.waiting)
    @rule()
    def a_waiter_leaves(self):
        waiter, _ = self.waiting.popitem()
        waiter.close()
        assert waiter.waits_on is None

    @rule(way=st.sampled_from(["set", "delete", "clear", "drop", "trust"]))
    def the_key_is_written(self, way):
        writes = {
            "set": lambda: self.cache.set("k", 1),
            "delete": lambda: self.cache.delete("k"),
            "clear": self.cache.clear,
            "drop": lambda: self.cache._parts.core.drop_tag(TAG),
            # The connection that reports writes is lost, and there again.
            "trust": lambda: self.trust.__setitem__(0, self.trust[0] + 2),
        }
        writes[way]()
        self.is_outdated = True

    @rule()
    def the_source_is_read_again(self):
        self.turns.supersede("k")
        self.is_outdated = True

    @invariant()
    def the_leader_knows_whether_its_value_is_outdated(self):
        if self.open is not None and not self.open.is_queued:
            assert self.open.is_outdated() == self.is_outdated


TestModel = Model.TestCase


@pytest.fixture
def turns():
    return turns_of(Cache(jitter=0))


@pytest.fixture
def turn(turns):
    """The turn that leads."""
    turn = Turn(turns, "k", names=(TAG,))
    assert turns.lead(turn)
    yield turn
    turn.close()


def test_the_end_of_trust_outdates_a_computation():
    trust = array("Q", [1])
    turns = turns_of(Cache(trust=trust))
    turn = Turn(turns, "k")
    turns.begin(turn)
    assert not turn.is_outdated()
    trust[0] = 3
    assert turn.is_outdated()


def test_a_turn_whose_event_loop_has_stopped_is_ended_by_the_next_caller(turns, turn):
    turn.exit()
    turn.loop = StoppedLoop()
    assert turns.begin(Turn(turns, "k"), blocking=False) is Is.LEADS
    assert turn.ended is End.AGAIN


def test_a_caller_does_not_end_the_turn_that_it_has_handed_over(turns, turn):
    turn.is_handed_over = True
    turn.close()
    assert (turn.ended, led()) == (None, ())
    turn.is_handed_over = False


def test_a_value_is_not_stored_if_the_source_was_read_again_just_before():
    def weigh(key, value):
        loads.turns.supersede("k")
        return 1

    cache = Cache(max_weight=5, weigher=weigh)
    loads = cache.engine.loads()
    assert cache.get_or_load("k", lambda: "old") == "old"
    assert "k" not in cache


def test_without_waiters_a_turn_keeps_neither_value_nor_error(turn):
    turn.end(End.ERROR, ValueError())
    assert turn.value is None


def test_code_that_a_loader_left_running_leads_nothing_any_longer(turn):
    assert led() == (turn,)
    turn.end(End.AGAIN)
    assert led() == ()


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_tag_that_was_learned_and_dropped_before_a_waiter_came_keeps_the_value_from_it(turns, is_dropped):
    turn, waiter = Turn(turns, "k"), Turn(turns, "k")
    turns.begin(turn)
    if is_dropped:
        turns._core.drop_tag(TAG)
    assert turns.begin(waiter, blocking=False) is Is.WAITS
    turn.names = (TAG,)
    turn.end(End.VALUE, "loaded")
    assert waiter.result == ((End.AGAIN, None) if is_dropped else (End.VALUE, "loaded"))


def queued_turn(turns):
    turn = Turn(turns, "k")
    turn.is_queued = True
    assert turns.claim(turn)
    return turn


def test_a_queued_turn_gives_way_to_a_caller_that_can_lead(turns):
    queued = queued_turn(turns)
    assert turns.begin(Turn(turns, "k")) is Is.LEADS
    assert not turns.starts(queued)


# Claims of processes.


class Claim:
    """A claim that is free, or that another process has until the end of the wait."""

    def __init__(self, is_free=True):
        self.is_free = is_free
        self.is_held = False

    def take(self):
        self.is_held |= self.is_free
        return self.is_held

    def release(self):
        self.is_held = False


def test_a_leader_takes_the_claim_of_its_key_and_gives_it_back_at_the_end(turns):
    claim, asked = Claim(), []
    turns.claims = lambda key: asked.append(key) or claim
    turn = Turn(turns, "k")
    assert turns.lead(turn)
    assert (asked, claim.is_held, turn.is_behind) == ([("Turn", "k")], True, False)
    turn.end(End.AGAIN)
    assert not claim.is_held


@pytest.mark.parametrize("is_free", [True, False])
def test_a_queued_turn_that_another_process_is_ahead_of_ends_and_computes_nothing(turns, is_free):
    queued = queued_turn(turns)
    turns.claims = lambda key: Claim(is_free)
    assert turns.starts(queued) == is_free
    assert queued.ended is (None if is_free else End.AGAIN)


@pytest.mark.parametrize("alarm", [Alarm(), None], ids=["waits", "no wait is possible"])
def test_a_leader_that_is_behind_waits_for_the_alarm_of_its_claim_and_then_computes_the_value(turns, alarm):
    claim = Claim(is_free=False)
    claim.wait = lambda: alarm
    turns.claims = lambda key: claim
    turn = Turn(turns, "k")
    turns.claim(turn)
    assert [type(step) for step in wait_for_claim(turn, None)] == [Wait] * (alarm is not None)
    assert not turn.is_behind


@pytest.mark.parametrize(("is_behind", "leads_another", "latest"), [(1, 1, NESTED_WAIT), (1, 0, None), (0, 1, None)])
def test_code_with_another_turn_waits_for_another_process_for_a_bounded_time(
    turns, turn, is_behind, leads_another, latest
):
    own = Turn(turns, "other")
    own.is_behind = bool(is_behind)
    if not leads_another:
        turn.exit()
    until = wait_until(own, None, blocking=True)
    assert until is None if latest is None else until == pytest.approx(SystemClock.steady() + latest, abs=0.5)
    assert wait_until(own, 1.0, blocking=True) == 1.0
