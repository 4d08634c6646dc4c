"""A site of two workers, one of which was replaced: the new one starts from the snapshot, and ``wheelcache inspect``
shows it."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.servers.restarts import KEYS, Place
from tests.servers.sites import MANAGE
from tests.waiting import until


class Commanded:
    """A site that was filled and has replaced a worker, and the command that looks at it."""

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
        pids = site.pids()
        os.kill(min(pids), signal.SIGTERM)
        assert until(lambda: len(new := site.pids()) == 2 and new != pids)
        yield Commanded(python, request.param, site, place)


def test_a_worker_that_is_replaced_starts_from_what_the_others_or_it_saved(commanded):
    assert commanded.site.hits() == 1


def test_inspect_shows_what_is_there_and_changes_nothing(commanded):
    pids = commanded.site.pids()
    [found] = commanded.inspected()
    assert (found["state"], found["reason"], found["entries"], found["set_aside"]) == ("whole", None, len(KEYS), False)
    path = Path(found["file"])
    assert found["bytes"] == path.stat().st_size
    assert "whole" in commanded.run("inspect")

    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    before = commanded.times()
    shown = commanded.run("inspect")
    assert path.name in shown
    assert "damaged: it is damaged after" in shown
    assert commanded.times() == before
    path.write_bytes(whole)
    assert commanded.site.pids() == pids
