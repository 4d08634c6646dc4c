"""TieredCache over a store that reports no writes: values whose keys are written during their computation."""

from itertools import count

import pytest

from tests.near_cache.tiers import SERVERS, TIERS
from wheelcache.near_cache.store_calls import then

pytestmark = [
    pytest.mark.pairs(full="name, kind"),
    pytest.mark.servers,
]


KINDS = [(name, kind) for name, cls in TIERS.items() for kind in cls.kinds if kind != "memory"]
of_any_kind = pytest.mark.parametrize(("name", "kind"), KINDS)
names = pytest.mark.parametrize("name", TIERS)


@pytest.fixture
def make(over, request, tmp_path):
    """Make a tier that acts as one in another process."""
    sizes = count(7)

    def make(name, kind="files", **options):
        fixture = SERVERS.get(kind)
        place = request.getfixturevalue(fixture) if fixture else tmp_path / "files"
        return over(TIERS[name], kind, place, name=request.node.name, max_entries=next(sizes), **options)

    return make


@pytest.fixture
def pair(make):
    def pair(name, kind="files", **options):
        pair = make(name, kind, **options), make(name, kind, **options)
        pair[0].clear()
        # Otherwise the first token would be the first value that a store receives.
        pair[0].backend.set("made", 1, tags=["a"])
        return pair

    return pair


STORES = {
    "set": ("set", lambda tier: tier.set("k", "old")),
    "set with tags": ("set", lambda tier: tier.backend.set("k", "old", tags=["a"])),
    "add": ("add", lambda tier: tier.add("k", "old")),
    "set_many": ("set_many", lambda tier: tier.set_many({"k": "old", "other": 1})),
}
MISSES = {"get": lambda tier: tier.get("k"), "get_many": lambda tier: tier.get_many(["k"])}
WRITES = {
    "set": lambda tier: tier.set("k", "new"),
    "delete": lambda tier: tier.delete("k"),
    "clear": lambda tier: tier.clear(),
}
stores = pytest.mark.parametrize(("method", "store"), STORES.values(), ids=STORES)
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def around(tier, method, before=lambda: None, after=lambda: None):
    """Call functions directly before and after the next call of a method of the store behind, by any process."""
    l2 = tier.backend.l2 if hasattr(tier.backend, "l2") else tier.backend._l2
    for name in (method, f"a{method}"):
        if hasattr(l2, name):
            _around(l2, name, before, after)


def _around(l2, name, before, after):
    call = getattr(l2, name)

    def called(*args, **kwargs):
        delattr(l2, name)
        before()
        result = call(*args, **kwargs)

        def ended(result):
            after()
            return result

        return then(ended, result)

    setattr(l2, name, called)


def found(*tiers):
    return [tier.get("k") for tier in tiers]


LATER = {
    "the next write": lambda tier, clock: tier.set("k", "filled"),
    "a later request": lambda tier, clock: tier.end_request(),
    "ten seconds later": lambda tier, clock: clock.advance(10.1),
    "a delete by the same caller": lambda tier, clock: tier.delete("k"),
    "a load": lambda tier, clock: tier.load("k", lambda: "loaded"),
}
