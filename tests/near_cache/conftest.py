import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from tests.near_cache.listeners import CALM, Copies
from tests.near_cache.stores import Calls, Store, near_cache
from tests.waiting import THREADS, until
from wheelcache.near_cache.redis_tracking import Tracking, connect_like
from wheelcache.near_cache.sentinels import sentinels_of


@pytest.fixture
def store():
    store = Store()
    yield store
    store.released.set()


@pytest.fixture(params=[False, True], ids=["threads", "coroutines"])
def make(request, clock, store):
    """Make a near cache in front of ``store``. A tracked one is trusted from the start, by default."""

    def make_near(*, tracked=False, trusted=True, **options):
        calls = Calls(near_cache(clock, tracked=tracked, **options), store, by_tasks=request.param)
        if tracked and trusted:
            calls.near.trust(True)
        return calls

    return make_near


@pytest.fixture(params=[False, True], ids=["untold", "tracked"])
def near(make, request):
    return make(tracked=request.param)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


# The tracking of writes to a Redis.


@pytest.fixture
def tracking_of():
    """Make a ``Tracking`` for a client, or for a function that connects, which is stopped at the end."""
    made = []

    def make(connect, copies, prefix=b"a:", question=None, **times):
        if isinstance(connect, redis.Redis):
            connect, question = connect_like(connect), sentinels_of(connect)
        made.append(Tracking(connect, prefix, copies, question=question, **(times or CALM)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def track(tracking_of):
    """Make a ``Tracking`` that is started and trusted."""

    def start(*args, **times):
        tracking = tracking_of(*args, **times)
        tracking.start()
        assert until(lambda: tracking.trusted_until > time.monotonic())
        return tracking

    return start


@pytest.fixture
def copies():
    return Copies()


@pytest.fixture
def client(shared_redis, track, copies):
    client = shared_redis.client()
    track(client, copies)
    return client


@pytest.fixture
def lines(caplog):
    """Return the log so far."""
    return lambda: [record.getMessage() for record in caplog.records if record.name == "wheelcache"]
