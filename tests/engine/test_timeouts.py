"""How long a value lives, with default options: never longer than its caller said, and little shorter."""

import asyncio
from math import inf

import pytest

from tests.engine import invariants
from wheelcache import Cache

KEYS = range(2000)
TTL = 100
TWO_WEEKS = 14 * 24 * 3600


def by_set(cache, ttl):
    for key in KEYS:
        cache.set(key, key, ttl)


def by_setting_again(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), 10 * ttl)
    by_set(cache, ttl)


def by_set_many(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), ttl)


def by_take(cache, ttl):
    for key in KEYS:
        cache.take(key, lambda: "value", ttl)


def by_take_with_grace(cache, ttl):
    for key in KEYS:
        cache.take(key, lambda: "value", ttl, grace=5)


def by_negative_ttl(cache, ttl):
    for key in KEYS:
        cache.take(key, lambda: None, 10 * ttl, negative_ttl=ttl)


def by_atake(cache, ttl):
    async def take_all():
        for key in KEYS:
            await cache.atake(key, lambda: "value", ttl)

    asyncio.run(take_all())


def by_memoize(cache, ttl):
    function = cache.memoize(ttl, key=lambda number: number)(lambda number: number)
    for key in KEYS:
        function(key)


FILLS = [
    by_set,
    by_setting_again,
    by_set_many,
    by_take,
    by_take_with_grace,
    by_negative_ttl,
    by_atake,
    by_memoize,
]


def by_add(cache, ttl):
    for key in KEYS:
        assert cache.add(key, key, ttl)


def by_touch(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), 10 * ttl)
    for key in KEYS:
        assert cache.touch(key, ttl)


def by_touch_for_longer(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), ttl / 10)
    for key in KEYS:
        assert cache.touch(key, ttl)


def by_touch_of_what_never_expires(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), None)
    for key in KEYS:
        assert cache.touch(key, ttl)


def by_touch_of_what_has_a_grace(cache, ttl):
    for key in KEYS:
        cache.take(key, lambda: "value", 10 * ttl, grace=5)
        assert cache.touch(key, ttl)


def by_set_many_without_jitter(cache, ttl):
    cache.set_many(dict.fromkeys(KEYS), ttl, jitter=False)


LOCKS = [
    by_add,
    by_set_many_without_jitter,
    by_touch,
    by_touch_for_longer,
    by_touch_of_what_never_expires,
    by_touch_of_what_has_a_grace,
]


def weigh_one(key, value):
    return 1


@pytest.fixture(params=[{}, {"max_weight": 10_000, "weigher": weigh_one}], ids=["plain", "weighed"])
def cache(request, clock):
    cache = Cache(clock=clock, **request.param)
    yield cache
    invariants.check(cache)
    cache.close()


def lifetimes(cache):
    return [cache.expires_in(key) for key in cache.keys()]


@pytest.mark.parametrize("fill", FILLS)
def test_a_value_that_is_filled_lives_no_longer_than_its_ttl_and_at_most_a_twentieth_shorter(cache, fill):
    fill(cache, TTL)
    expiries = lifetimes(cache)
    assert len(expiries) == len(KEYS)
    assert 95 <= min(expiries) < 95.5
    assert 99.5 < max(expiries) <= 100


@pytest.mark.parametrize("fill", [*FILLS, *LOCKS])
def test_no_value_is_there_when_its_ttl_has_passed(cache, clock, fill):
    fill(cache, TTL)
    clock.advance(TTL)
    assert cache.get_many(KEYS) == {}


@pytest.mark.parametrize("fill", FILLS)
def test_a_long_ttl_ends_at_most_a_minute_early_and_still_not_all_at_once(cache, fill):
    fill(cache, TWO_WEEKS)
    expiries = lifetimes(cache)
    assert TWO_WEEKS - 60 <= min(expiries) < TWO_WEEKS - 54
    assert TWO_WEEKS - 6 < max(expiries) <= TWO_WEEKS


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("ttl", [4, 0.25, 300, TWO_WEEKS])
def test_add_and_touch_keep_their_ttl_exactly(cache, clock, lock, ttl):
    lock(cache, ttl)
    assert set(lifetimes(cache)) == {ttl}
    clock.advance(ttl - 0.125)
    assert not any(cache.add(key, "another", ttl) for key in KEYS)
    clock.advance(0.125)
    assert all(cache.add(key, "another", ttl) for key in KEYS)


def test_add_and_touch_keep_the_caches_own_ttl_exactly(clock):
    cache = Cache(clock=clock, ttl=50)
    for key in KEYS:
        cache.add(key, key)
        cache.set(-key - 1, key)
        cache.touch(-key - 1)
    assert set(lifetimes(cache)) == {50}


def test_incr_and_transform_keep_what_is_left_of_a_ttl(clock):
    cache = Cache(clock=clock)
    for key in KEYS:
        cache.add(key, 1, TTL)
    clock.advance(40)
    for key in KEYS:
        cache.incr(key)
        cache.update(key, lambda value: value + 1)
    assert set(lifetimes(cache)) == {60}


def test_jitter_is_the_largest_fraction_that_a_ttl_is_shortened_by(clock):
    cache = Cache(clock=clock, jitter=0.5)
    by_set_many(cache, TTL)
    expiries = lifetimes(cache)
    assert 50 <= min(expiries) < 55
    assert 95 < max(expiries) <= 100


def test_without_jitter_every_ttl_is_exact(clock):
    cache = Cache(clock=clock, jitter=0)
    by_set(cache, TTL)
    assert set(lifetimes(cache)) == {TTL}


@pytest.mark.parametrize("ttl", [10**30, 1e300, 10**400, inf])
def test_a_ttl_beyond_all_clocks_lasts(clock, ttl):
    cache = Cache(clock=clock)
    cache.set("set", 1, ttl)
    cache.add("added", 1, ttl)
    clock.advance(1e9)
    assert cache.keys() == ["set", "added"]
