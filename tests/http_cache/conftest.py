import pytest

from tests.http_cache.site import AsgiSite, WsgiSite
from tests.waiting import until
from wheelcache.http_cache.wsgi import renewal_pool

DRIVERS = {"wsgi": WsgiSite, "asgi": AsgiSite}


@pytest.fixture(params=DRIVERS)
def make_site(request, clock):
    """Make a site behind a cache; it is called with the options of ``HTTPCache``."""
    sites = []

    def make(**options):
        sites.append(DRIVERS[request.param](clock, **options))
        return sites[-1]

    yield make
    assert until(lambda: not renewal_pool.pending)
    for site in sites:
        site.cache.cache.close()


@pytest.fixture
def site(make_site):
    return make_site()


@pytest.fixture
def wsgi(clock):
    site = WsgiSite(clock)
    yield site
    site.cache.cache.close()
