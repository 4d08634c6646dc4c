"""The lifetime of a value with default options: never longer than its TTL, and only a little shorter."""

import asyncio

import pytest

from tests.engine import invariants
from wheelcache import Cache

KEYS = range(300)
TTL = 100
TWO_WEEKS = 14 * 24 * 3600


def each(call):
    """A way to write all keys, one by one."""
    return lambda cache, ttl: [call(cache, key, ttl) for key in KEYS]


def after(before, call):
    """A way to write all keys, which all exist."""
    return lambda cache, ttl: (before(cache, ttl), [call(cache, key, ttl) for key in KEYS])


def many(factor):
    return lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS), ttl * factor)


def take_async(cache, ttl):
    async def take_all():
        for key in KEYS:
            await cache.aget_or_load(key, lambda: "value", ttl)

    asyncio.run(take_all())


def call_memoized(cache, ttl):
    function = cache.memoize(ttl, key=lambda number: number)(lambda number: number)
    for key in KEYS:
        function(key)


FILLS = {
    "set": each(lambda cache, key, ttl: cache.set(key, key, ttl)),
    "set again": after(many(10), lambda cache, key, ttl: cache.set(key, key, ttl)),
    "set_many": many(1),
    "get_or_load": each(lambda cache, key, ttl: cache.get_or_load(key, lambda: "value", ttl)),
    "take with grace": each(lambda cache, key, ttl: cache.get_or_load(key, lambda: "value", ttl, grace=5)),
    "negative_ttl": each(lambda cache, key, ttl: cache.get_or_load(key, lambda: None, 10 * ttl, negative_ttl=ttl)),
    "aget_or_load": take_async,
    "memoize": call_memoized,
}


def touch(cache, key, ttl):
    assert cache.touch(key, ttl)


EXACT = {
    "add": each(lambda cache, key, ttl: cache.add(key, key, ttl)),
    "set_many without jitter": lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS), ttl, jitter=False),
    "touch": after(many(10), touch),
    "touch for longer": after(many(0.1), touch),
    "touch of what never expires": after(lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS), None), touch),
    "touch of what has a grace": after(
        each(lambda cache, key, ttl: cache.get_or_load(key, lambda: "value", 10 * ttl, grace=5)), touch
    ),
}


@pytest.fixture
def cache(clock):
    cache = Cache(clock=clock)
    yield cache
    invariants.check(cache)
    cache.close()


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
    assert cache.get_many(KEYS) == {}


@pytest.mark.parametrize("write", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("ttl", [0.25, TWO_WEEKS])
def test_add_and_touch_keep_their_ttl_exactly(cache, clock, write, ttl):
    write(cache, ttl)
    assert set(lifetimes(cache)) == {ttl}
    clock.advance(ttl - 0.125)
    assert not any(cache.add(key, "another", ttl) for key in KEYS)
    clock.advance(0.125)
    assert cache.get_many(KEYS) == {}
    assert all(cache.add(key, "another", ttl) for key in KEYS)


def test_add_and_touch_keep_the_caches_own_ttl_exactly(clock):
    cache = Cache(clock=clock, ttl=50)
    for key in KEYS:
        cache.add(key, key)
        cache.set(-key - 1, key)
        cache.touch(-key - 1)
    assert set(lifetimes(cache)) == {50}


def test_incr_and_update_keep_what_is_left_of_a_ttl(cache, clock):
    for key in KEYS:
        cache.add(key, 1, TTL)
    clock.advance(40)
    for key in KEYS:
        cache.incr(key)
        cache.update(key, lambda value: value + 1)
    assert set(lifetimes(cache)) == {60}


@pytest.mark.parametrize("jitter", [0, 0.5])
def test_jitter_is_the_largest_fraction_that_a_ttl_is_shortened_by(clock, jitter):
    cache = Cache(clock=clock, jitter=jitter)
    many(1)(cache, TTL)
    expiries = lifetimes(cache)
    assert TTL * (1 - jitter) <= min(expiries) <= TTL * (1 - jitter) + 5
    assert 95 < max(expiries) <= 100
