"""A copy never outlives the timeout that this process gave to its value.

The cache behind goes by the system's clock and still has the value: what ends is the copy.
"""

from contextlib import suppress

import pytest

from tests.backends.adapter import DEFAULT
from tests.near_cache.stores import Down
from tests.near_cache.tiers import TIERS, WITH_ASYNC
from wheelcache.errors import MissingKey
from wheelcache.near_cache.written_timeouts import SLACK

pytestmark = pytest.mark.pairs(full="adapter")


WRITES = {
    "set": lambda tier, ttl: tier.set("k", 1, ttl),
    "add": lambda tier, ttl: tier.add("k", 1, ttl),
    "set_many": lambda tier, ttl: tier.set_many({"k": 1}, ttl),
    "load": lambda tier, ttl: tier.load("k", lambda: 1, ttl),
    "touch": lambda tier, ttl: (tier.set("k", 1, 1000), tier.get("k"), tier.touch("k", ttl)),
    "set twice": lambda tier, ttl: (tier.set("k", 2, 1), tier.get("k"), tier.set("k", 1, ttl)),
    "set and add": lambda tier, ttl: (tier.set("k", 1, ttl), tier.add("k", 2, 1)),
    "set and count": lambda tier, ttl: (tier.set("k", 0, ttl), tier.count("k")),
}
READS = {
    "get": lambda tier: tier.get("k"),
    "get_many": lambda tier: tier.get_many(["k"]).get("k"),
    "load": lambda tier: tier.load("k", pytest.fail),
}


def asks(tier, read=READS["get"]):
    """Return whether a read of "k", which finds its value, asks the cache behind."""
    tier.noted.calls.clear()
    assert read(tier) == 1
    return bool(tier.noted.calls)


def left(tier):
    """The seconds that the copy of "k" has left; None if there is none."""
    with suppress(MissingKey):
        return tier.ttl_left("k")


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("write", WRITES)
def test_a_copy_ends_with_the_timeout_that_this_process_set(make, adapter, clock, write, read):
    if write == "touch" and adapter is TIERS["flask"]:
        pytest.skip("there is no touch in cachelib")
    tier = make(l1_timeout=60)
    WRITES[write](tier, 20)
    clock.advance(5)
    read(tier)
    assert left(tier) == 15
    clock.advance(14.875)
    assert not asks(tier, read)
    clock.advance(0.125)
    # The cache behind may return the value a little longer.
    assert asks(tier, read)
    assert asks(tier, read)
    assert left(tier) is None
    # After that, also after a count that may have set the default timeout, the value is of another process.
    clock.advance(300 + SLACK)
    assert asks(tier, read)
    assert left(tier) == 60


@pytest.mark.parametrize(("ttl", "expected"), [(None, 600), (DEFAULT, 300)], ids=["never", "default"])
def test_without_a_timeout_of_its_own_a_value_has_that_of_the_cache_behind_or_none(make, clock, ttl, expected):
    tier = make(l1_timeout=600)
    for name in ("set", "add", "set_many", "load"):
        tier.clear()
        WRITES[name](tier, ttl)
        assert asks(tier)
        assert left(tier) == expected, name


def test_a_write_that_fails_lengthens_nothing_and_one_that_is_refused_changes_nothing(make, clock):
    tier = make(l1_timeout=60)
    for before, failing in ((20, 50), (50, 20)):
        tier.set("k", 1, before)
        tier.noted.error = Down()
        with pytest.raises(Down):
            tier.set("k", 1, failing)
        tier.noted.error = None
        assert asks(tier)
        assert left(tier) == 20
    tier = make(l1_timeout=60, fail_safe=300)
    tier.set("k", 1, 50)
    tier.noted.error = Down()
    for _ in range(5):
        tier.get("other")
    tier.set("k", 1, 20)
    tier.noted.error = None
    clock.advance(10)
    assert asks(tier)
    assert left(tier) == 40


@pytest.mark.parametrize("ttl", [0, -1, "delete", "delete_many"])
def test_after_a_delete_nothing_is_known_of_what_another_process_sets(make, adapter, clock, ttl):
    tier = make(l1_timeout=60)
    tier.set("k", 1, 20)
    if ttl == "delete":
        tier.delete("k")
    elif ttl == "delete_many":
        tier.delete_many(["k"])
    else:
        # To cachelib, 0 means never.
        tier.set("k", 2, -1 if adapter is TIERS["flask"] else ttl)
    assert tier.get("k") is None
    tier.behind.set("k", 1, 1000)
    assert asks(tier)
    assert left(tier) == 60


def test_an_incr_that_sets_the_value_again_gives_it_the_default_timeout(over, clock, tmp_path):
    """Django's own for caches that have none: those in files, in a database, and most for coroutines."""
    for name in ("django", "django async"):
        tier = over(WITH_ASYNC[name], "files", tmp_path / name, l1_timeout=600)
        tier.set("k", 0, 20)
        assert tier.count("k") == 1
        assert tier.get("k") == 1
        assert left(tier) == 300
