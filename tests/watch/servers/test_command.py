"""``manage.py wheelcache`` and ``flask wheelcache``, in a process that is none of the site's workers."""

import json
import re

import pytest

from tests.servers.sites import MANAGE, environment
from tests.waiting import until
from wheelcache import Cache
from wheelcache.watch.site_commands import figures

WORKERS = 2


class Asked:
    """Two workers, and the calls that each of them received.

    Attributes:
        gets: by pid, the hits and misses that the worker was asked for.
        command: the command that shows them, with ``given`` as its environment.
    """

    def __init__(self, python, framework, server, given):
        self.python = python
        self.framework = framework
        self.server = server
        self.command = MANAGE[framework]
        self.given = given
        self.gets = {}

    def ask(self, hits, misses):
        """Let any worker set a key, hit and miss, and count these for the worker. Return its process identifier."""
        pid = self.server(f"look-up/{hits}/{misses}")["pid"]
        before = self.gets.get(pid, (0, 0))
        self.gets[pid] = (before[0] + hits, before[1] + misses)
        return pid

    def run(self, *options, **more):
        return self.python(*self.command, *options, **self.given, **more)

    def published(self):
        [cache] = published(self.figures_dir)
        return cache

    def figures(self):
        """Return the JSON that the command prints once it is right: workers publish in their own time."""

        def is_right():
            workers = [worker for cache in published(self.figures_dir) for worker in cache["workers"]]
            return {each["pid"]: (each["hits"], each["misses"]) for each in workers} == self.gets

        assert until(is_right, note=lambda: published(self.figures_dir))
        return json.loads(self.run("--json").stdout)


def published(path):
    """Return the caches in the document that the command prints, without a process for each look."""
    return figures([Cache("looks only", figures_dir=path)]).document["caches"]


@pytest.fixture(scope="module", params=MANAGE)
def site(request, python, fleet, tmp_path_factory):
    figures = str(tmp_path_factory.mktemp("figures") / "here")
    options = {"figures_dir": figures, "name": "site"}
    if request.param == "django":
        del options["name"]
    asked = Asked(python, request.param, fleet(request.param, "gunicorn sync", **options), environment(**options))
    asked.figures_dir = figures
    assert until(lambda: asked.ask(3, 2) and len(asked.gets) == WORKERS)
    for _ in range(20):
        asked.ask(5, 1)
    return asked


def test_it_prints_both_workers_and_exact_sums_as_json_and_as_a_table(site):
    figures = site.figures()
    assert (figures["looked_in"], figures["problems"]) == ([site.figures_dir], [])
    [cache] = figures["caches"]
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
    site.figures()
    (key,) = site.run("keys", "*there").stdout.split()
    if site.framework == "django":
        assert site.run("keys", "--cache", "default", "*there").stdout.split() == [key]
    workers = json.loads(site.run("get", "--cache", "site", key, "--json").stdout)["workers"]
    assert {each["pid"] for each in workers} == site.gets.keys()
    assert site.run("delete", key).stdout.count("1 entry deleted") == WORKERS
    gone = site.run("get", key)
    assert (gone.returncode, "No worker has such an entry" in gone.stderr, "Traceback" in gone.stderr) == (
        1,
        True,
        False,
    )


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
