"""wheelcache on Windows and macOS: features that need Linux say so, and everything works without it otherwise.

On Linux, a script hides from itself what those lack, so that wheelcache takes this machine for one of them.
"""

import sys

import pytest

from tests.scripts import run_python

pytestmark = pytest.mark.deep

HIDE = """
import sys
# These decide by the system when they are imported, and must find the real one.
import asyncio, concurrent.futures, ctypes, logging.handlers, multiprocessing.pool, subprocess, tempfile, uuid
import sqlite3
import django.core.cache, django.core.checks, django.core.handlers.wsgi, django.db, django.http, django.template
import django.test, django.views.decorators.cache
try:
    import redis
except ImportError:
    pass
import os, signal, time

LINUX_ONLY = ("/proc", "/dev/shm")

def hide_files(event, arguments):
    if event.startswith(("open", "os.")) and arguments and str(arguments[0]).startswith(LINUX_ONLY):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

def access(path, mode, real=os.access):
    return not str(path).startswith(LINUX_ONLY) and real(path, mode)

def stat(path, *args, real=os.stat, **kwargs):
    if str(path).startswith(LINUX_ONLY):
        raise FileNotFoundError(2, "No such file or directory", path)
    return real(path, *args, **kwargs)

sys.addaudithook(hide_files)
os.access, os.stat = access, stat
"""

AS_MACOS = """
sys.platform = "darwin"
for name in ("CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME"):
    vars(time).pop(name, None)
"""

AS_WINDOWS = """
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios", "pty"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "fchmod", "fchown",
             "chown", "pread", "pwrite", "sysconf", "sched_getaffinity", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC",
             "O_NONBLOCK"):
    vars(os).pop(name, None)
for name in ("pthread_sigmask", "SIGUSR1", "SIGALRM", "setitimer", "SIG_BLOCK", "pthread_kill"):
    vars(signal).pop(name, None)
for name in ("clock_gettime", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_COARSE", "CLOCK_BOOTTIME"):
    vars(time).pop(name, None)
"""

SYSTEMS = {"windows": AS_WINDOWS, "macos": AS_MACOS}

ON_LINUX = sys.platform == "linux"
HERE = [name for name in SYSTEMS if ON_LINUX or name == {"win32": "windows", "darwin": "macos"}[sys.platform]]

LOG = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING, stream=sys.stdout)
"""

DJANGO = """
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import include, path
from django.views.decorators.cache import cache_page

def site(**options):
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF="__main__", SECRET_KEY="not secret", LOGGING_CONFIG=None,
        INSTALLED_APPS=["wheelcache.django_backend"], WHEELCACHE_DASHBOARD_GUARD=lambda request: {"operate"},
        CACHES={
            "default": {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": options},
            "store": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "tiered": {
                "BACKEND": "wheelcache.django_backend.TieredCache",
                "OPTIONS": {"FIGURES_DIR": None, "L2": "store"},
            },
        },
    )
    django.setup()
    urlpatterns.append(path("page", cache_page(60)(page)))

rendered = []

def page(request):
    rendered.append(request)
    return HttpResponse("a page")

urlpatterns = [path("wheelcache/", include("wheelcache.watch.urls"))]
"""


@pytest.fixture(params=HERE)
def system(request):
    return request.param


@pytest.fixture
def run(system, tmp_path):
    """Run a script as on ``system``, and return its output. On another system than Linux, nothing is hidden."""

    def run(*parts):
        hide = (HIDE, SYSTEMS[system]) if ON_LINUX else ()
        done = run_python("-c", "\n".join((*hide, LOG, *parts)), env={"TMPDIR": str(tmp_path)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_engine_expires_entries_and_timers_fire(run):
    script = """
import threading
import wheelcache
from wheelcache.timers import Timers

clock = wheelcache.ManualClock()
cache = wheelcache.Cache(clock=clock, jitter=0, max_entries=2)
cache.set("key", "value", ttl=10)
assert cache.get("key") == "value"
clock.advance(10)
assert cache.get("key") is None
assert cache.get_or_load("loaded", lambda: "value") == "value"

expired, fired = threading.Event(), threading.Event()
timed = wheelcache.Cache("timed", on_removal=lambda key, value, cause: expired.set())
timed.set("key", "value", ttl=0.01)
assert expired.wait(60), "the wheel thread did not expire the entry"
timers = Timers(0.01, lambda key, value: fired.set())
timers.set_timer("key", "value", 0.01)
assert fired.wait(60), "the timer did not fire"
timers.stop()
"""
    assert run(script) == ""


def test_django_s_cache_its_pages_and_its_dashboard_work(run):
    script = """
site(FIGURES_DIR=None, FILL_WAIT=1)
from django.core.cache import caches
from django.core.checks import INFO, run_checks
from django.test import Client

cache = caches["default"]
cache.set("key", [1])
assert cache.get("key") == [1]
assert (cache.get_or_set("number", lambda: 1), cache.incr("number")) == (1, 2)
assert cache.add("number", 0) is False
client = Client()
assert {client.get("/page").content for _ in range(3)} == {b"a page"}
assert len(rendered) == 1
tiered = caches["tiered"]
tiered.set("key", "a copy")
assert (tiered.get("key"), caches["store"].get("key")) == ("a copy", "a copy")
assert client.get("/wheelcache/").status_code == 200
shown = client.get("/wheelcache/figures.json").json()["caches"]
assert {each["name"] for each in shown} == {"default", "copies of store"}
print([each.id for each in run_checks() if each.level > INFO])
"""
    # The system check says that nothing notifies the copies of other processes' writes.
    assert run(DJANGO, script) == "['wheelcache.W003']\n"


NEEDS = "needs the file locks and permissions of Unix, which Windows does not have"

on_windows = pytest.mark.parametrize("system", [each for each in HERE if each == "windows"], indirect=True)


@on_windows
def test_an_option_that_needs_unix_is_an_error_that_says_so(run):
    script = """
from django.core.exceptions import ImproperlyConfigured
import os, tempfile
place = os.path.join(tempfile.gettempdir(), "place")
site(FIGURES_DIR=place)
from django.core.cache import caches
try:
    caches["default"].get("key")
except ImproperlyConfigured as error:
    print(error)
"""
    assert NEEDS in run(DJANGO, script)


@on_windows
def test_figures_that_are_not_shared_are_one_warning(run):
    script = """
site()
from django.core.cache import cache
cache.set("key", 1)
from django.test import Client
assert Client().get("/wheelcache/figures.json").status_code == 200
from django.core.management import CommandError, call_command
for action in ([], ["clear"]):
    try:
        call_command("wheelcache", *action, stdout=sys.stdout)
    except CommandError as error:
        print("command:", *action, error)
"""
    warning, *commands = run(DJANGO, script).splitlines()
    assert warning == (
        "WARNING The figures of the caches are not published, so each worker shows only its own: "
        f"sharing figures between processes {NEEDS}"
    )
    assert [line.startswith("command:") for line in commands] == [True, True]


@on_windows
def test_files_of_timers_are_refused_and_nothing_is_written(run, tmp_path):
    script = """
import os, tempfile
from wheelcache.timers import Timers
path = os.path.join(tempfile.gettempdir(), "timers")
timers = Timers(1.0, print)
try:
    timers.save(path)
except Exception as error:
    print(type(error).__name__, error)
print(timers.load(path))
"""
    assert run(script).splitlines() == [
        f"FileUnusable a file of timers {NEEDS}",
        f"WARNING A file of timers is not loaded by <Timers every 1.0 s>: a file of timers {NEEDS}.",
        "0",
    ]
    assert [*tmp_path.iterdir()] == []
