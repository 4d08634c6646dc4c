import asyncio

import pytest

from tests.fill_waits.callers import TaskCaller, ThreadCaller
from tests.waiting import join, start
from wheelcache import Cache
from wheelcache.runtime.request_scope import end_request

QUIET = {"jitter": 0}


@pytest.fixture(autouse=True)
def _request():
    """Check that the main thread has no leases before and after every test."""
    end_request()
    yield
    end_request()


@pytest.fixture
def make(closed):
    # The callers that still wait at the end go on.
    return lambda **options: closed(Cache(**{**QUIET, **options}))


@pytest.fixture
def cache(make):
    return make()


@pytest.fixture
def running_loop():
    loop = asyncio.new_event_loop()
    thread = start(loop.run_forever)
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    join(thread)
    loop.close()


@pytest.fixture
def task_callers(cache, running_loop):
    made = [TaskCaller(cache, running_loop) for _ in range(6)]
    yield made
    cache.close()
    for caller in made:
        caller.ends()


@pytest.fixture
def thread_callers(cache):
    made = [ThreadCaller(cache) for _ in range(6)]
    yield made
    cache.close()
    for caller in made:
        caller.ends()


@pytest.fixture(params=["threads", "tasks", "tasks and threads"])
def callers(request):
    """Six callers."""
    kinds = request.param.split(" and ")
    made = [request.getfixturevalue(f"{kind.removesuffix('s')}_callers") for kind in kinds]
    return [made[number % len(made)][number] for number in range(6)]
