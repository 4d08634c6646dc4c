"""A site on real servers, each in its own process: threads, forks, gevent, ASGI, and one where no thread can run."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.waiting import until

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
SITE = "tests.django_backend.tiny_site"
SERVERS = "tests.django_backend.servers"
CALLERS = 24
UWSGI = "import sys, pyuwsgi; pyuwsgi.run(sys.argv[1:])"
PRELOAD = ["-m", "gunicorn", "--preload", "-k", "gevent", "--log-level", "warning", "--bind", "127.0.0.1:{port}"]

COMMANDS = {
    "waitress": ["-m", "waitress", "--threads", "32", "--listen", "127.0.0.1:{port}", f"{SITE}:application"],
    "uvicorn": ["-m", "uvicorn", "--log-level", "warning", "--port", "{port}", f"{SITE}:asgi_application"],
    "gevent": ["-m", SERVERS, "gevent", "{port}"],
    # gevent patches in the worker, after the site was loaded in the parent; in one of the two also used there.
    "preload": [*PRELOAD, f"{SITE}:application"],
    "preload_used": [*PRELOAD, "tests.django_backend.used_site:application"],
    # Patched in the middle of its life, without a fork: by gevent when its threads run.
    "gevent_late": ["-m", SERVERS, "gevent_late", "{port}"],
    "eventlet_late": ["-m", SERVERS, "eventlet_late", "{port}"],
    "fork": ["-m", SERVERS, "fork", "{port}", "{other_port}"],
    "uwsgi": ["-c", UWSGI, "--http-socket", "127.0.0.1:{port}", "--module", f"{SITE}:application", "--die-on-term"],
    # Two where threads are no help: they start and never run, or cannot be started.
    "locked": ["-m", SERVERS, "locked", "{port}"],
    "refused": ["-m", SERVERS, "refused", "{port}"],
}


class Site:
    def __init__(self, port):
        self.port = port

    def __call__(self, path):
        with urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=15) as response:
            return json.load(response)

    def is_up(self):
        try:
            return "size" in self("size")
        except (URLError, ConnectionError):
            return False

    def together(self, *paths):
        """Ask for all paths at once; the answers in their order."""
        with ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(self, paths, timeout=30))


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start a server, or give the one that runs already: a site for each of its ports, and where it logs to."""
    running = {}

    def start_server(name):
        if name not in running:
            command = COMMANDS[name.partition(" ")[0]]
            ports = free_ports(1 + ("{other_port}" in command))
            log = tmp_path_factory.mktemp("server") / "log"
            with log.open("w") as output:
                process = subprocess.Popen(
                    [sys.executable, *(part.format(port=ports[0], other_port=ports[-1]) for part in command)],
                    cwd=ROOT,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            running[name] = process, [Site(port) for port in ports], log
            assert until(lambda: all(site.is_up() for site in running[name][1]), 20), log.read_text()
        _, sites, log = running[name]
        return sites, log

    yield start_server
    for process, _, _ in running.values():
        # The group is the session that was started for this server, with the children it forked.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    logs = {name: log.read_text() for name, (_, _, log) in running.items()}
    assert not [name for name, log in logs.items() if "Traceback" in log], logs


THREADLESS = ["locked", "refused"]
GREEN = ["gevent", "preload", "preload_used", "gevent_late", "eventlet_late"]
ALL = ["waitress", "uvicorn", *GREEN, "fork", "uwsgi", *THREADLESS]


@pytest.fixture
def site(start, request):
    sites, _ = start(request.param)
    return sites[0]


@pytest.mark.parametrize("site", ALL, indirect=True)
def test_what_one_request_sets_the_next_gets(site):
    site("set/kept?value=a")
    assert site("get/kept") == {"value": ["a"]}
    site("set/kept?value=b")
    assert site("get/kept") == {"value": ["b"]}
    assert site("get/never-set") == {"value": None}


@pytest.mark.parametrize("site", ALL, indirect=True)
def test_a_page_is_computed_once(site):
    assert site("page") == site("page") == {"page": 1}


@pytest.mark.parametrize("site", ALL, indirect=True)
def test_an_expired_entry_is_not_returned(site):
    site("set/short?value=a&timeout=0.05")
    assert until(lambda: site("get/short") == {"value": None})
    site("set/long?value=a&timeout=3600")
    assert site("get/long") == {"value": ["a"]}


@pytest.mark.parametrize("site", [name for name in ALL if name not in THREADLESS], indirect=True)
def test_expired_entries_leave_memory_while_nobody_uses_the_cache(site):
    before = site("size")["size"]
    assert site("set-many/200?timeout=0.5")["size"] == before + 200
    assert until(lambda: site("size")["size"] <= before)


@pytest.mark.parametrize("site", THREADLESS, indirect=True)
def test_where_no_thread_can_run_later_writes_take_out_what_expired(site):
    before = site("size")["size"]
    assert site("set-many/200?timeout=0.05")["size"] == before + 200
    assert until(lambda: site("get/many0") == {"value": None})
    # The one that was asked for is gone, and no thread took out the others.
    assert site("size")["size"] == before + 199

    def size_after_a_write():
        site("set/written-later?timeout=3600")
        return site("size")["size"]

    assert until(lambda: size_after_a_write() <= before + 1)


@pytest.mark.parametrize("site", ALL, indirect=True)
def test_the_bound_on_entries_holds(site):
    assert site("set-many/800?timeout=30") == {"size": 500}


@pytest.mark.parametrize("site", ALL, indirect=True)
def test_counting_in_many_requests_at_once_loses_none(site):
    answers = site.together(*["incr/count"] * 100)
    assert sorted(answer["value"] for answer in answers) == list(range(1, 101))


@pytest.mark.parametrize("site", ["waitress", "uvicorn", *GREEN], indirect=True)
def test_however_many_requests_miss_together_the_default_runs_once(site):
    answers = site.together(*[f"together/{CALLERS}"] * CALLERS)
    assert answers == [{"value": ["value"], "computed": 1}] * CALLERS


@pytest.mark.parametrize("site", ["uvicorn", "waitress"], indirect=True)
def test_async_views_compute_a_missing_value_once_in_the_thread_of_the_loop(site):
    answers = site.together(*[f"atogether/{CALLERS}"] * CALLERS)
    assert answers == [{"value": ["value"], "computed": 1, "hopped": False}] * CALLERS


@pytest.mark.parametrize("site", ["uvicorn", "waitress"], indirect=True)
def test_async_and_sync_views_share_entries(site):
    site("aset/shared?value=async")
    assert site("get/shared") == site("aget/shared") == {"value": ["async"]}
    site("set/shared?value=sync")
    assert site("aget/shared") == {"value": ["sync"]}


def test_children_forked_after_first_use_have_the_entries_and_then_each_its_own(start):
    (one, other), _ = start("fork afresh")
    assert one("get/inherited") == other("get/inherited") == {"value": ["from the parent"]}
    pids = {one("set/inherited?value=of-one")["pid"], other("set/own?value=of-other")["pid"]}
    assert len(pids) == 2
    assert one("get/inherited") == {"value": ["of-one"]}
    assert other("get/inherited") == {"value": ["from the parent"]}
    assert one("get/own") == {"value": None}


def test_every_child_of_a_fork_takes_out_what_expires(start):
    children, _ = start("fork")
    for child in children:
        before = child("size")["size"]
        child("set-many/150?timeout=0.3")
        assert until(lambda child=child, before=before: child("size")["size"] <= before)


@pytest.mark.parametrize("site", ["waitress", "uvicorn", *GREEN], indirect=True)
def test_a_default_with_a_time_out_and_a_refresh_in_the_background_hold_up_no_other_request(site):
    assert site("timed/first") == {"value": ["first"]}
    assert until(lambda: site("refreshed") == {"value": ["refreshed"]})
    answers = site.together(*[f"timed/{number}" for number in range(CALLERS)], *["refreshed"] * CALLERS)
    assert answers[:CALLERS] == [{"value": [str(number)]} for number in range(CALLERS)]
    assert until(lambda: site("idle") == {"idle": True})
    assert site("timed/last") == {"value": ["last"]}
