import pytest

from tests.pages.site import AsgiSite, WsgiSite, settle

DRIVERS = {"wsgi": WsgiSite, "asgi": AsgiSite}


@pytest.fixture(params=DRIVERS)
def make_site(request, clock, closed):
    """Make a site behind a cache; it is called with the options of ``HTTPCache``."""

    def make(**options):
        site = DRIVERS[request.param](clock, **options)
        closed(site.cache.cache)
        return site

    yield make
    settle()


@pytest.fixture
def site(make_site):
    return make_site()


@pytest.fixture
def wsgi(clock, closed):
    site = WsgiSite(clock)
    closed(site.cache.cache)
    return site


@pytest.fixture
def asgi(clock, closed):
    site = AsgiSite(clock)
    closed(site.cache.cache)
    return site
