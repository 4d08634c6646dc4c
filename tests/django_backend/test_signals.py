"""``entry_removed``: what receivers are told, and that without one there is nothing to tell."""

import gc
import logging
import threading

import pytest
from django.core.cache import caches

import wheelcache
from tests.engines import engine
from tests.waiting import until
from wheelcache import RemovalCause
from wheelcache.django_backend import TieredCache, WheelCache, stores
from wheelcache.django_backend.signals import entry_removed


@pytest.fixture
def removed():
    """What a receiver was told: (sender, location, key, cause)."""
    told = []

    def receiver(sender, location, key, cause, **kwargs):
        assert set(kwargs) == {"signal"}
        told.append((sender, location, key, cause))

    entry_removed.connect(receiver)
    yield told
    entry_removed.disconnect(receiver)
    assert not listening()


@pytest.fixture
def settings_with_tiers(settings):
    settings.CACHES = {
        "default": {"BACKEND": "wheelcache.django_backend.WheelCache"},
        "origin": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "signals"},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": "copies",
            "OPTIONS": {"L2": "origin", "LOG_INTERVAL": None},
        },
    }


def listening():
    """The caches that have a listener."""
    # Without those that other tests have left, and that are not collected yet.
    gc.collect()
    return [each for each in wheelcache.caches() if each.on_removal is not None]


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
        (WheelCache, "shop", "p:3:b", RemovalCause.DELETED),
        (WheelCache, "shop", "p:3:d", RemovalCause.EXPIRED),
        (WheelCache, "shop", "p:3:c", RemovalCause.CLEARED),
    ]


def test_a_key_that_django_warns_of_is_told_as_any_other(make, removed):
    cache = make(location="odd")
    with pytest.warns(Warning, match="errors if used with memcached"):
        cache.set("with space", 1)
    with pytest.warns(Warning, match="errors if used with memcached"):
        cache.delete("with space")
    assert removed == [(WheelCache, "odd", ":1:with space", RemovalCause.DELETED)]


def test_the_copies_of_a_tiered_cache_are_its_entries(settings_with_tiers, removed):
    tiered = caches["tiered"]
    caches["origin"].set("a", 1)
    del removed[:]
    assert tiered.get("a") == 1
    tiered.delete("a")
    assert (TieredCache, "copies", ":1:a", RemovalCause.DELETED) in removed


def test_receivers_may_choose_a_sender(make, removed):
    chosen = []

    def receiver(sender, **kwargs):
        chosen.append(sender)

    entry_removed.connect(receiver, sender=TieredCache)
    cache = make()
    cache.set("a", 1)
    cache.delete("a")
    entry_removed.disconnect(receiver, sender=TieredCache)
    assert not chosen
    assert len(removed) == 1


def test_without_a_receiver_no_cache_has_a_listener(make):
    before = make()
    before.set("a", 1)
    assert not listening()
    assert not stores.watchers

    def receiver(**kwargs):
        pass

    entry_removed.connect(receiver)
    during = make()
    assert {engine(before), engine(during)} <= set(listening())
    assert entry_removed.disconnect(receiver)
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

    entry_removed.connect(broken)
    cache = make()
    cache.set("a", 1)
    with caplog.at_level(logging.ERROR):
        assert cache.delete("a")
    entry_removed.disconnect(broken)
    assert len(removed) == 1
    [record] = caplog.records
    assert record.name == "django.dispatch"
    assert record.exc_info[0] is ZeroDivisionError


def test_a_receiver_may_use_the_cache_whose_entry_left(make):
    cache = make()

    def receiver(key, cause, **kwargs):
        if key == ":1:a":
            cache.set("b", cause.value)

    entry_removed.connect(receiver)
    cache.set("a", 1)
    cache.delete("a")
    entry_removed.disconnect(receiver)
    assert cache.get("b") == "deleted"


def test_who_listened_to_a_cache_before_is_called_on_and_is_there_afterwards(make):
    cache = make()
    heard = []

    def listener(key, value, cause):
        heard.append(("listener", key, cause))

    def receiver(key, cause, **kwargs):
        heard.append(("receiver", key, cause))

    engine(cache).on_removal = listener
    entry_removed.connect(receiver)
    cache.set("a", 1)
    cache.delete("a")
    assert heard == [(each, ":1:a", RemovalCause.DELETED) for each in ("receiver", "listener")]
    entry_removed.disconnect(receiver)
    assert engine(cache).on_removal is listener
    engine(cache).on_removal = None


def test_a_coroutine_function_is_refused(make):
    async def receiver(**kwargs):
        pass

    with pytest.raises(TypeError, match="no coroutine functions"):
        entry_removed.connect(receiver)
    assert not entry_removed.receivers


def test_what_the_wheel_thread_expires_is_sent_from_there(make, removed):
    threads = set()

    def receiver(**kwargs):
        threads.add(threading.current_thread())

    entry_removed.connect(receiver)
    cache = make({"INTERVAL": 0.01})
    cache.set("a", 1, 0.02)
    assert until(lambda: removed)
    entry_removed.disconnect(receiver)
    assert removed[0][3] is RemovalCause.EXPIRED
    assert threading.current_thread() not in threads


def test_connecting_and_disconnecting_at_once_leaves_no_listener(make, together):
    caches = [make() for _ in range(3)]

    def come_and_go(number):
        def receiver(**kwargs):
            pass

        for turn in range(50):
            entry_removed.connect(receiver)
            caches[turn % 3].set("a", turn)
            caches[turn % 3].delete("a")
            entry_removed.disconnect(receiver)

    assert not any(together(come_and_go))
    assert not listening()
    assert not entry_removed.receivers
