import asyncio

import pytest

from tests.fill_waits.callers import TaskCaller, ThreadCaller
from tests.waiting import join, start
from wheelcache import Cache
from wheelcache.runtime.request_scope import end_request


@pytest.fixture(autouse=True)
def _request():
    """Check that the main thread has no leases before and after every test."""
    end_request()
    yield
    end_request()


@pytest.fixture
def make(closed):
    # The callers that still wait at the end go on.
    return lambda **options: closed(Cache(**{"jitter": 0, **options}))


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
def make_caller(cache, running_loop):
    made = []

    def make_caller(kind="threads", cache=cache):
        made.append(ThreadCaller(cache) if kind == "threads" else TaskCaller(cache, running_loop))
        return made[-1]

    yield make_caller
    for caller in made:
        caller.cache.close()
    for caller in made:
        caller.ends()


@pytest.fixture
def thread_callers(make_caller):
    return [make_caller() for _ in range(4)]


@pytest.fixture(params=["threads", "tasks", "tasks and threads"])
def callers(request, make_caller):
    """Six callers."""
    kinds = request.param.split(" and ")
    return [make_caller(kinds[number % len(kinds)]) for number in range(6)]
