"""The lifetime of a value with default options: never longer than its TTL, and only a little shorter."""

import asyncio

import pytest

from wheelcache import Cache

KEYS = range(300)
TTL = 100
TWO_WEEKS = 14 * 24 * 3600


async def take_all(cache, ttl):
    for key in KEYS:
        await cache.aget_or_load(key, lambda: "value", ttl)


FILLS = {
    "set": lambda cache, ttl: [cache.set(key, key, ttl) for key in KEYS],
    "set again": lambda cache, ttl: [cache.set(key, key, each) for each in (10 * ttl, ttl) for key in KEYS],
    "set_many": lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS), ttl),
    "get_or_load": lambda cache, ttl: [cache.get_or_load(key, lambda: 1, ttl) for key in KEYS],
    "take with grace": lambda cache, ttl: [cache.get_or_load(key, lambda: 1, ttl, grace=5) for key in KEYS],
    "negative_ttl": lambda cache, ttl: [
        cache.get_or_load(key, lambda: None, 10 * ttl, negative_ttl=ttl) for key in KEYS
    ],
    "aget_or_load": lambda cache, ttl: asyncio.run(take_all(cache, ttl)),
    "memoize": lambda cache, ttl: [*map(cache.memoize(ttl)(lambda number: number), KEYS)],
}


def touched(cache, ttl, before, **options):
    for key in KEYS:
        cache.get_or_load(key, lambda: "value", before, **options)
        assert cache.touch(key, ttl)


EXACT = {
    "add": lambda cache, ttl: [cache.add(key, key, ttl) for key in KEYS],
    "set_many without jitter": lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS), ttl, jitter=False),
    "touch": lambda cache, ttl: touched(cache, ttl, 10 * ttl),
    "touch for longer": lambda cache, ttl: touched(cache, ttl, 0.1 * ttl),
    "touch of an entry without expiry": lambda cache, ttl: touched(cache, ttl, None),
    "touch of an entry with a grace": lambda cache, ttl: touched(cache, ttl, 10 * ttl, grace=5),
}


@pytest.fixture
def cache(clock):
    return Cache(clock=clock, ttl=50)


def lifetimes(cache):
    return [cache.expires_in(key) for key in cache.keys()]


@pytest.mark.pairs(full="ttl", of="ttl")
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize(("ttl", "most"), [(TTL, 5), (TWO_WEEKS, 60)])
def test_what_is_filled_lives_no_longer_than_its_ttl_and_a_twentieth_or_a_minute_shorter(cache, clock, fill, ttl, most):
    fill(cache, ttl)
    expiries = lifetimes(cache)
    assert len(expiries) == len(KEYS)
    assert ttl - most <= min(expiries) < ttl - 0.8 * most
    assert ttl - 0.2 * most < max(expiries) <= ttl
    clock.advance(ttl)
    assert cache.keys() == []


@pytest.mark.parametrize("write", EXACT.values(), ids=EXACT)
def test_add_and_touch_keep_their_ttl_exactly(cache, write):
    write(cache, 0.25)
    assert set(lifetimes(cache)) == {0.25}


def test_add_and_touch_keep_the_caches_own_ttl_exactly(cache):
    for key in KEYS:
        cache.add(key, key)
        cache.set(-key - 1, key)
        cache.touch(-key - 1)
    assert set(lifetimes(cache)) == {50}
