"""TieredCache over a store that reports no writes: values whose keys are written while they are stored."""

import pytest

from tests.near_cache.tiers import KINDS, TIERS
from wheelcache.near_cache.store_calls import then

pytestmark = pytest.mark.pairs(full="name, kind")

of_any_kind = pytest.mark.parametrize(("name", "kind"), [each for each in KINDS if "memory" not in each.values])


@pytest.fixture
def pair(tier_of, request):
    """Make two tiers that act as ones in two processes."""

    def pair(name, kind="files"):
        tiers = [tier_of(name, kind, name=request.node.name, max_entries=size) for size in (7, 8)]
        tiers[0].clear()
        return tiers

    return pair


def around_add(tier, before=lambda: None, after=lambda: None):
    """Call functions directly before and after the next ``add`` of the store behind."""
    l2 = getattr(tier.backend, "l2", None) or tier.backend._l2
    call = l2.add

    def called(*args, **kwargs):
        del l2.add
        before()
        return then(lambda result: (after(), result)[1], call(*args, **kwargs))

    l2.add = called


@of_any_kind
def test_a_value_whose_key_was_deleted_while_it_was_stored_is_removed_from_the_store(pair, in_thread, name, kind):
    tier, other = pair(name, kind)
    around_add(tier, before=lambda: in_thread(tier.delete, "k").result())
    assert tier.load("k", lambda: "old") == "old"
    assert tier.behind.get("k") is None
    assert tier.get("k") is other.get("k") is None


@of_any_kind
def test_a_newer_value_of_another_process_stays_when_a_late_one_is_removed(pair, in_thread, name, kind):
    tier, other = pair(name, kind)

    def write():
        in_thread(tier.delete, "k").result()
        other.set("k", "newer")

    around_add(tier, after=write)
    tier.load("k", lambda: "old")
    assert tier.get("k") == other.get("k") == "newer"


@pytest.mark.parametrize("name", TIERS)
def test_an_add_whose_value_was_outdated_while_it_was_stored_returns_false(pair, in_thread, name):
    """So the caller looks again, and returns the value of the newer write."""
    tier, _ = pair(name)
    around_add(tier, after=lambda: in_thread(tier.set, "k", "newer").result())
    assert tier.load("k", lambda: "old") == "newer"
