"""FILL_WAIT in a TieredCache. ``test_fill_wait`` tests the leases themselves."""

import pytest

from tests.guests import needs
from tests.near_cache.tiers import TIERS
from tests.waiting import PATIENCE, until_waiting

pytestmark = needs("fill_waits")


@pytest.mark.parametrize("adapter", TIERS.values(), ids=TIERS, indirect=True)
@pytest.mark.parametrize("value", [["value"], None], ids=repr)
def test_with_fill_wait_a_miss_waits_for_the_set_of_another_thread(make, in_thread, value):
    tier = make(fill_wait=60)
    assert tier.get("k") is None
    waiter = in_thread(tier.get, "k", "nothing")
    until_waiting()
    tier.set("k", value)
    assert waiter.result(PATIENCE) == value
    assert tier.behind.get("k") == value
    # A copy delays no reader.
    assert in_thread(tier.get, "k").result(PATIENCE) == value


def test_a_value_that_the_cache_behind_refuses_is_given_to_no_waiter(over, in_thread, monkeypatch):
    tier = over(TIERS["flask"], fill_wait=60)
    assert tier.get("k") is None
    waiter = in_thread(tier.get, "k")
    until_waiting()
    monkeypatch.setattr(tier.noted, "set", lambda *args, **given: False)
    tier.set("k", "value")
    assert waiter.result(PATIENCE) is None
