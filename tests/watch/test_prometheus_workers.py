"""Prometheus reads the same figures from every worker of a site."""

import random
import signal

import pytest

from tests.waiting import until
from tests.watch.scrape import assert_nothing_went_down
from tests.watch.workers import WORKERS, Site

pytestmark = pytest.mark.servers


@pytest.fixture
def site(tmp_path):
    running = Site(tmp_path)
    yield running
    running.stop()
    assert "Traceback" not in running.log.read_text()


def totals(scraped):
    hits, misses = (scraped("requests_total", result=each) for each in ("hit", "miss"))
    return hits, misses, scraped("load_seconds_count"), scraped("entries"), scraped("workers")


def test_a_scrape_of_any_worker_has_the_figures_of_all_and_keeps_those_of_the_killed(site):
    workers = site.workers()
    for number, worker in enumerate(workers, 1):
        worker(f"/use/key{number}/{100 * number}/{number}")
    # Each loaded value counts one more miss.
    everything = (600, 9, 3, 3, 3)
    assert until(lambda: totals(workers[0].scrape()) == everything)
    for worker in workers:
        scraped = worker.scrape()
        assert totals(scraped) == everything
        assert scraped("max_entries") == 3000
    killed, survivor, other = workers
    site.end(killed, signal.SIGKILL)
    found = []

    def is_gone():
        for each in (survivor, other):
            found.append(each.scrape())
            assert_nothing_went_down(scraped, found[-1])
            assert totals(found[-1])[:3] == everything[:3]
        return found[-1]("workers") == 2

    assert until(is_gone)
    assert found[-1]("entries") == 2
    (fresh,) = set(site.workers()) - {survivor, other}
    # A new worker publishes once it stores its first value.
    assert totals(fresh.scrape()) == totals(other.scrape()) == (600, 9, 3, 2, 2)
    fresh("/use/key/0/0")
    assert until(lambda: totals(other.scrape()) == (600, 10, 4, 3, 3))
    assert totals(fresh.scrape()) == (600, 10, 4, 3, 3)


def test_what_a_worker_counted_in_its_last_moment_is_there_if_it_ends_in_order(site):
    ending, survivor, _ = site.workers()
    ending("/use/key/100/10")
    site.end(ending, signal.SIGTERM)
    assert until(lambda: totals(survivor.scrape())[:3] == (100, 11, 1))


def test_counters_never_go_down_from_a_scrape_of_one_worker_to_one_of_another(site):
    """A worker has newer figures of itself than the other workers have."""
    workers = site.workers()
    before = workers[0].scrape()
    for number in range(20):
        user, asked = random.Random(number).sample(workers, 2)
        user("/use/key/50/5")
        for each in (user, asked):
            after = each.scrape()
            assert_nothing_went_down(before, after)
            before = after
    assert until(lambda: totals(workers[0].scrape())[0] == 20 * 50 + 20 - WORKERS)
