"""The question to real Sentinels, with each PING of a tracking connection, whether its server is still the master."""

import time
from math import inf

import cachelib
import pytest
from django.core.cache import caches

from tests.near_cache.tiers import TierOnDjango, made_tiers
from tests.sentinel_site import DOWN_AFTER, PASSWORD, SERVICE, SentinelSite
from tests.waiting import PATIENCE, THREADS, happens, paused, until
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache import redis_tracking
from wheelcache.near_cache.redis_tracking import client_of
from wheelcache.near_cache.sentinels import sentinels_of

pytestmark = pytest.mark.servers

OFTEN = {"interval": 0.1, "timeout": PATIENCE}
"""The connection is not lost on a busy machine, unless the answer is no."""


@pytest.fixture(scope="module")
def site():
    with SentinelSite() as site:
        yield site


@pytest.fixture
def own_site():
    """A site whose master the test may change."""
    with SentinelSite(DOWN_AFTER) as site:
        yield site


@pytest.fixture
def client(site, closed, monkeypatch):
    monkeypatch.setattr(redis_tracking, "LONGEST_PAUSE", 0.2)
    client = closed(site.client())
    client.ping()
    return client


def stays_trusted(tracking):
    """Return whether the trust is extended by a PING that has not been sent yet."""
    asked = time.monotonic() + OFTEN["interval"] + OFTEN["timeout"]
    return until(lambda: not tracking.trusted_until < asked)


MINORITY = {
    "killed": (lambda one: one.kill(), lambda site, one: one.start()),
    "hung": (lambda one: one.pause(), lambda site, one: one.resume()),
    "without the service": (lambda one: one.client().sentinel_remove(SERVICE), lambda site, one: site.watch(one)),
}


@pytest.mark.parametrize(("fail", "repair"), MINORITY.values(), ids=MINORITY)
def test_a_minority_of_sentinels_does_not_matter(site, client, track, copies, fail, repair):
    tracking = track(client, copies, **OFTEN)
    one = site.sentinels[0]
    fail(one)
    try:
        assert stays_trusted(tracking)
        client.set("a:1", 1)
        assert copies.are_told(True, b"a:1")
    finally:
        repair(site, one)


def test_if_a_majority_is_killed_nothing_is_trusted_until_it_is_back(site, client, track, copies, lines):
    tracking = track(client, copies, **OFTEN)
    for sentinel in site.sentinels[:2]:
        sentinel.kill()
    try:
        assert copies.are_told(True, False)
        assert tracking.trusted_until == -inf
    finally:
        for sentinel in site.sentinels[:2]:
            sentinel.start()
    assert copies.are_told(True, False, True)
    assert "NotConfirmed: only 1 of 3 Sentinels can be asked (" in lines()[0]


def test_no_invalidation_waits_for_sentinels_that_hang(site, client, track, copies):
    tracking = track(client, copies, **OFTEN)
    with paused(*site.sentinels):
        # No question after this moment is answered.
        bound = time.monotonic() + OFTEN["interval"] + OFTEN["timeout"]
        assert not happens(lambda: tracking.trusted_until > bound, 0.5)
        client.set("a:1", 1)
        assert copies.are_told(True, b"a:1")
    assert until(lambda: tracking.trusted_until > bound)
    assert copies.told == [True, b"a:1"]


def test_a_single_sentinel_that_names_another_server_ends_the_trust(site, client, track, copies, lines):
    last = site.sentinels[2]
    track(client, copies, **OFTEN)
    last.client().sentinel_remove(SERVICE)
    try:
        site.watch(last, site.servers[1])
        assert copies.are_told(True, False)
    finally:
        last.client().sentinel_remove(SERVICE)
        site.watch(last)
    assert copies.are_told(True, False, True)
    master, other = (f"127.0.0.1:{each.port}" for each in site.servers[:2])
    assert f"NotConfirmed: a Sentinel names {other} as the master, not {master}" in lines()[0]


def tiers_over(kind, site, make):
    """Return a function that returns the TieredCache of the calling thread, and the cache behind it."""
    if kind == "cachelib":
        tier = TieredCache(cachelib.RedisCache(site.client()))
        return lambda: tier, tier.l2
    factory = "django_redis.pool.SentinelConnectionFactory"
    options = {"CONNECTION_FACTORY": factory, "SENTINELS": site.addresses, "PASSWORD": PASSWORD}
    make(TierOnDjango, kind, site.servers[0], behind={"LOCATION": f"redis://{SERVICE}/0", "OPTIONS": options})
    return lambda: caches["tiered"], caches["behind"]


@pytest.mark.parametrize("kind", ["django-redis", "cachelib"])
def test_after_a_split_no_thread_reads_an_old_copy_or_from_the_old_master(own_site, trackings, kind, together):
    with made_tiers(trackings) as make:
        tier, behind = tiers_over(kind, own_site, make)
        tier().set("k", "old", timeout=1000)
        assert until(lambda: tier().get("k") == "old" and trackings()[-1].recorder.trusted)
        assert together(lambda _: tier().get("k")) == ["old"] * THREADS
        old = own_site.split()
        new = own_site.direct(own_site.fails_over(old))
        # As another machine does, which finds the new master.
        (stored,) = new.keys("*k")
        assert new.set(stored, new.get(stored).replace(b"old", b"new"))
        assert until(lambda: tier().get("k") == "new")
        assert together(lambda _: tier().get("k")) == ["new"] * THREADS
        assert own_site.direct(old).info("replication")["role"] == "master"
        client_of(behind).connection_pool.disconnect()


def test_a_client_of_one_server_has_no_sentinels(site):
    assert sentinels_of(site.direct(site.servers[0])) is None
