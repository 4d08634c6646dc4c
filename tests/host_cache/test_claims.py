"""Of the processes that miss a key, one computes its value: sites that wait for each other, and holders that end."""

import json
import os
import select
import shutil
import signal
import sys
import threading

import pytest

from tests.fill_waits.callers import LONG, MISS, ThreadCaller
from tests.host_cache.test_operators import make
from tests.scripts import start
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import ManualClock
from wheelcache.host_cache import statements as sql
from wheelcache.host_cache.claims import Claims, LockFile
from wheelcache.host_cache.host_file import HostFile
from wheelcache.host_cache.place import Place
from wheelcache.runtime.request_scope import end_request
from wheelcache.runtime.worker_pool import REFRESHES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these locks")

PATCHED = """
import gevent.monkey
gevent.monkey.patch_all()
"""

SITE = """
import json, os, signal, sys, threading
from collections import defaultdict
import django
from django.conf import settings
from django.core.signals import request_finished

location, options = json.loads(sys.argv[1])
settings.configure(
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.HostCache",
            "LOCATION": location,
            "OPTIONS": {"FIGURES_DIR": None, **options},
        }
    }
)
django.setup()
from django.core.cache import cache
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache.engine import turns
from wheelcache.runtime.alarm import Alarm

answers = {}

def begin(name, work):
    # In a thread of its own, which goes on.
    def run():
        answers[name] = work()
        goes_on.wait()
    threading.Thread(target=run, daemon=True).start()

def answer(name):
    until(lambda: name in answers)
    return answers.pop(name)

told = defaultdict(Alarm)
values = {}

def tell(name, value=None):
    values[name] = value
    told[name].set()

def wait_for(name):
    assert told[name].wait(PATIENCE)
    return values[name]

def set_nested_wait(seconds):
    turns.NESTED_WAIT = seconds

def end_request():
    request_finished.send(None)

goes_on = threading.Event()
names = globals()
for line in sys.stdin:
    code = json.loads(line)
    try:
        result = eval(code, names)
    except SyntaxError:
        result = exec(code, names)
    print(json.dumps(result), flush=True)
"""


class Site:
    """A process of a Django site: ``site("cache.get('key')")`` runs there, and returns its result."""

    def __init__(self, location, options, is_patched=False):
        # With the name of a worker of the tests, each process would have entries of its own.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        self.process = start(PATCHED * is_patched + SITE, json.dumps([str(location), options]), stderr=None, env=env)

    def __call__(self, code):
        self.process.stdin.write(f"{json.dumps(code)}\n")
        self.process.stdin.flush()
        assert select.select([self.process.stdout], [], [], 2 * PATIENCE)[0], f"no answer to {code}"
        return json.loads(self.process.stdout.readline())

    def begins(self, code, name="it", count=1):
        """Run code in a thread until it waits, and ``count`` threads do."""
        self(f"begin({name!r}, lambda: {code})")
        self(f"until_waiting({count})")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def make_site(tmp_path):
    made = []

    def make(*, is_patched=False, **options):
        made.append(Site(tmp_path / "host", options, is_patched))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        each.process.stdin.close()
        each.process.stdout.close()


@pytest.fixture
def sites(make_site):
    """Two processes whose callers of ``get`` wait for each other."""
    return make_site(FILL_WAIT=LONG), make_site(FILL_WAIT=LONG)


def test_a_get_waits_for_the_process_that_missed_the_key_and_returns_its_value(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder("cache.set('key', [1, 'value'])")
    assert waiter("answer('it')") == [1, "value"]


def test_a_get_goes_on_when_the_process_that_it_waits_for_is_killed(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder.kill()
    assert waiter("answer('it')") is None


@pytest.mark.parametrize("end", ["end_request()", "cache.delete('key')"])
def test_a_get_goes_on_when_the_request_that_it_waits_for_will_not_set_the_key(sites, end):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder(end)
    assert waiter("answer('it')") is None
    # It has the claim now.
    holder.begins("cache.get('key')")
    waiter("cache.set('key', 1)")
    assert holder("answer('it')") == 1


def test_a_get_waits_no_longer_than_its_time(make_site):
    holder, waiter = make_site(FILL_WAIT=LONG), make_site(FILL_WAIT=0.05)
    assert holder("cache.get('key')") is None
    assert waiter("cache.get('key')") is None


def test_a_caller_that_holds_the_fill_of_another_key_does_not_wait(sites):
    for site, key in zip(sites, ["one", "other"], strict=True):
        assert site(f"cache.get({key!r})") is None
    for site, key in zip(sites, ["other", "one"], strict=True):
        assert site(f"cache.get({key!r})") is None


def test_a_get_goes_on_when_its_own_process_sets_the_key_and_leaves_no_claim(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    waiter("cache.set('key', 'set meanwhile')")
    assert waiter("answer('it')") == "set meanwhile"
    holder("end_request()")
    for site in sites:
        assert site("cache.delete('key')")
        assert site("cache.get('key')") is None
        site("end_request()")
        site("cache.set('key', 1)")


# Loads.


def test_a_load_waits_for_that_of_another_process_and_returns_its_value(sites):
    holder, waiter = sites
    holder.begins("cache.get_or_set('key', lambda: wait_for('value'))")
    waiter.begins("cache.get_or_set('key', lambda: 'computed twice')")
    holder("tell('value', 7)")
    assert [site("answer('it')") for site in sites] == [7, 7]


def test_of_the_loads_that_wait_for_a_killed_process_one_computes(make_site):
    holder, *others = [make_site() for _ in range(3)]
    holder.begins("cache.get_or_set('key', lambda: wait_for('value'))")
    for number, site in enumerate(others):
        site.begins(f"cache.get_or_set('key', lambda: {number})")
    holder.kill()
    first, second = (site("answer('it')") for site in others)
    assert first == second


def test_loads_of_two_processes_that_wait_for_each_other_through_other_threads_end(sites):
    """In each process, one load waits for a key that another thread of it waits for, since the other process has it."""
    for site, own, other in zip(sites, ["one", "other"], ["other", "one"], strict=True):
        site("set_nested_wait(0.1)")
        site.begins(f"cache.get_or_set({own!r}, lambda: (wait_for('go'), cache.get_or_set({other!r}, lambda: 2))[1])")
    for site, other in zip(sites, ["other", "one"], strict=True):
        site.begins(f"cache.get_or_set({other!r}, lambda: 3)", "waiter", count=2)
    for site in sites:
        site("tell('go')")
    for site in sites:
        assert site("answer('it')") == 2
        assert site("answer('waiter')") == 2


def test_a_load_with_a_time_limit_waits_no_longer_for_another_process(sites):
    holder, waiter = sites
    holder.begins("cache.get_or_set('key', lambda: wait_for('value'))")
    assert (
        waiter(r"""
from wheelcache import LoadTimeout
loads = []
try:
    cache.get_or_set("key", lambda: loads.append(1), load_timeout=0.05)
except LoadTimeout:
    loads.append("too late")
""")
        is None
    )
    assert waiter("loads") == ["too late"]
    holder("tell('value', 7)")
    assert holder("answer('it')") == waiter("cache.get('key')") == 7


# Descriptors.


def test_a_thousand_fills_need_no_more_descriptors_than_one(sites):
    site, other = sites
    count = "len(os.listdir('/proc/self/fd'))"
    assert site("cache.get('key-0')") is None
    before = site(count)
    assert site("cache.get_many([f'key-{number}' for number in range(1000)])") == {}
    assert site("[cache.get(f'key-{number}') for number in range(1000)]") == [None] * 1000
    assert site(count) == before
    other.begins("cache.get('key-999')")
    site("cache.set('key-999', 1)")
    assert other("answer('it')") == 1


FORK = """
def load():
    pid = os.fork()
    if pid == 0:
        return "the child"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

value = cache.get_or_set("key", load)
if value == "the child":
    # Its parent has the claim, and stores its value.
    assert cache.get("key") is None
    assert cache.get_or_set("another", lambda: 1) == 1
    os._exit(0)
"""


def test_a_loader_that_forks_ends_in_both_processes(sites):
    site, other = sites
    site(FORK)
    assert site("value") == 0
    assert other("cache.get('key')") == 0


def test_the_child_of_a_killed_process_keeps_no_claim(sites):
    holder, waiter = sites
    holder("pipe = os.pipe()")
    holder.begins("""cache.get_or_set('key', lambda: wait_for('value'))""")
    child = holder("os.fork() or (signal.alarm(3 * PATIENCE), os.read(pipe[0], 1))")
    try:
        waiter.begins("cache.get_or_set('key', lambda: 2)")
        holder.kill()
        assert waiter("answer('it')") == 2
    finally:
        os.kill(child, signal.SIGKILL)


def test_processes_that_use_a_new_folder_wait_for_each_other(make_site, tmp_path):
    one = make_site(FILL_WAIT=LONG)
    one("cache.set('of-the-old-folder', 1)")
    shutil.rmtree(tmp_path / "host")
    other = make_site(FILL_WAIT=LONG)
    other("cache.set('of-the-new-folder', 1)")
    until(lambda: one("cache.get('of-the-new-folder')") == 1)
    assert other("cache.get('key')") is None
    one("end_request()")
    one.begins("cache.get('key')")
    other("cache.set('key', 1)")
    assert one("answer('it')") == 1


def test_a_greenlet_that_waits_for_another_process_does_not_stop_the_others(make_site):
    pytest.importorskip("gevent")
    holder, waiter = make_site(FILL_WAIT=LONG), make_site(is_patched=True, FILL_WAIT=LONG)
    assert holder("cache.get('key')") is None
    waiter("it, other = gevent.spawn(cache.get, 'key'), gevent.spawn(cache.get, 'another')")
    assert waiter("other.get(timeout=PATIENCE)") is None
    holder("cache.set('key', 1)")
    assert waiter("it.get(timeout=PATIENCE)") == 1


def test_a_lease_that_was_waited_for_lasts_as_long_as_any_other(tmp_path):
    clock = ManualClock()
    there, here = make(tmp_path, figures_dir=None), make(tmp_path, figures_dir=None, clock=clock)
    holder, first, second = ThreadCaller(there), ThreadCaller(here), ThreadCaller(here)
    try:
        assert holder.gets("key") == MISS
        asked = first.asks("key")
        until_waiting()
        clock.advance(LONG - 1)
        holder.does(end_request)
        assert asked.result(PATIENCE) == MISS
        clock.advance(LONG - 1)
        asked = second.asks("key")
        until_waiting()
        first.does(here.set, "key", 1)
        assert asked.result(PATIENCE) == 1
    finally:
        for each in (holder, first, second):
            each.ends()
        there.close()
        here.close()


def test_a_claim_that_another_thread_releases_while_it_is_refused_is_no_error(folder, monkeypatch):
    first, second = (Claims(HostFile(lambda: Place(folder), sql.schema(1 << 20, 10), "", bool)) for _ in range(2))
    assert first.on("key").take()
    claim, lock = second.on("key"), LockFile.lock

    def lock_while_another_thread_releases(file, place, *, wait):
        is_locked = lock(file, place, wait=wait)
        claim.release()
        return is_locked

    monkeypatch.setattr(LockFile, "lock", lock_while_another_thread_releases)
    assert not claim.take()


def test_a_get_receives_no_value_that_another_process_deleted_before_it_began_to_wait(tmp_path, monkeypatch):
    there, here = make(tmp_path, figures_dir=None), make(tmp_path, figures_dir=None)
    holder, waiter = ThreadCaller(here), ThreadCaller(here)
    write, asked = HostFile.write, []

    def write_before_others(*args):
        monkeypatch.setattr(HostFile, "write", write)
        written = write(*args)
        there.delete("key")
        asked.append(waiter.asks("key"))
        until_waiting()
        return written

    try:
        assert holder.gets("key") == MISS
        monkeypatch.setattr(HostFile, "write", write_before_others)
        holder.does(here.set, "key", "deleted")
        holder.does(end_request)
        assert asked[0].result(PATIENCE) == MISS
    finally:
        for each in (holder, waiter):
            each.ends()
        there.close()
        here.close()


def test_a_refresh_that_another_caller_has_overtaken_leaves_its_claim(view, clock, in_thread):
    one, other = view(), view()
    busy = [f"busy {number}" for number in range(REFRESHES)]
    for key in (*busy, "key"):
        one.get_or_load(key, lambda: "old", 1, grace=100)
    clock.advance(2)
    are_released, is_computing, ends = threading.Event(), threading.Event(), threading.Event()

    def refresh():
        are_released.wait(PATIENCE)

    def loader():
        is_computing.set()
        assert ends.wait(PATIENCE)
        return "computed"

    # No thread is free for the refresh of the key.
    for key in busy:
        assert one.get_or_load(key, refresh, 1, grace=100) == "old"
    assert one.get_or_load("key", lambda: "refreshed", 1, grace=100) == "old"
    overtaking = in_thread(one.get_or_load, "key", loader)
    assert is_computing.wait(PATIENCE)
    are_released.set()
    assert until(lambda: one.get_many(busy).keys() == {*busy})
    waiting = in_thread(other.get_or_load, "key", lambda: "computed twice")
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    ends.set()
    assert overtaking.result(PATIENCE) == waiting.result(PATIENCE) == "computed"
