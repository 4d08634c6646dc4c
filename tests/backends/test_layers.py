"""The contract of ``engine.layer.Layer``: entries in memory, those of the machine, copies of a store, and an open
transaction over each."""

from contextlib import ExitStack, contextmanager

import pytest
from django.db import transaction

from tests.backends.adapters import ADAPTERS
from tests.guests import needs
from wheelcache.core.contract import MISSING
from wheelcache.engine.guests import module_of
from wheelcache.runtime.steps import drive

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def announced():
    scope = module_of("transactions", "announced").transaction_scope
    scope.begin(announced)
    yield
    scope.rollback(announced)


def layer_of(framework, *guests, kind="memory"):
    name = " ".join((framework, *guests))
    return pytest.param((framework, kind, "transactions" in guests), id=name, marks=needs(*guests))


WITH_ENTRIES = [layer_of(name, *guests) for guests in ((), ("transactions",)) for name in ADAPTERS]
"""Layers that have the entries themselves."""

# cachelib's calls are fewer, and the TieredCache of Flask follows no transactions.
COPIES = [layer_of("django", "near_cache", *more, kind="copies") for more in ((), ("transactions",))]


class Driven:
    """The layers of a backend, driven as by a thread, with the final keys of ``a`` to ``d``."""

    def __init__(self, adapter, has_store):
        self._adapter, self.has_store = adapter, has_store
        self.a, self.b, self.c, self.d = self.keys = [adapter.key(each) for each in "abcd"]

    def __getattr__(self, name):
        return lambda *args, **given: drive(getattr(self._adapter.backend._chain, name)(*args, **given))

    def decoded(self, stored):
        return stored if stored is MISSING else self._adapter.backend._decode(stored)

    def values(self):
        return [self.decoded(self.look_up(key)) for key in self.keys]


@pytest.fixture(params=[*WITH_ENTRIES, *COPIES])
def layer(request, clock, monkeypatch):
    """A layer with ``a``, which expires after 10 seconds, and ``b``, which has a tag. The others are missing."""
    framework, kind, is_open = request.param
    options = {"transactions": True} if is_open else {}
    with ExitStack() as stack:
        if kind == "memory":
            made = ADAPTERS[framework].make(**options)
        else:
            from tests.near_cache.tiers import TierOnDjango, made_tiers

            made = stack.enter_context(made_tiers(list))(TierOnDjango, "wheel", **options)
        driven = Driven(made, has_store=kind == "copies")
        driven.set(driven.a, 1, 10)
        driven.set(driven.b, 2, None, ("tag",))
        if is_open:
            stack.enter_context(announced() if "flask" in framework else transaction.atomic())
        yield driven


def delete_a(layer):
    return layer.delete_pattern(lambda keys: [key for key in keys if key == layer.a], layer.a)


NO = MISSING
"""No entry, in the values of the keys ``a`` to ``d``."""

CALLS = {
    "look_up": (lambda layer: layer.look_up(layer.c), NO, [1, 2, NO, NO]),
    "find": (lambda layer: layer.find(layer.c, "default"), "default", [1, 2, NO, NO]),
    "get_many": (lambda layer: sorted(layer.get_many(layer.keys)) == [layer.a, layer.b], True, [1, 2, NO, NO]),
    "has": (lambda layer: [layer.has(key) for key in layer.keys], [True, True, False, False], [1, 2, NO, NO]),
    "seconds_left": (lambda layer: [layer.seconds_left(key) for key in layer.keys[:3]], [10, None, 0], [1, 2, NO, NO]),
    "set": (lambda layer: layer.set(layer.c, 3, None), True, [1, 2, 3, NO]),
    "set, another": (lambda layer: layer.set(layer.a, 3, None), True, [3, 2, NO, NO]),
    "set, over": (lambda layer: layer.set(layer.a, 3, 0), True, [NO, 2, NO, NO]),
    "add": (lambda layer: layer.add(layer.c, 3, None), True, [1, 2, 3, NO]),
    "add, existing": (lambda layer: layer.add(layer.a, 3, None), False, [1, 2, NO, NO]),
    "add, over": (lambda layer: layer.add(layer.c, 3, 0), True, [1, 2, NO, NO]),
    "add, existing and over": (lambda layer: layer.add(layer.a, 3, 0), False, [1, 2, NO, NO]),
    "replace": (lambda layer: layer.replace(layer.a, 3, None), True, [3, 2, NO, NO]),
    "replace, missing": (lambda layer: layer.replace(layer.c, 3, None), False, [1, 2, NO, NO]),
    "replace, over": (lambda layer: layer.replace(layer.a, 3, 0), True, [NO, 2, NO, NO]),
    "set_many": (lambda layer: layer.set_many({layer.a: 3, layer.c: 4}, None), [], [3, 2, 4, NO]),
    "set_many, over": (lambda layer: layer.set_many({layer.a: 3, layer.c: 4}, 0), [], [NO, 2, NO, NO]),
    "touch": (lambda layer: (layer.touch(layer.a, 7), layer.seconds_left(layer.a)), (True, 7), [1, 2, NO, NO]),
    "touch, missing": (lambda layer: layer.touch(layer.c, 7), False, [1, 2, NO, NO]),
    "touch, over": (lambda layer: layer.touch(layer.a, 0), True, [NO, 2, NO, NO]),
    "add_to": (lambda layer: (layer.add_to(layer.a, 5), layer.seconds_left(layer.a)), (6, 10), [6, 2, NO, NO]),
    "delete": (lambda layer: layer.delete(layer.a), True, [NO, 2, NO, NO]),
    "delete, missing": (lambda layer: layer.delete(layer.c), False, [1, 2, NO, NO]),
    "delete_many": (lambda layer: layer.delete_many([layer.a, layer.c]) in (1, None), True, [NO, 2, NO, NO]),
    "delete_tags": (lambda layer: layer.delete_tags(["tag", "other"]), None, [1, NO, NO, NO]),
    # A transaction counts those in memory.
    "delete_pattern": (lambda layer: delete_a(layer) in (0, 1), True, [NO, 2, NO, NO]),
    "clear": (lambda layer: layer.clear() in (None, True), True, [NO] * 4),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_its_result_and_its_effect(layer, name):
    call, result, values = CALLS[name]
    assert call(layer) == result
    assert layer.values() == values


# A store behind copies has its own result for a counter that is missing.


@pytest.mark.parametrize("layer", WITH_ENTRIES, indirect=True)
def test_a_missing_counter_has_no_value_without_a_start(layer):
    assert layer.add_to(layer.c, 5) is NO
    assert layer.values() == [1, 2, NO, NO]


@pytest.mark.parametrize("layer", WITH_ENTRIES, indirect=True)
def test_a_counter_that_begins_has_its_timeout_and_a_none_may_be_its_start(layer):
    assert layer.add_to(layer.c, 5, 1, 7) == 6
    assert layer.values() == [1, 2, 6, NO]
    layer.set(layer.d, None, 7)
    assert layer.add_to(layer.d, 5, 1, or_none=True) == 6
    assert [layer.seconds_left(each) for each in (layer.c, layer.d)] == [7, 7]


def test_an_entry_that_changes_in_place_keeps_its_tags_and_one_that_is_set_does_not(layer):
    layer.set(layer.a, 1, None, ("tag",))
    layer.set(layer.c, 3, None, ("tag",))
    layer.set(layer.c, 4, None)
    if not layer.has_store:
        layer.replace(layer.b, 5, None)
        layer.add_to(layer.b, 5)
    layer.touch(layer.a, 5)
    layer.delete_tags(["tag"])
    assert layer.values() == [NO, NO, 4, NO]


def test_an_entry_is_over_for_every_call_when_its_time_is_up(layer, clock):
    clock.advance(9.99)
    assert layer.has(layer.a)
    clock.advance(0.01)
    assert layer.values() == [NO, 2, NO, NO]
    assert (layer.has(layer.a), layer.seconds_left(layer.a)) == (False, 0)
    assert layer.delete(layer.a) is layer.touch(layer.a, 5) is layer.replace(layer.a, 3, 5) is False
    assert layer.add(layer.a, 4, 5) is True
