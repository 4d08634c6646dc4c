import asyncio
from inspect import iscoroutinefunction

import pytest

from tests.pages.site import AsgiSite, WsgiSite, settle
from tests.waiting import PATIENCE

DRIVERS = {"wsgi": WsgiSite, "asgi": AsgiSite}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine function. At its end, no task is left."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None

    async def main():
        async with asyncio.timeout(PATIENCE):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
            while asyncio.all_tasks() != {asyncio.current_task()}:
                await asyncio.sleep(0)

    asyncio.run(main())
    return True


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
