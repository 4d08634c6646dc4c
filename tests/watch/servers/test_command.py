"""``manage.py wheelcache`` and ``flask wheelcache``, in a process that is none of the site's workers."""

import json
import re
from functools import partial
from types import SimpleNamespace

import pytest

from tests.servers.sites import MANAGE, environment
from tests.waiting import until
from wheelcache import Cache
from wheelcache.watch.site_commands import figures

WORKERS = 2


@pytest.fixture(scope="module", params=MANAGE)
def site(request, python, fleet, tmp_path_factory):
    """A site whose workers have published their figures: ``run`` runs the command, and ``gets`` has the hits and misses
    of each worker, by its process identifier."""
    path, gets = str(tmp_path_factory.mktemp("figures") / "here"), {}
    options = {"figures_dir": path} | ({} if request.param == "django" else {"name": "site"})
    server = fleet(request.param, "gunicorn sync", **options)

    def ask(hits, misses):
        pid = server(f"look-up/{hits}/{misses}")["pid"]
        before = gets.get(pid, (0, 0))
        gets[pid] = (before[0] + hits, before[1] + misses)

    def published():
        # Without a process for each look.
        caches = figures([Cache("looks only", figures_dir=path)]).document["caches"]
        return {each["pid"]: (each["hits"], each["misses"]) for cache in caches for each in cache["workers"]}

    assert until(lambda: ask(3, 2) or len(gets) == WORKERS)
    assert until(lambda: published() == gets, note=published)
    run = partial(python, *MANAGE[request.param], **environment(**options))
    return SimpleNamespace(framework=request.param, path=path, gets=gets, run=run)


def test_it_prints_both_workers_and_exact_sums_as_json_and_as_a_table(site):
    document = json.loads(site.run("--json").stdout)
    assert (document["looked_in"], document["problems"]) == ([site.path], [])
    [cache] = document["caches"]
    total = cache["total"]
    hits, misses = map(sum, zip(*site.gets.values(), strict=True))
    assert cache["name"] == "site"
    assert (total["hits"], total["misses"], total["requests"]) == (hits, misses, hits + misses)
    assert total["hit_ratio"] == hits / (hits + misses)
    assert total["entries"] == WORKERS
    assert {each["thread"] for each in cache["workers"]} <= {"running", "parked"}
    assert set(total) < set(cache["workers"][0])
    done = site.run()
    assert done.returncode == 0, done.stderr
    for pid, gets in site.gets.items():
        assert re.search(rf"^\s*{pid} .* {sum(gets):,} ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(rf"^site .* {hits + misses:,} ", done.stdout, re.MULTILINE), done.stdout


def test_from_the_terminal_entries_of_all_workers_are_seen_and_deleted(site):
    (key,) = site.run("keys", "*there").stdout.split()
    if site.framework == "django":
        assert site.run("keys", "--cache", "default", "*there").stdout.split() == [key]
    workers = json.loads(site.run("get", "--cache", "site", key, "--json").stdout)["workers"]
    assert {each["pid"] for each in workers} == site.gets.keys()
    assert site.run("delete", key).stdout.count("1 entry deleted") == WORKERS
    gone = site.run("get", key)
    assert (gone.returncode, "No worker has such an entry" in gone.stderr) == (1, True)
    assert "Traceback" not in gone.stderr


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        ("without_any", "The app 'bare' has no Flask-Caching cache"),
        ("without_ours", "No cache of the app 'theirs' is one of wheelcache.flask_backend"),
    ],
)
def test_an_app_without_our_cache_is_told(python, factory, complaint):
    done = python("-m", "flask", f"--app=tests.watch.servers.other_apps:{factory}", "wheelcache")
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
