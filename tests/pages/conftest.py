import asyncio
from inspect import iscoroutinefunction

import pytest

from tests.django_backend.conftest import _open_connections  # noqa: F401
from tests.pages.site import AsgiSite, WsgiSite, maker, settle
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
    yield maker(DRIVERS[request.param], clock, closed)
    settle()


@pytest.fixture
def site(make_site):
    return make_site()


@pytest.fixture
def wsgi(clock, closed):
    return maker(WsgiSite, clock, closed)()


@pytest.fixture
def asgi(clock, closed):
    return maker(AsgiSite, clock, closed)()
