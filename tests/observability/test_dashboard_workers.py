"""The dashboard of a site whose workers are killed and replaced."""

import os
import signal
import time

import pytest

from tests.observability.workers import WORKERS, Site
from tests.waiting import until
from wheelcache.observability.tables import STEP

pytestmark = [pytest.mark.servers, pytest.mark.deep, pytest.mark.timeout(300)]


@pytest.fixture
def site(tmp_path):
    running = Site(tmp_path)
    yield running
    running.stop()
    assert "Traceback" not in running.log.read_text()


class Observer:
    """Requests the page repeatedly, and remembers the steps that it showed."""

    def __init__(self):
        self.past = {}
        self.requests = 0
        self.marks = {}

    def look(self, card):
        history, total = card["history"], card["total"]
        requests = total["hits"] + total["misses"]
        assert requests >= self.requests
        self.requests = requests
        points = zip(history["requests_per_second"], history["entries"], strict=True)
        now = dict(zip(history["at"], points, strict=True))
        for at, point in self.past.items():
            assert now[at] == point, (at, point, now)
        self.past = now
        self.marks = dict(zip(history["at"], history["started"], strict=True))
        return now

    def watch(self, workers, seconds):
        """Visit the workers in turn, so that all are used at the same rate."""
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            for worker in workers:
                for each in workers:
                    each(f"/use/key{each.pid}/5/0")
                self.look(worker.figures())
                time.sleep(0.1)


def test_killed_and_replaced_workers_take_nothing_away_and_the_newest_step_is_never_a_part(site):
    workers = site.workers()
    observer = Observer()
    observer.watch(workers, 4.5 * STEP)
    entries = [entries for _, entries in observer.past.values()]
    # All workers started within two steps; every later step has the entries of all.
    assert len(entries) >= 2
    assert set(entries[2:]) <= {WORKERS}
    before = dict(observer.past)

    killed, *survivors = workers
    site.end(killed, signal.SIGKILL)
    observer.watch(survivors, STEP)
    workers = site.workers()
    observer.watch(workers, 4 * STEP)
    assert before.items() <= observer.past.items()
    assert observer.past[max(observer.past)][1] == WORKERS
    assert sum(observer.marks.values()) == WORKERS + 1
    assert len(workers[0].figures()["workers"]) == WORKERS

    # A deploy: all workers are replaced.
    for worker in workers:
        worker.connection.close()
    site.connected.clear()
    os.kill(site.process.pid, signal.SIGHUP)
    pids = {each.pid for each in workers}

    def are_new():
        for each in site.workers():
            if each.pid in pids:
                site.connected.pop(each.pid).connection.close()
        return len(site.connected) == WORKERS

    assert until(are_new)
    workers = site.workers()
    observer.watch(workers, 3 * STEP)
    assert before.items() <= observer.past.items()
    assert sum(observer.marks.values()) == 2 * WORKERS + 1
    assert observer.past[max(observer.past)][1] == WORKERS

    # A reset applies to all workers and to the charts. It starts from the published counts.
    last_use = time.time()
    assert until(lambda: all(each["published"] > last_use for each in workers[0].figures()["workers"]))
    workers[0]("/reset")
    for worker in workers:
        card = worker.figures()
        assert card["total"]["hits"] + card["total"]["misses"] == 0
        assert card["history"]["at"] == []
