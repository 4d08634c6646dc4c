"""The question to real Sentinels, with each PING of a tracking connection, whether its server is still the master."""

import time

import cachelib
import pytest
from django.core.cache import caches

from tests.near_cache.tiers import TierOnDjango, made_tiers
from tests.sentinel_site import DOWN_AFTER, PASSWORD, SERVICE, SentinelSite
from tests.waiting import PATIENCE, THREADS, happens, paused, until
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache import redis_tracking
from wheelcache.near_cache.redis_tracking import client_of

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
        assert until(lambda: tier().get("k") == "old" and trackings()[-1].is_trusted())
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
