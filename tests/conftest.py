import asyncio
import gc
import logging
import os
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
from hypothesis import settings

from tests import shared_stamps, tracking
from tests.memcached_server import memcached_server
from tests.redis_server import RedisServer
from tests.waiting import PATIENCE, THREADS, until
from wheelcache import ManualClock
from wheelcache.core import ASKED
from wheelcache.observability.stats_log import log_core
from wheelcache.runtime.alarm import Alarm

# Processes that the tests start behave alike, whatever the environment of the caller: PYTHONUNBUFFERED, for one, hides
# that a script does not flush what it prints before it forks. pytest-xdist sets COLUMNS. pytest-django has added
# DJANGO_SETTINGS_MODULE and has read the settings by now; sites in other processes have their own.
for name in [*os.environ]:
    if name.startswith("PYTHON") or name in ("COLUMNS", "DJANGO_SETTINGS_MODULE"):
        del os.environ[name]

FOLDERS = {"browser", "conformance", "servers"}
"""Each of the same name as the marker of all its tests."""

# Without a deadline: on a busy machine, any example may take over 200 ms.
settings.register_profile("full", deadline=None)
settings.load_profile("full")
settings.register_profile("quick", max_examples=20, stateful_step_count=30)


# The first cache of a process logs its core: not during the test that happens to make it.
log_core()


def lacks_compiled_core():
    """Whether to skip the tests of the compiled core. If WHEELCACHE_CORE requires it, they fail without it."""
    if ASKED == "compiled":
        return False
    try:
        import_module("wheelcache.core._core")
    except ImportError:
        return True
    return False


def pytest_report_header():
    return "the tests of the compiled core are left out: it is not built" if lacks_compiled_core() else None


def pytest_collection_modifyitems(config, items):
    for item in items:
        folder = item.path.parent.name
        if folder in FOLDERS:
            item.add_marker(folder)
    if lacks_compiled_core():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("compiled")])
        items[:] = [item for item in items if not item.get_closest_marker("compiled")]
    if config.getoption("--hypothesis-profile") == "quick":
        for machine in {item.cls for item in items if item.cls and issubclass(item.cls, unittest.TestCase)}:
            # State machines have settings of their own, which come before those of a profile.
            machine.settings = settings.get_profile("quick")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def small_heap():
    """Collections do not look at what thousands of other tests have left, which takes a second for each."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def together():
    """Call a function in 32 threads that start as one; what each returned or raised."""

    def run(function):
        barrier = threading.Barrier(THREADS)

        def one(number):
            barrier.wait(PATIENCE)
            try:
                return function(number)
            except Exception as error:
                return error

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(one, range(THREADS), timeout=PATIENCE))

    return run


@pytest.fixture
def in_thread():
    """Start a function in a new thread for each call. ``result`` returns its result."""
    pools = []

    def start(function, *args):
        pools.append(ThreadPoolExecutor(1))
        return pools[-1].submit(function, *args)

    yield start
    for pool in pools:
        pool.shutdown()


@pytest.fixture
def loop():
    """Run a coroutine on an event loop that goes on afterwards, as a server's does; call with what makes it."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()

    async def in_time(make):
        async with asyncio.timeout(PATIENCE):
            return await make()

    yield lambda make: asyncio.run_coroutine_threadsafe(in_time(make), running).result(PATIENCE * 2)
    running.call_soon_threadsafe(running.stop)
    thread.join(PATIENCE)
    running.close()


@pytest.fixture
def runtime_parent(tmp_path, monkeypatch):
    """Return the runtime directory of this user's processes: a temporary one, as without shared memory."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wheelcache-{os.geteuid()}"


@pytest.fixture
def own_stamps(monkeypatch, tmp_path):
    """Give each test its own directory for the files that processes of this machine share."""
    shared_stamps.keep_in(tmp_path, monkeypatch.setattr)


@pytest.fixture(scope="module")
def shared_redis():
    """A Redis of the tests of one module."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def empty_redis(shared_redis):
    shared_redis.client().flushall()
    return shared_redis


@pytest.fixture
def own_redis():
    """A Redis that the test may stop."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def memcached():
    """The address of a memcached of the tests of one module."""
    with memcached_server() as address:
        yield address


@pytest.fixture
def waiters(monkeypatch):
    """``waiters(n)`` returns when ``n`` callers in all have begun to wait for a flight."""
    begun = []

    class WatchedAlarm(Alarm):
        def wait(self, seconds):
            begun.append(self)
            return super().wait(seconds)

        async def wait_async(self, seconds):
            begun.append(self)
            return await super().wait_async(seconds)

    monkeypatch.setattr("wheelcache.loading.flight_table.Alarm", WatchedAlarm)

    def wait_until(count):
        assert until(lambda: len(begun) == count), f"{len(begun)} wait, not {count}"

    wait_until.begun = begun
    return wait_until


@pytest.fixture
def trackings(monkeypatch):
    """The connections by which Redis tells near caches of writes, in the order in which they were made."""
    tracking.note(monkeypatch.setattr)
    yield lambda: tracking.Noted.made
    tracking.stop_all()


def pytest_unconfigure():
    # Caches that tests have left publish into folders that pytest removes at the exit. Their log lines would then
    # follow pytest's last line.
    logging.disable()
