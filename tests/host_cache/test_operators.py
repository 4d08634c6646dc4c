"""What operators see of a host cache, and do to it, from a process that is none of its workers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from wheelcache.core import IMPLEMENTATION
from wheelcache.errors import CacheClosed
from wheelcache.host_cache.hosted_cache import HostedCache
from wheelcache.host_cache.place import Place
from wheelcache.watch import entry_commands, site_commands
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.inspection import Target
from wheelcache.watch.site import Own, Site

WORKER = """
import sys
from tests.host_cache.test_operators import make
cache = make(sys.argv[1])
cache.set("user:1", "one", ttl=100, tags=["users"])
cache.set("user:2", "two", tags=["users"])
cache.set("page:1", "x" * 500)
assert cache.get("user:1") == "one"
cache.get_or_load("gone", lambda: 1)
cache.delete("gone")
cache.engine.observed.observer.publication.run_now()
print("done", flush=True)
sys.stdin.read()
"""

SIZE = 1 << 20


def make(folder, **options):
    given = {"name": "shared", "figures_dir": f"{folder}/figures", **options}
    return HostedCache(lambda: Place(Path(folder) / "entries"), SIZE, **given)


@pytest.fixture
def worker(tmp_path):
    """A worker of the cache, which has stored three entries."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "done\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def cache(tmp_path):
    cache = make(tmp_path)
    yield cache
    cache.close()


@pytest.fixture(params=["alive", "killed"])
def others(request, worker):
    """The worker that has stored the entries, alive or killed: its entries are there in both cases."""
    if request.param == "killed":
        worker.kill()
        worker.wait()


def run(cache, action, target=None, **options):
    given = {"target": target, "pattern": None, "tag": None, "show_value": False, **options}
    report = entry_commands.run(action, given, [cache], None)
    return [str(line) for line in report.view], report.failure


def test_commands_read_and_delete_the_entries_themselves(others, cache):
    assert run(cache, "keys", "user:*") == (["user:1", "user:2"], None)
    (shown,), failure = run(cache, "get", "user:1", show_value=True)
    assert failure is None
    assert shown.startswith("present, ")
    assert shown.endswith(", str, tags 'users', value 'one'")
    assert run(cache, "tags", "*") == (["2\tusers"], None)
    assert run(cache, "delete", "user:2") == (["1 entry deleted"], None)
    assert cache.get("user:2") is None
    assert run(cache, "delete", tag="users") == (["entries of the tag deleted"], None)
    assert run(cache, "keys", "*") == (["page:1"], None)


@pytest.mark.compiled
def test_the_event_of_a_delete_names_the_group_of_the_key_and_never_the_key(worker, cache):
    page = Dashboard("Site", lambda: [cache], lambda name: [])
    for kind, text in (("key", "user:1"), ("key", "no such entry"), ("pattern", "page:*")):
        page.inspect("shared", Target("delete", kind, text), "maria")
    page.inspect("shared", Target("find", "group", "user"), "maria")
    events = [each.sentence() for each in Site([cache]).events(10) if each.kind in ("deleted", "inspected")]
    assert sorted(events) == [
        "by maria: a key",
        "by maria: a key of user",
        "by maria: a pattern",
        "by maria: keys of user",
    ]


def test_a_clear_takes_effect_before_the_command_ends(others, cache):
    assert site_commands.clear([cache], "shared").view == ["'shared': removed 3 entries."]
    assert cache.keys() == []


def test_the_dashboard_inspects_and_clears_without_asking_a_worker(others, cache):
    dashboard = Dashboard("Site", lambda: [cache], lambda name: [])
    found = dashboard.inspect("shared", Target("find", "key", "user:1"), "an operator")
    answers = dashboard.answers(found["token"])
    assert (answers["is_over"], answers["workers"], answers["failures"]) == (True, 1, [])
    found = dashboard.inspect("shared", Target("find", "group", "user"), "an operator")
    of_group = ["user:1", "user:2"] if IMPLEMENTATION == "compiled" else []
    assert sorted(row[0] for row in dashboard.answers(found["token"])["rows"]) == of_group
    assert dashboard.clear("shared", "an operator").endswith("in all workers of this machine immediately.")
    assert cache.keys() == []


def test_the_sums_over_all_workers_count_each_entry_once(worker, tmp_path, cache):
    assert cache.get("user:1") == "one"

    def sums():
        cache.engine.observed.observer.publication.run_now()
        (figures,) = Site([cache], Own.NONE).caches
        return figures.workers, figures.stats.size, figures.stats.hits

    assert until(lambda: sums() == (2, 3, 2), note=sums)
    (figures,) = Site([cache], Own.NONE).caches
    assert figures.memory == cache.stats().weight > 500
    assert cache.stats().size == 3


def test_the_bounds_apply_to_all_workers_together(worker, tmp_path, cache):
    assert cache.get("user:1") == "one"

    def read():
        cache.engine.observed.observer.publication.run_now()
        (figures,) = Site([cache], Own.NONE).caches
        return figures

    assert until(lambda: (read().workers, read().stats.size) == (2, 3), note=read)
    assert (read().max_entries, read().max_weight) == (None, SIZE)
    assert read().fullness == cache.stats().weight / SIZE


def test_reading_alone_makes_a_process_one_of_the_workers(worker, cache, tmp_path):
    assert cache.get("user:1") == "one"
    assert until(lambda: next(iter(Site([make(tmp_path)], Own.NONE).caches)).workers == 2)


def test_a_closed_cache_refuses_reads_and_keeps_the_entries_of_others(worker, tmp_path, cache):
    assert cache.get("user:1") == "one"
    cache.close()
    for call in (lambda: cache.get("user:1"), lambda: cache.set("key", 1), lambda: cache.delete("user:1")):
        with pytest.raises(CacheClosed):
            call()
    other = make(tmp_path)
    assert other.get("user:1") == "one"
    other.close()
