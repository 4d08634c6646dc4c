"""``entry_removed``: the arguments of its receivers, and caches without listeners if there are none."""

import logging
from contextlib import contextmanager

import pytest

from tests.engines import engine
from wheelcache import RemovalCause
from wheelcache.django_backend import WheelCache, stores
from wheelcache.django_backend.signals import entry_removed

DELETED = RemovalCause.DELETED


@contextmanager
def connected(receiver, **choice):
    entry_removed.connect(receiver, **choice)
    yield
    assert entry_removed.disconnect(receiver, **choice)


@pytest.fixture
def removed():
    """Return the calls of a receiver: (sender, location, key, cause)."""
    told = []

    def receiver(sender, location, key, cause, **kwargs):
        assert set(kwargs) == {"signal"}
        # Entries of the contract's tests may expire meanwhile.
        if not location.startswith("contract "):
            told.append((sender, location, key, cause))

    with connected(receiver):
        yield told
    assert not listening()


def listening():
    """Return the caches that have a listener."""
    return [store.cache for _, store in stores.stores_with_locations() if store.cache.on_removal is not None]


def remove(cache):
    cache.set("a", 1)
    cache.delete("a")


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_every_cause_is_sent_once_with_the_key_as_it_was_made(make, clock, removed):
    cache = make({"MAX_ENTRIES": 2}, location="shop", KEY_PREFIX="p", VERSION=3)
    cache.set("a", 1, 10)
    cache.set("a", 2, 10)
    cache.set("with space", [1], None)
    cache.set("c", 1, None)
    cache.delete("with space")
    cache.set("d", 1, 5)
    clock.advance(7)
    cache.clear()
    assert removed == [
        (WheelCache, "shop", "p:3:a", RemovalCause.REPLACED),
        (WheelCache, "shop", "p:3:a", RemovalCause.EVICTED),
        (WheelCache, "shop", "p:3:with space", DELETED),
        (WheelCache, "shop", "p:3:d", RemovalCause.EXPIRED),
        (WheelCache, "shop", "p:3:c", RemovalCause.CLEARED),
    ]


def test_without_a_receiver_no_cache_has_a_listener(make):
    before = make()
    received, told = [], []

    def receiver(key, cause, **kwargs):
        received.append(key)

    assert (listening(), stores.watchers) == ([], [])
    with connected(receiver):
        during = make()
        assert {engine(before), engine(during)} <= set(listening())
    assert (listening(), stores.watchers) == ([], [])
    assert not entry_removed.disconnect(receiver)
    # A listener that is there before is called as well, and stays.
    engine(before).on_removal = lambda key, value, cause: told.append(key)
    with connected(receiver):
        remove(before)
    remove(before)
    assert (received, told) == ([":1:a"], [":1:a"] * 2)
    engine(before).on_removal = None


def test_a_receiver_that_raises_is_logged_and_the_others_are_told(make, caplog, removed):
    def broken(**kwargs):
        raise ZeroDivisionError

    with connected(broken), caplog.at_level(logging.ERROR):
        remove(make())
    assert len(removed) == 1
    [record] = caplog.records
    assert (record.name, record.exc_info[0]) == ("django.dispatch", ZeroDivisionError)


def test_a_coroutine_function_is_refused():
    async def receiver(**kwargs):
        pass

    with pytest.raises(TypeError, match="must not be coroutine functions"):
        entry_removed.connect(receiver)
    assert not entry_removed.receivers
