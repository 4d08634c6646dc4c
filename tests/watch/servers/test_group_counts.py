"""The figures by group of keys of a site with four workers equal an independent count, also if a worker is killed."""

import os
import random
import signal
import threading
from collections import Counter
from http.client import HTTPException

import pytest

from tests.servers.process import running
from tests.waiting import PATIENCE, until
from tests.watch.published import look, published_at

pytestmark = [pytest.mark.servers, pytest.mark.alone, pytest.mark.compiled, pytest.mark.timeout(300)]

GUNICORN = [
    *("-m", "gunicorn", "--workers", "4", "--bind", "127.0.0.1:{port}", "--no-control-socket"),
    *("--log-level", "critical", "tests.watch.servers.group_site:application"),
]


def visit(site, number):
    """Request pages from four threads, ``number`` together. A request that is lost with its worker is not repeated."""

    def requests(seed):
        choose = random.Random(seed)
        for _ in range(number // 4):
            product = f"product/{int(choose.paretovariate(0.8))}"
            path = choose.choice([product, product, product, "about", "basket", "fails", f"unknown/{product}"])
            try:
                site.ask(path)
            except (OSError, HTTPException):
                continue

    threads = [threading.Thread(target=requests, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    return threads


def counted(folder):
    """Return the hits and misses by process and group of the independent count."""
    found = {}
    for line in (folder / "lookups").read_text().splitlines():
        pid, group, outcome = line.split()
        found.setdefault(int(pid), Counter())[group, outcome] += 1
    return found


def shown(folder):
    """Return the hits and misses by group that the workers have published, after a check of the sums."""
    site = look(folder / "figures")
    (figures,) = site.caches
    within = site.within(figures, site.span(site.edge - 3600)._replace(until=site.edge + 60))
    found = Counter()
    for groups, total in (
        (figures.stats.groups, figures.stats),
        (within.total().groups, within.total()),
    ):
        found.clear()
        for name, each in groups.items():
            found.update({(name, "hit"): each.hits, (name, "miss"): each.misses})
        assert sum(found.values()) == total.requests
    return +found


@pytest.mark.parametrize("requests", [2_000, pytest.param(20_000, marks=pytest.mark.deep)])
def test_the_figures_by_group_equal_an_independent_count_but_for_what_a_killed_worker_had_not_published(
    tmp_path, requests
):
    log, environment = tmp_path / "log", {"GROUP_SITE_DIRECTORY": str(tmp_path)}
    with running(GUNICORN, log, is_up=lambda site: site.is_up("about"), **environment) as site:
        for thread in visit(site, requests // 2):
            thread.join(PATIENCE * 5)
        before = counted(tmp_path)
        # The visits may end before the first worker publishes its figures.
        assert until(lambda: look(tmp_path / "figures").caches, PATIENCE)
        assert until(lambda: shown(tmp_path) == sum(before.values(), Counter()), PATIENCE)
        threads = visit(site, requests // 2)
        killed = min(published_at(tmp_path))
        assert until(
            lambda: (
                sum(map(Counter.total, counted(tmp_path).values())) > 1.3 * sum(map(Counter.total, before.values()))
            ),
            PATIENCE * 3,
        )
        os.kill(killed, signal.SIGKILL)
        for thread in threads:
            thread.join(PATIENCE * 5)
        after = counted(tmp_path)
        lost = after.pop(killed)
        others = sum(after.values(), Counter())
        kept = before.get(killed, Counter())

        def is_exact():
            rest = shown(tmp_path)
            rest.subtract(others)
            return all(kept[each] <= rest[each] <= lost[each] for each in {*rest, *lost})

        assert until(is_exact, PATIENCE), (shown(tmp_path), others, kept, lost)
        assert len({group for group, _ in others}) == 5
