"""``entry_removed``: the arguments of its receivers, and caches without listeners if there are none."""

import gc
import logging
from contextlib import contextmanager

import pytest
from django.core.cache import caches
from django.utils.module_loading import import_string

from tests.django_backend.conftest import LOCMEM
from tests.engines import engine
from tests.guests import needs
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


def test_every_cause_is_sent_once_with_the_key_as_it_was_made(make, clock, removed):
    cache = make({"MAX_ENTRIES": 2}, location="shop", KEY_PREFIX="p", VERSION=3)
    cache.set("a", 1, 10)
    cache.set("a", 2, 10)
    cache.set("b", [1], None)
    cache.set("c", 1, None)
    cache.delete("b")
    cache.set("d", 1, 5)
    clock.advance(7)
    cache.clear()
    assert removed == [
        (WheelCache, "shop", "p:3:a", RemovalCause.REPLACED),
        (WheelCache, "shop", "p:3:a", RemovalCause.EVICTED),
        (WheelCache, "shop", "p:3:b", DELETED),
        (WheelCache, "shop", "p:3:d", RemovalCause.EXPIRED),
        (WheelCache, "shop", "p:3:c", RemovalCause.CLEARED),
    ]


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_a_key_that_django_warns_of_is_told_as_any_other(make, removed):
    cache = make(location="odd")
    cache.set("with space", 1)
    cache.delete("with space")
    assert removed == [(WheelCache, "odd", ":1:with space", DELETED)]


@needs("near_cache")
def test_the_copies_of_a_tiered_cache_are_its_entries_and_receivers_may_choose_a_sender(settings, make, removed):
    settings.CACHES = {
        "default": {"BACKEND": LOCMEM, "LOCATION": "signals"},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": "copies",
            "OPTIONS": {"L2": "default"},
        },
    }
    chosen, tiered = [], import_string(settings.CACHES["tiered"]["BACKEND"])

    def receiver(sender, location, **kwargs):
        chosen.append(location)

    with connected(receiver, sender=tiered):
        remove(make())
        assert (len(removed), chosen) == (1, [])
        caches["default"].set("a", 1)
        assert caches["tiered"].get("a") == 1
        caches["tiered"].delete("a")
    assert removed[1:] == [(tiered, "copies", ":1:a", DELETED)]
    assert chosen == ["copies"]


def test_without_a_receiver_no_cache_has_a_listener(make):
    before = make()
    before.set("a", 1)
    assert not listening()
    assert not stores.watchers

    def receiver(**kwargs):
        pass

    with connected(receiver):
        during = make()
        assert {engine(before), engine(during)} <= set(listening())
    assert not listening()
    assert not stores.watchers
    assert not entry_removed.disconnect(receiver)


def test_a_receiver_that_is_gone_is_noticed_at_the_next_removal(make):
    class Receiver:
        def __call__(self, **kwargs):
            raise AssertionError

    receiver = Receiver()
    entry_removed.connect(receiver)
    cache = make()
    cache.set("a", 1)
    assert engine(cache) in listening()
    del receiver
    gc.collect()
    cache.delete("a")
    assert not listening()
    assert not stores.watchers


def test_a_receiver_that_raises_is_logged_and_the_others_are_told(make, caplog, removed):
    def broken(**kwargs):
        raise ZeroDivisionError

    with connected(broken), caplog.at_level(logging.ERROR):
        remove(make())
    assert len(removed) == 1
    [record] = caplog.records
    assert (record.name, record.exc_info[0]) == ("django.dispatch", ZeroDivisionError)


def test_a_receiver_may_use_the_cache_whose_entry_left(make):
    cache = make()

    def receiver(key, cause, **kwargs):
        if key == ":1:a":
            cache.set("b", cause.value)

    with connected(receiver):
        remove(cache)
    assert cache.get("b") == "deleted"


def test_a_listener_of_before_is_called_on_and_is_there_afterwards(make):
    cache = make()
    heard = []

    def listener(key, value, cause):
        heard.append(("listener", key, cause))

    def receiver(key, cause, **kwargs):
        heard.append(("receiver", key, cause))

    engine(cache).on_removal = listener
    with connected(receiver):
        remove(cache)
    assert heard == [(each, ":1:a", DELETED) for each in ("receiver", "listener")]
    assert engine(cache).on_removal is listener
    engine(cache).on_removal = None


def test_a_coroutine_function_is_refused():
    async def receiver(**kwargs):
        pass

    with pytest.raises(TypeError, match="must not be coroutine functions"):
        entry_removed.connect(receiver)
    assert not entry_removed.receivers


def test_connecting_and_disconnecting_at_once_leaves_no_listener(make, together):
    made = [make() for _ in range(3)]

    def come_and_go(number):
        def receiver(**kwargs):
            pass

        for turn in range(20):
            with connected(receiver):
                remove(made[turn % 3])

    assert not any(together(come_and_go))
    assert not listening()
    assert not entry_removed.receivers
