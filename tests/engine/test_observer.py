"""What the engine does for an observer, with one that is not of the package."""

from array import array
from types import SimpleNamespace

import pytest

from wheelcache import Cache, ManualClock
from wheelcache.engine.cache_parts import CacheParts, core_in_memory
from wheelcache.engine.calls import Engine
from wheelcache.engine.loading.request import PLAIN
from wheelcache.engine.write_watcher import WriteMoments, WritesSince
from wheelcache.runtime.clock import moment
from wheelcache.runtime.periodic_jobs import PeriodicJob


class Job(PeriodicJob):
    period = 1.0

    def __init__(self, noted):
        self._noted = noted

    def begin(self):
        self._noted.append("begin")

    def run(self):
        self._noted.append("run")

    def start_over(self):
        self._noted.append("start over")

    def close(self):
        self._noted.append("close")


class Noting:
    """An observer, and what it was notified of."""

    def __init__(self, publishes):
        self.publishes = publishes
        self.noted = []
        self.jobs = [Job(self.noted)]

    def failed(self, error, group):
        self.noted.append(f"failed: {error}{group}")

    def cleared(self, by):
        self.noted.append(f"cleared by {by}")

    def after_fork_in_child(self):
        self.noted.append("fork")


@pytest.fixture
def make():
    made = []

    def make_parts(publishes=True, **options):
        given = Cache(clock=ManualClock(), **options)._parts.options
        parts = CacheParts(given, core_in_memory(given))
        parts.observe(observer := Noting(publishes))
        parts.start()
        made.append(parts)
        return parts, Engine(parts), observer.noted

    yield make_parts
    for each in made:
        each.close()


@pytest.mark.parametrize("publishes", [True, False])
def test_the_jobs_of_an_observer_that_publishes_begin_with_the_first_miss(make, publishes):
    parts, engine, noted = make(publishes)
    parts.gate.open()
    assert noted == ["begin"] * publishes
    engine.set("key", 1, None)
    assert noted == ["begin"]


def test_the_jobs_are_closed_while_the_entries_are_still_there(make):
    parts, engine, noted = make()
    engine.set("key", 1, None)
    parts.jobs._jobs[-1].close = lambda: noted.append(len(parts.core))
    parts.close()
    assert noted == ["begin", 1]


def test_the_jobs_of_a_cache_that_is_empty_and_unused_pause_until_the_next_use(make):
    parts, engine, noted = make()
    engine.set("key", 1, 1.0)
    parts.driver.clock.advance(180)
    assert parts.jobs.paused
    runs = noted.count("run")
    parts.driver.clock.advance(60)
    assert noted.count("run") == runs
    engine.set("key", 1, None)
    assert noted[-1] == "begin"


def test_in_the_child_of_a_fork_the_observer_and_the_store_behind_start_over_and_copies_are_not_trusted(make):
    trust = array("Q", [1])
    parts, engine, noted = make(trust=trust)
    engine.keep_copies_of(SimpleNamespace(after_fork_in_child=lambda: noted.append("fork of the store")))
    moments = engine.watcher(WriteMoments, WriteMoments)
    engine.set("key", 1, None)
    noted.clear()
    before = moment()
    parts.before_fork()
    parts.after_fork(in_child=True)
    assert (noted, trust[0]) == (["fork", "fork of the store", "start over"], 2)
    engine.set("key", 2, None)
    assert noted[3:] == ["begin"]
    assert WritesSince(moments, before).contain(["key"])


def test_a_job_that_cannot_begin_is_an_error_of_the_write_and_begins_with_the_next_one(make):
    parts, engine, noted = make()
    job = parts.jobs._jobs[-1]
    job.begin = fail
    with pytest.raises(ValueError, match="out of order"):
        engine.set("key", 1, None)
    del job.begin
    engine.set("key", 2, None)
    assert noted == ["begin"]


def test_a_clear_is_noted_with_the_operator(make):
    _, engine, noted = make(publishes=False)
    for by in ("ann", None, ""):
        engine.clear_for(by)
    assert noted == ["cleared by ann", "cleared by "]


def fail():
    raise ValueError("out of order")


def test_failed_loads_are_reported_and_begin_the_jobs(make):
    _, engine, noted = make(publishes=False)
    loads = engine.loads()
    with pytest.raises(ValueError, match="out of order"):
        loads.get(loads.request("a", fail, None, PLAIN))
    assert noted == ["failed: out of order", "begin"]
