"""The context of loads in the background, and the switch that keeps them with their callers."""

import threading
from contextlib import contextmanager, nullcontext, suppress

import pytest

from tests.engine.loading.harness import InTasks, InThreads, outcome, returns, unreached
from tests.waiting import PATIENCE
from wheelcache import Cache, loads_in_callers_thread
from wheelcache.engine.loading import background

tenant = threading.local()
"""The state of a site that no context has: each thread has its own."""


class Boom(Exception):
    pass


class Tenants:
    """A function of a framework that passes the tenant of the caller on to the load.

    Attributes:
        made_in: the threads that called it.
        errors: the errors that the blocks have seen.
    """

    def __init__(self):
        self.made_in = []
        self.errors = []

    def __call__(self):
        self.made_in.append(threading.current_thread())
        return self._of(tenant.name)

    @contextmanager
    def _of(self, name):
        before, tenant.name = getattr(tenant, "name", None), name
        try:
            yield
        except BaseException as error:
            self.errors.append(type(error))
            raise
        finally:
            tenant.name = before


@pytest.fixture
def tenants():
    tenant.name = "the caller's"
    yield Tenants()
    del tenant.name


@pytest.fixture(params=[InThreads, InTasks], ids=["threads", "tasks"])
def make_twin(request, clock, closed, monkeypatch):
    """Make a cache whose loads in the background are surrounded by the context managers of a function."""

    def make(surrounding=nullcontext):
        monkeypatch.setattr(background, "surroundings", [surrounding])
        cache = Cache(clock=clock, ttl=10, jitter=0)
        return cache, closed(request.param(closed(cache)))

    return make


def by_refresh(twin, clock, loader):
    twin.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)
    assert twin.get_or_load("k", loader, grace=50) == "old"
    twin.settle()


def ahead(twin, clock, loader):
    twin.get_or_load("k", returns("old"))
    clock.advance(9)
    assert twin.get_or_load("k", loader, refresh_ahead=0.5) == "old"
    twin.settle()


def by_timeout(twin, clock, loader):
    with suppress(Boom):
        twin.get_or_load("k", loader, timeout=PATIENCE)


IN_BACKGROUND = pytest.mark.parametrize("load", [by_refresh, ahead, by_timeout], ids=["stale", "ahead", "timeout"])
pytestmark = pytest.mark.pairs(full="make_twin", of="load")


@IN_BACKGROUND
def test_a_load_in_the_background_runs_in_the_context_that_its_caller_has_made(make_twin, clock, tenants, load):
    cache, twin = make_twin(tenants)
    load(twin, clock, lambda: tenant.name)
    assert cache.get("k") == "the caller's"
    assert tenants.made_in == [threading.main_thread()]


@contextmanager
def broken():
    yield
    raise Boom


@IN_BACKGROUND
def test_an_error_of_the_loader_or_of_the_context_is_an_error_of_the_load_which_the_context_sees(
    make_twin, clock, tenants, load, caplog
):
    for surrounding, loader in ((tenants, returns(Boom())), (lambda: suppress(Boom), returns(Boom())), (broken, int)):
        cache, twin = make_twin(surrounding)
        load(twin, clock, loader)
        assert cache.stats().load_failures == 1
        assert cache.get("k") in (None, "old")
    assert tenants.errors == [Boom]
    assert load is by_timeout or "Boom" in caplog.text


@IN_BACKGROUND
def test_an_error_of_the_function_is_raised_to_the_caller(make_twin, clock, load):
    cache, twin = make_twin(lambda: outcome(Boom()))
    with nullcontext() if load is by_timeout else pytest.raises(Boom):
        load(twin, clock, unreached)
    # Nothing is left behind: the next caller loads.
    cache.delete("k")
    assert twin.get_or_load("k", returns("new")) == "new"


# With callers.


@IN_BACKGROUND
def test_with_the_switch_loads_run_in_the_threads_of_their_callers(make_twin, clock, load):
    cache, twin = make_twin(unreached)
    ran_in = []
    with loads_in_callers_thread():
        load(twin, clock, lambda: ran_in.append(threading.current_thread()) or "new")
        # Without waiting for anything, since nothing runs in the background.
        assert cache.get("k") == "new"
    assert ran_in == [threading.current_thread()]
    assert cache.stats().refreshes == (load is not by_timeout)


def test_the_switch_ends_with_its_block_and_may_be_nested(cache, in_thread):
    def loads_here():
        cache.delete("k")
        return cache.get_or_load("k", threading.current_thread, timeout=PATIENCE) is threading.current_thread()

    with loads_in_callers_thread():
        with loads_in_callers_thread():
            pass
        assert loads_here()
        assert in_thread(loads_here).result(PATIENCE)
    assert not loads_here()
