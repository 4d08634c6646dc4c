"""The question to real Sentinels, with each PING of a tracking connection, whether its server is still the master."""

import cachelib
import pytest
from django.core.cache import caches

from tests.near_cache.tiers import TierOnDjango, made_tiers
from tests.sentinel_site import PASSWORD, SERVICE, SentinelSite
from tests.waiting import THREADS, until
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache.redis_tracking import client_of

pytestmark = pytest.mark.servers


@pytest.fixture
def own_site():
    """A site whose master the test may change."""
    with SentinelSite() as site:
        yield site


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
