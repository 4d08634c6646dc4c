"""Which transaction a call sees, and calls that act immediately beside the deletes and values of their block."""

from contextlib import suppress

import pytest
from django.db import transaction

from tests.transactions.conftest import rolled_back
from wheelcache import ManualClock
from wheelcache.transactions.overlay import HIDDEN, Fill, Overlay

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_transaction_is_followed_if_turning_autocommit_off_opens_the_connection(cache, others):
    def roll_back():
        transaction.set_autocommit(False)
        cache.set("key", "rolled back")
        transaction.rollback()
        transaction.set_autocommit(True)

    others(roll_back)
    assert cache.get("key") is None


@pytest.mark.parametrize("call", [lambda cache: cache.touch("key", 100), lambda cache: cache.incr("key")])
def test_an_immediate_call_that_finds_nothing_keeps_the_delete_of_the_block(cache, others, call):
    cache.set("key", 1)
    with transaction.atomic():
        cache.delete("key")
        with rolled_back(), suppress(ValueError):
            assert not call(cache)
        others(cache.get_or_set, "key", lambda: 1)
        assert cache.get("key") is None
    assert others(cache.get, "key") is None


@pytest.mark.parametrize("look", ["get", "get_many"])
def test_a_set_replaces_the_entry_that_an_immediate_call_has_made_in_the_same_block(cache, others, look):
    with transaction.atomic():
        assert not getattr(cache, look)("key" if look == "get" else ["key"])
        assert cache.add("key", "added")
        cache.set("key", "set")
        assert cache.get("key") == "set"
        assert others(cache.get, "key") == "added"
    assert others(cache.get, "key") in (None, "set")


def test_an_immediate_key_is_there_for_every_call_after_the_transaction_has_cleared_the_cache(cache):
    cache.set("throttle_user", [1])
    with transaction.atomic():
        cache.set("key", 1)
        cache.clear()
        found = cache.get("throttle_user"), cache.get_many(["throttle_user", "key"]), cache.has_key("throttle_user")
        assert found == ([1], {"throttle_user": [1]}, True)


@pytest.mark.parametrize("drops_tags", [False, True])
def test_a_value_of_a_block_is_hidden_from_the_moment_of_its_end(drops_tags):
    clock = ManualClock(0.0)
    overlay = Overlay(None, clock, None, None)
    if drops_tags:
        overlay.drop_tags({"other": None})
    fill = Fill(None, "value", 10.0)
    overlay.set("key", fill)
    clock.advance(9.5)
    assert overlay.find("key") is fill
    clock.advance(0.5)
    assert overlay.find("key") is HIDDEN
