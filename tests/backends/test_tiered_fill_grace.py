"""FILL_GRACE in a TieredCache: the copies that may be returned after the end of their values.

``test_fill_grace`` tests the behavior that a TieredCache shares with a WheelCache.
"""

from contextlib import ExitStack
from functools import partial

import pytest

from tests.backends.tiers import TIERS
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import KEEP

pytestmark = pytest.mark.usefixtures("own_stamps")

LONG = 1000
L1_TIMEOUT, TTL, GRACE = 60, 300, 30
OLD, NEW = ["old"], ["new"]
OPTIONS = {"fill_wait": LONG, "fill_grace": GRACE, "l1_timeout": L1_TIMEOUT}


@pytest.fixture
def cleanup():
    with ExitStack() as cleanup:
        yield cleanup


@pytest.fixture(params=TIERS.values(), ids=TIERS)
def adapter(request):
    return request.param


@pytest.fixture
def make(adapter, cleanup, clock):
    return partial(adapter.over_wheel_cache, cleanup)


@pytest.fixture
def tier(make):
    return make(**OPTIONS)


@pytest.fixture
def other(tier, cleanup):
    return tier.in_another_process(cleanup, **OPTIONS)


@pytest.fixture
def others_get_the_old_value(in_thread):
    """Let one caller miss "key" and ask for it with another one. Return whether that one gets the old value."""

    def ask(tier):
        assert tier.get("key") is None
        asking = in_thread(tier.get, "key")
        assert until(lambda: asking.done() or waiting() == 1)
        tier.set("key", NEW, TTL)
        found = asking.result(PATIENCE)
        assert found in (OLD, NEW)
        return found == OLD

    return ask


def keep_copy(tier):
    assert tier.get("key") == OLD


def test_without_coherence_it_is_refused(make, adapter):
    name, needed = adapter.spelled("fill_grace"), adapter.spelled("coherence")
    for seconds in (5, {"page:": 5}):
        with pytest.raises(
            adapter.refused, match=f"{name} of a TieredCache must be 0, not 5, unless {needed} is 'host'"
        ):
            make(**{**OPTIONS, "coherence": None, "fill_grace": seconds})
    make(**{**OPTIONS, "coherence": None, "fill_grace": 0})


@pytest.mark.parametrize(("seconds", "is_returned"), [(TTL, True), (TTL + GRACE - 1, True), (TTL + GRACE, False)])
def test_a_copy_is_returned_for_that_long_after_the_end_of_its_value(
    tier, clock, others_get_the_old_value, seconds, is_returned
):
    tier.set("key", OLD, TTL)
    clock.advance(10)
    keep_copy(tier)
    clock.advance(seconds - 10)
    assert others_get_the_old_value(tier) is is_returned


def test_while_the_store_has_the_value_it_is_asked(tier, clock):
    tier.set("key", OLD, TTL)
    keep_copy(tier)
    tier.behind.set("key", NEW, TTL)
    clock.advance(L1_TIMEOUT)
    assert tier.get("key") == NEW


@pytest.mark.parametrize("end", [lambda behind: behind.delete("key"), lambda behind: behind.clear()])
def test_a_value_that_left_the_store_before_its_end_is_not_returned(tier, clock, others_get_the_old_value, end):
    tier.set("key", OLD, TTL)
    keep_copy(tier)
    end(tier.behind)
    clock.advance(L1_TIMEOUT)
    assert not others_get_the_old_value(tier)


WRITES = {
    "delete": lambda tier: tier.delete("key"),
    "delete_many": lambda tier: tier.delete_many(["key"]),
    "clear": lambda tier: tier.clear(),
    "set that is over immediately": lambda tier: tier.set("key", 1, -1),
    "set and its end": lambda tier: tier.set("key", 1, 1),
    "add and its end": lambda tier: tier.add("key", 1, 1),
}


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_leased", [False, True])
def test_an_expired_value_that_another_process_writes_or_deletes_is_not_returned(
    tier, other, clock, in_thread, write, is_leased
):
    tier.set("key", OLD, TTL)
    clock.advance(TTL - 10)
    keep_copy(tier)
    clock.advance(10)
    if is_leased:
        assert tier.get("key") is None
    in_thread(write, other).result(PATIENCE)
    clock.advance(1)
    if not is_leased:
        assert tier.get("key") is None
    asking = in_thread(tier.get, "key")
    until_waiting()
    tier.set("key", NEW)
    # A value whose computation began before the write is not kept.
    assert asking.result(PATIENCE) == (None if is_leased else NEW)


@pytest.mark.parametrize(("seconds", "is_returned"), [(L1_TIMEOUT + GRACE - 1, True), (L1_TIMEOUT + GRACE, False)])
def test_a_copy_of_a_value_of_another_process_is_returned_for_that_long_after_its_own_end(
    tier, other, clock, others_get_the_old_value, seconds, is_returned
):
    other.set("key", OLD, 10)
    keep_copy(tier)
    clock.advance(seconds)
    assert others_get_the_old_value(tier) is is_returned


def test_look_ups_of_another_kind_leave_the_old_copy(tier, clock, others_get_the_old_value):
    tier.set("key", OLD, TTL)
    clock.advance(TTL - 10)
    keep_copy(tier)
    clock.advance(10)
    assert (tier.has("key"), tier.get_many(["key", "another"]), tier.get("another")) == (False, {}, None)
    assert others_get_the_old_value(tier)


def test_a_store_that_returns_the_value_a_little_longer_leaves_the_old_copy(tier, clock, others_get_the_old_value):
    tier.set("key", OLD, TTL)
    tier.behind.set("key", OLD, TTL + 1)
    clock.advance(TTL - 10)
    keep_copy(tier)
    clock.advance(10.5)
    keep_copy(tier)
    clock.advance(0.5)
    assert others_get_the_old_value(tier)


def test_a_store_that_returns_another_value_past_the_end_leaves_no_old_copy(tier, clock, others_get_the_old_value):
    tier.set("key", OLD, TTL)
    clock.advance(TTL - 10)
    keep_copy(tier)
    tier.behind.set("key", NEW, 11)
    clock.advance(10.5)
    assert tier.get("key") == NEW
    clock.advance(0.5)
    assert not others_get_the_old_value(tier)


def test_a_loader_receives_the_old_copy_and_may_keep_it(tier, clock):
    received = []

    def load(previous=None):
        received.append(previous)
        if previous is None:
            return OLD
        previous.append("changed")
        return KEEP

    assert tier.load("key", load, TTL) == OLD
    clock.advance(TTL - 10)
    keep_copy(tier)
    clock.advance(10)
    assert tier.load("key", load, TTL) == OLD
    assert received == [None, ["old", "changed"]]
    assert tier.behind.get("key") == OLD
    clock.advance(TTL - 1)
    keep_copy(tier)
    clock.advance(1)
    tier.delete("key")
    assert tier.load("key", load, TTL) == OLD
    assert received[2:] == [None]
