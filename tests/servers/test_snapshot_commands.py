"""``wheelcache save``, ``load`` and ``inspect`` with a site of two workers, one of which is replaced at the end."""

import json
import os
import signal
from io import StringIO
from pathlib import Path

import pytest

from tests.observability.published import look
from tests.servers.process import pausing
from tests.servers.restarts import KEYS, Place
from tests.servers.sites import MANAGE
from tests.waiting import until
from wheelcache import Cache
from wheelcache.observability import console, snapshot_commands


class Commanded:
    """A site that was filled, and the command that looks at it."""

    def __init__(self, python, framework, site, place):
        self._python = python
        self.site = site
        self.place = place
        self._command = MANAGE[framework]

    def run(self, *words):
        done = self._python(*self._command, *words, **self.place.given())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inspected(self):
        """The snapshots of the one cache there is."""
        [cache] = json.loads(self.run("inspect", "--json"))["caches"]
        return cache["snapshots"]

    def times(self):
        return {path: path.stat().st_mtime_ns for path in self.place.snapshots.iterdir()}


@pytest.fixture(scope="module", params=MANAGE)
def commanded(request, python, tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("site"))
    with place.serve(request.param, "gunicorn gthread") as site:
        site.fill()
        # Until all workers have shown that they are there, no command can ask them for anything.
        assert until(lambda: [each.workers for each in look(place.figures).caches] == [site.workers])
        yield Commanded(python, request.param, site, place)


def test_save_has_every_worker_save_and_inspect_shows_what_is_there_and_changes_nothing(commanded):
    site = commanded.site
    pids = site.pids()
    assert commanded.run("save").count(f": {len(KEYS)} entries in {commanded.place.snapshots}/") == site.workers
    found = commanded.inspected()
    assert len(found) == site.workers
    for each in found:
        assert (each["state"], each["reason"], each["entries"], each["set_aside"]) == ("whole", None, len(KEYS), False)
        assert each["bytes"] == Path(each["file"]).stat().st_size

    path = Path(found[0]["file"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    before = commanded.times()
    shown = commanded.run("inspect")
    assert path.name in shown
    assert "damaged: it is damaged after" in shown
    assert "whole" in shown
    assert commanded.times() == before
    path.write_bytes(whole)
    assert site.pids() == pids


def test_load_brings_back_what_was_deleted_and_leaves_what_is_newer(commanded):
    commanded.run("save")
    pids = commanded.site.everywhere("delete/key1")
    commanded.site.everywhere("set/key2?value=newer")
    shown = commanded.run("load")
    assert any(str(path) in shown for path in commanded.times())
    assert all(str(pid) in shown for pid in pids)
    assert until(lambda: all(commanded.site("get/key1")["value"] == ["warm"] for _ in range(20)))
    assert commanded.site("get/key2")["value"] == ["newer"]
    commanded.site.fill()


def test_save_names_the_workers_that_do_not_come(commanded):
    place = commanded.place
    cache = Cache("site", figures_dir=place.figures, snapshot_dir=place.snapshots)
    stopped = min(commanded.site.pids())
    with (
        pausing(stopped),
        pytest.raises(console.CommandFailed, match=f"Only 1 of the 2 workers of the cache {cache.name!r}") as undone,
    ):
        snapshot_commands.save([cache], "SNAPSHOT", out := StringIO(), patience=3)
    assert str(stopped) in str(undone.value)
    assert "saved it within 3 seconds" in str(undone.value)
    assert out.getvalue().count(" entries in ") == 1
    assert not cache.keeper.save()
    cache.close()


def test_a_worker_that_is_replaced_starts_from_what_the_others_or_it_saved(commanded):
    """The last one: the pids are others afterwards."""
    site = commanded.site
    pids = site.pids()
    os.kill(min(pids), signal.SIGTERM)
    assert until(lambda: len(new := site.pids()) == 2 and new != pids)
    assert site.hits() == 1
