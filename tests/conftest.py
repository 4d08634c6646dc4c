import asyncio
import gc
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec

import pytest
from django.test.signals import clear_cache_handlers
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import shared_files
from tests.pairs import select
from tests.ports import serving
from tests.postgresql_server import PostgresqlServer, programs
from tests.prepared_python import PreparedPython
from tests.redis_cluster import Cluster
from tests.redis_server import RedisServer
from tests.waiting import PATIENCE, THREADS, join, until
from wheelcache import Cache, ManualClock, caches
from wheelcache.core import ASKED
from wheelcache.core.contract import VIEW
from wheelcache.django_backend import stores
from wheelcache.engine.guests import module_of
from wheelcache.engine.stats_log import report_core
from wheelcache.runtime.alarm import Alarm

# Processes that the tests start behave alike, whatever the environment of the caller: PYTHONUNBUFFERED, for one, hides
# that a script does not flush what it prints before it forks. pytest-xdist sets COLUMNS. pytest-django has added
# DJANGO_SETTINGS_MODULE and has read the settings by now; sites in other processes have their own.
for name in [*os.environ]:
    # The processes of pytest-xdist still need PYTHONHASHSEED: see ``_other_hashes_in_children``.
    if (name.startswith("PYTHON") and name != "PYTHONHASHSEED") or name in ("COLUMNS", "DJANGO_SETTINGS_MODULE"):
        del os.environ[name]
# With PYTHONDONTWRITEBYTECODE, each process of each run would compile all modules of the tests, for seven seconds of a
# processor.
sys.dont_write_bytecode = False
# `make check &` ignores Ctrl-C, and so would the servers and commands to which tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

PROGRAMS = ("redis-server", "memcached", "chromium", "node")
"""Programs that the tests of servers and of the browser start."""

# Only the dependencies for development include Selenium.
collect_ignore = [] if find_spec("selenium") else ["watch/browser"]

FOLDERS = {"browser", "conformance", "servers"}
"""Each of the same name as the marker of all its tests."""

# On a busy machine, any example may take long, and so may making one. The examples are the same in each run, so a test
# that begins to fail was made to fail by a change. "random" looks for new ones, and --hypothesis-seed repeats them.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("full")
settings.register_profile("quick", max_examples=20, stateful_step_count=30)
settings.register_profile("random", derandomize=False)
# Hypothesis also draws constants from the source of all local modules that are imported so far, unless the checkout is
# in a folder named test. Which ones are, depends on the tests that this process of pytest-xdist happened to run before.
providers._get_local_constants = lambda: providers._local_constants


# The first write of a process logs its core: not during the test that happens to make it.
report_core()
# A process computes its start once: not by the time of the test that happens to ask for it first.
if held_file := module_of("watch", "held_file"):
    held_file.this_process()


def lacks_compiled_core():
    """Whether to leave out the tests of the compiled core. WHEELCACHE_CORE decides, otherwise whether it is built."""
    if ASKED is not None:
        return ASKED == "python"
    try:
        import_module("wheelcache.core._core")
    except ImportError:
        return True
    return False


def pytest_sessionstart(session):
    """Say which tests are left out and why. The header of pytest would, but -q hides it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    if lacks_compiled_core():
        reason = "It is not built, which needs a C compiler." if ASKED is None else "WHEELCACHE_CORE selects the other."
        reporter.write_line(f"Left out: the compiled core. {reason}")
    if "not servers" in (chosen := session.config.getoption("markexpr")):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if programs() is None:
            missing.append("postgres")
        lacks = f" This machine lacks {', '.join(missing)}." if missing else ""
        reporter.write_line(f'Only tests that are "{chosen}" run; make check runs all.{lacks}')


_seconds = Counter()


def pytest_runtest_logreport(report):
    folder, _, name = report.location[0].removeprefix("tests/").partition("/")
    _seconds[folder if name else "tests"] += report.duration


def pytest_terminal_summary(terminalreporter):
    """Print the seconds of each folder, summed over the processes."""
    if len(_seconds) > 1:
        times = ", ".join(f"{folder} {seconds:.0f}" for folder, seconds in _seconds.most_common())
        terminalreporter.write_line(f"Seconds by folder: {times}")


def pytest_addoption(parser):
    parser.addoption("--one-deep-case", action="store_true", help="run one case of each deep test, a tenth as long")


def pytest_ignore_collect(collection_path, config):
    """Leave out modules of which no test is chosen: all together take each process eight seconds to collect, or twice
    that in the first run."""
    chosen = config.getoption("markexpr")
    if " or " in chosen:
        return None
    if f"{chosen} ".startswith("alone ") and collection_path.match("test_*.py"):
        return "mark.alone" not in collection_path.read_text() or None
    return (collection_path.name in FOLDERS and f"not {collection_path.name}" in chosen) or None


def first_cases(tests):
    """Return the first case of each test function."""
    return {test.nodeid.partition("[")[0]: test for test in reversed(tests)}.values()


# First, since plugins may change the order of the items.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        folder = item.path.parent.name
        if folder in FOLDERS:
            item.add_marker(folder)
    if lacks_compiled_core():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("compiled")])
        items[:] = [item for item in items if not item.get_closest_marker("compiled")]
    config.hook.pytest_deselected(items=select(items))
    if config.getoption("--one-deep-case"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        left_out = {*deep}.difference(first_cases(deep))
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    if config.getoption("--hypothesis-profile") == "quick":
        for machine in {item.cls for item in items if item.cls and issubclass(item.cls, unittest.TestCase)}:
            # State machines have settings of their own, which come before those of a profile.
            machine.settings = settings.get_profile("quick")


@pytest.fixture(autouse=True)
def _seeded(request):
    """Let each test draw the same numbers in each run. With --hypothesis-seed, they follow from that."""
    state = random.getstate()
    random.seed(f"{request.config.getoption('hypothesis_seed')} {request.node.nodeid}")
    yield
    random.setstate(state)


@pytest.fixture(scope="session", autouse=True)
def _other_hashes_in_children():
    """Let the processes that tests start choose their own hashes, as those of a site do.

    The process of the tests has the hashes that the Makefile chooses. In a cache of one process, two tags share a slot
    by chance, one pair in 65,536, and dropping one drops the other. With other hashes in each run, one of some 15 full
    runs failed by that, in a test that counts the pages which are left.
    """
    os.environ.pop("PYTHONHASHSEED", None)


@pytest.fixture(scope="module", autouse=True)
def _close_caches():
    """Close the caches that the tests of a module leave, which would publish, log and keep files open during others."""
    before = caches()
    yield
    for cache in caches():
        if cache not in before:
            cache.close()
    # Django would find closed stores again.
    for known in (stores._stores, stores._looked_up):
        for key in [key for key, store in known.items() if store.cache.is_closed]:
            del known[key]
    clear_cache_handlers(setting="CACHES")


@pytest.fixture(scope="session", autouse=True)
def _own_host_caches(tmp_path_factory):
    """Keep the host caches of this process out of the folder in which those of the user's sites are."""
    folder = tmp_path_factory.mktemp("host caches")
    with pytest.MonkeyPatch.context() as patch:
        if place := module_of("host_cache", "place"):
            patch.setattr(place, "runtime_directory", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def _no_view():
    """Let each test begin outside a view. Django's backend leaves the view of the last page that it looked up in the
    context, until the next page; all tests of a process share one context."""
    token = VIEW.set(None)
    yield
    VIEW.reset(token)


@pytest.fixture
def ticks(monkeypatch):
    """Set the seconds per tick of the wheels of all caches that the test makes after this."""
    return lambda seconds: monkeypatch.setattr(Cache, "_interval", seconds)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def closed():
    """Close at the end of the test what ``closed`` was called with. It returns its argument."""
    made = []
    yield lambda each: made.append(each) or each
    for each in reversed(made):
        each.close()


@pytest.fixture
def hasty_interpreter():
    """Let threads alternate 5,000 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="session")
def at_length(request):
    """Return the number of operations of a deep test: all of them in ``make deep``, a tenth in ``make check``."""
    share = 10 if request.config.getoption("--one-deep-case") else 1
    return lambda operations: operations // share


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
    join(thread)
    running.close()


@pytest.fixture
def runtime_parent(tmp_path, monkeypatch):
    """Return the runtime directory of this user's processes: a temporary one, as without shared memory."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wheelcache-{os.geteuid()}"


@pytest.fixture
def own_runtime_directory(monkeypatch, tmp_path):
    """Give each test its own directory for the files that processes of this machine share."""
    shared_files.keep_in(tmp_path, monkeypatch.setattr)


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """Run a module as ``python -m`` does: see ``PreparedPython``."""
    with PreparedPython(tmp_path_factory.mktemp("python")) as prepared:
        yield prepared


def running(make, scope="function"):
    """Return a fixture: a server that ``make`` returns, which runs for that long. A test may stop its own one."""

    @pytest.fixture(scope=scope)
    def server():
        with make() as running:
            yield running

    return server


shared_redis = running(RedisServer, "module")
own_redis = running(RedisServer)
shared_cluster = running(Cluster, "module")
own_postgresql = running(PostgresqlServer)


@pytest.fixture(scope="module")
def memcached():
    """Return the address of a memcached."""
    user = ["-u", "root"] if os.geteuid() == 0 else []
    with serving(["memcached", "-l", "127.0.0.1", "-p", "{port}", *user]) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def empty_redis(shared_redis):
    shared_redis.client().flushall()
    return shared_redis


@pytest.fixture
def empty_cluster(shared_cluster):
    for node in shared_cluster.nodes:
        node.ask("FLUSHALL")
    return shared_cluster


@pytest.fixture
def waiters(monkeypatch):
    """``waiters(n)`` returns when ``n`` callers in all have begun to wait for a turn."""
    begun = []

    class WatchedAlarm(Alarm):
        def wait(self, seconds):
            begun.append(self)
            return super().wait(seconds)

        async def wait_async(self, seconds):
            begun.append(self)
            return await super().wait_async(seconds)

    monkeypatch.setattr("wheelcache.engine.turns.Alarm", WatchedAlarm)

    def wait_until(count):
        assert until(lambda: len(begun) == count)

    wait_until.begun = begun
    return wait_until


@pytest.fixture
def trackings(monkeypatch):
    """The connections by which Redis tells near caches of writes, in the order in which they were made."""
    from tests.near_cache import tracking

    tracking.note(monkeypatch.setattr)
    yield lambda: tracking.Noted.made
    tracking.stop_all()


def pytest_unconfigure():
    # Caches that tests have left publish into folders that pytest removes at the exit. Their log lines would then
    # follow pytest's last line.
    logging.disable()
