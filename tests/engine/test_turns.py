"""Turns: who leads, who waits, and what the waiters receive."""

from array import array

import pytest

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


OUTDATE = {
    "set": lambda cache, turns: cache.set("k", 1),
    "delete": lambda cache, turns: cache.delete("k"),
    "clear": lambda cache, turns: cache.clear(),
    "drop": lambda cache, turns: cache._parts.core.drop_tag(TAG),
    "read again": lambda cache, turns: turns.supersede("k"),
}


@pytest.mark.parametrize("way", [None, *OUTDATE])
@pytest.mark.parametrize("how", End)
def test_a_waiter_receives_the_end_of_the_turn_but_no_value_that_was_outdated_when_it_came(way, how):
    turns = turns_of(cache := Cache())
    turn, early, late, alone, later = (Turn(turns, "k", names=(TAG,)) for _ in range(5))
    assert turns.begin(turn) is Is.LEADS
    assert turns.begin(early, blocking=False) is Is.WAITS
    if way is not None:
        OUTDATE[way](cache, turns)
    assert turn.is_outdated() == (way is not None)
    assert turns.begin(late, blocking=False) is Is.WAITS
    assert turns.begin(alone, blocking=False, may_wait=False) is Is.ALONE
    assert not early.alarm.is_set
    assert (turn.end(how, "payload"), turn.end(End.ERROR, "a second end"), turn.alarm.is_set) == (True, False, True)
    assert early.result == (how, "payload")
    assert late.result == ((End.AGAIN, None) if way is not None and how is End.VALUE else (how, "payload"))
    for waiter in (early, late):
        waiter.close()
        assert waiter.waits_on is None
    assert turns.begin(later) is Is.LEADS
    for _ in range(2):
        later.close()
    assert (later.ended, turns.open) == (End.AGAIN, {})


def test_a_turn_ends_at_its_time_and_not_before(clock):
    turns = turns_of(Cache(), clock)
    turn = Turn(turns, "k", until=5.0)
    turns.begin(turn)
    clock.advance(4.9)
    assert turns.open_turn_after_cleanup("k") is turn
    clock.advance(0.1)
    assert turns.open_turn_after_cleanup("k") is None


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
