"""How long a value lives in Django's caches, with the default options: beside ``tests/backends``, what Django adds."""

import asyncio
from itertools import count
from typing import ClassVar

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from wheelcache.django_backend import WheelCache

KEYS = [f"key-{number}" for number in range(300)]
TIMEOUT = 100
TWO_WEEKS = 14 * 24 * 3600

_names = map("timeouts {}".format, count())


async def for_all(call):
    for key in KEYS:
        assert await call(key) is not False


def by_set(cache, *timeout):
    for key in KEYS:
        cache.set(key, 1, *timeout)


def by_aset(cache, *timeout):
    asyncio.run(for_all(lambda key: cache.aset(key, 1, *timeout)))


def by_set_many(cache, *timeout):
    assert cache.set_many(dict.fromkeys(KEYS, 1), *timeout) == []


def by_aset_many(cache, *timeout):
    asyncio.run(cache.aset_many(dict.fromkeys(KEYS, 1), *timeout))


def by_get_or_set(cache, *timeout):
    for key in KEYS:
        cache.get_or_set(key, 1, *timeout)


def by_aget_or_set(cache, *timeout):
    asyncio.run(for_all(lambda key: cache.aget_or_set(key, 1, *timeout)))


FILLS = [by_set, by_aset, by_set_many, by_aset_many, by_get_or_set, by_aget_or_set]


def by_add(cache, *timeout):
    for key in KEYS:
        assert cache.add(key, 1, *timeout)


def by_aadd(cache, *timeout):
    asyncio.run(for_all(lambda key: cache.aadd(key, 1, *timeout)))


def by_touch(cache, *timeout):
    cache.set_many(dict.fromkeys(KEYS, 1), 10 * TWO_WEEKS)
    for key in KEYS:
        assert cache.touch(key, *timeout)


def by_atouch(cache, *timeout):
    cache.set_many(dict.fromkeys(KEYS, 1), None)
    asyncio.run(for_all(lambda key: cache.atouch(key, *timeout)))


LOCKS = [by_add, by_aadd, by_touch, by_atouch]


@pytest.fixture
def cache(clock):
    return WheelCache(next(_names), {})


def left(cache):
    return len(cache.get_many(KEYS))


@pytest.mark.parametrize("fill", [by_aset, by_aset_many, by_aget_or_set])
def test_what_is_set_lives_no_longer_than_its_timeout_and_at_most_a_twentieth_shorter(cache, clock, fill):
    fill(cache, TIMEOUT)
    clock.advance(94.5)
    assert left(cache) == len(KEYS)
    clock.advance(3)
    assert 0 < left(cache) < len(KEYS)
    clock.advance(2.5)
    assert left(cache) == 0


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("timeout", [0.5, TWO_WEEKS])
def test_add_and_touch_keep_their_timeout_exactly(cache, clock, lock, timeout):
    lock(cache, timeout)
    clock.advance(timeout - 0.125)
    assert left(cache) == len(KEYS)
    assert not any(cache.add(key, "another", timeout) for key in KEYS)
    clock.advance(0.125)
    assert left(cache) == 0
    assert all(cache.add(key, "another", timeout) for key in KEYS)


@pytest.mark.parametrize("lock", LOCKS)
def test_add_and_touch_keep_the_aliass_own_timeout_exactly(clock, lock):
    cache = WheelCache(next(_names), {"TIMEOUT": 50})
    lock(cache)
    clock.advance(49.875)
    assert left(cache) == len(KEYS)
    clock.advance(0.125)
    assert left(cache) == 0


class Recorder(LocMemCache):
    """LocMemCache that notes what timeouts it is given, and each ``get``."""

    noted: ClassVar = []

    def _note(self, timeout):
        self.noted.append(timeout)

    def add(self, key, value, timeout=300, version=None):
        self._note(timeout)
        return super().add(key, value, timeout, version)

    def set(self, key, value, timeout=300, version=None):
        self._note(timeout)
        super().set(key, value, timeout, version)

    def touch(self, key, timeout=300, version=None):
        self._note(timeout)
        return super().touch(key, timeout, version)

    def get(self, key, default=None, version=None):
        self._note("get")
        return super().get(key, default, version)

    def get_many(self, keys, version=None):
        return {key: self.get(key, version=version) for key in keys if self.has_key(key, version=version)}


@pytest.fixture(params=[60, 24 * 3600], ids=["a minute", "a day"])
def l1_timeout(request):
    return request.param


@pytest.fixture
def tiered(l1_timeout, clock):
    """A TieredCache in front of a Recorder."""
    name = next(_names)
    configured = {
        "default": {"BACKEND": f"{__name__}.Recorder", "LOCATION": name, "OPTIONS": {"MAX_ENTRIES": 10_000}},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": name,
            "OPTIONS": {"L2": "default", "L1_TIMEOUT": l1_timeout},
        },
    }
    Recorder.noted.clear()
    with override_settings(CACHES=configured):
        yield caches["tiered"]


@pytest.mark.parametrize("write", [*FILLS, by_add, by_aadd])
def test_the_cache_behind_gets_every_timeout_exactly(tiered, write):
    write(tiered, 1000)
    assert [noted for noted in Recorder.noted if noted != "get"] == [1000] * len(KEYS)


@pytest.mark.parametrize("touch", [by_touch, by_atouch])
def test_the_cache_behind_is_touched_with_the_timeout_exactly(tiered, touch):
    touch(tiered, 1000)
    assert Recorder.noted[-len(KEYS) :] == [1000] * len(KEYS)


@pytest.mark.parametrize("many", [False, True], ids=["get", "get_many"])
def test_a_copy_is_kept_for_l1_timeout_and_at_most_a_minute_shorter(tiered, l1_timeout, clock, many):
    spread = min(l1_timeout / 20, 60)

    def asked():
        Recorder.noted.clear()
        if many:
            assert len(tiered.get_many(KEYS)) == len(KEYS)
        else:
            assert [tiered.get(key) for key in KEYS] == [1] * len(KEYS)
        return Recorder.noted.count("get")

    tiered.set_many(dict.fromkeys(KEYS, 1), None)
    assert asked() == len(KEYS)
    clock.advance(l1_timeout - spread - 0.125)
    assert asked() == 0
    clock.advance(spread / 2)
    asked_half_way = asked()
    assert 0 < asked_half_way < len(KEYS)
    clock.advance(spread / 2 + 0.125)
    assert asked() == len(KEYS) - asked_half_way
