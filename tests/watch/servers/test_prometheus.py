"""Prometheus reads the same figures from every worker of a site."""

import http.client
import json
import os
import signal
from contextlib import ExitStack

from tests.servers.process import one_of_each_worker, running, two_workers_of
from tests.waiting import PATIENCE, until
from tests.watch.scrape import Scrape, assert_nothing_went_down


class Worker:
    """A connection that stays open, and therefore always reaches the same worker process."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.pid = json.loads(self("/"))["pid"]

    def __call__(self, path):
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
        return text

    def scrape(self):
        return Scrape(self("/metrics"))


def totals(scraped):
    hits, misses = (scraped("requests_total", result=each) for each in ("hit", "miss"))
    return hits, misses, scraped("load_seconds_count"), scraped("entries"), scraped("workers")


def test_a_scrape_of_any_worker_has_the_figures_of_all_and_keeps_those_of_the_killed(tmp_path):
    log, figures = tmp_path / "log", str(tmp_path / "figures")
    command = two_workers_of("tests.watch.servers.watched_site")
    with (
        running(command, log, is_up=lambda each: each.is_up(""), SITE_FIGURES=figures) as server,
        ExitStack() as stack,
    ):
        workers = one_of_each_worker(lambda: Worker(server.port), stack, log)
        for number, worker in enumerate(workers, 1):
            worker(f"/use/key{number}/{100 * number}/{number}")
        # Each loaded value counts one more miss.
        assert until(lambda: [totals(each.scrape()) for each in workers] == [(300, 5, 2, 2, 2)] * 2)
        killed, survivor = workers
        before = survivor.scrape()
        os.kill(killed.pid, signal.SIGKILL)

        def is_gone():
            after = survivor.scrape()
            assert_nothing_went_down(before, after)
            return totals(after) == (300, 5, 2, 1, 1)

        assert until(is_gone)
        both = one_of_each_worker(lambda: Worker(server.port), stack, log)
        fresh = next(each for each in both if each.pid != survivor.pid)
        # A new worker publishes once it stores its first value.
        assert totals(fresh.scrape()) == (300, 5, 2, 1, 1)
        fresh("/use/key/0/0")
        assert until(lambda: totals(survivor.scrape()) == (300, 6, 3, 2, 2))
    assert "Traceback" not in log.read_text()
