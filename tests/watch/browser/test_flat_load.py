"""The charts and the figures of the span equal an independent count, even if workers exit or are killed."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPException

import pytest

from tests.servers.process import running
from tests.waiting import until
from tests.watch.browser.page import SOON, Page
from tests.watch.browser.traffic import LOOKUPS, published

pytestmark = [pytest.mark.browser, pytest.mark.deep, pytest.mark.alone, pytest.mark.timeout(300)]

STEP = 10
A_SECOND = 10
"""Visits. With five workers of 25 visits and a few requests of the page, each lives for about 12 seconds."""

GUNICORN = [
    *("-m", "gunicorn", "--workers", "5", "--max-requests", "25", "--max-requests-jitter", "5", "--bind"),
    *("127.0.0.1:{port}", "--no-control-socket", "--log-level", "warning", "tests.watch.browser.flat_site:application"),
]


@contextmanager
def flat_load(site):
    """Visit the site at a constant rate during the block. A visit that is lost with its worker is not repeated."""
    ended = threading.Event()

    def visit():
        next_one = time.monotonic()
        while not ended.wait(max(0.0, next_one - time.monotonic())):
            next_one += 1 / A_SECOND
            try:
                site.ask("visit")
            except (OSError, HTTPException):
                continue

    visitors = threading.Thread(target=visit)
    visitors.start()
    try:
        yield
    finally:
        ended.set()
        visitors.join()


def kill_a_worker(folder):
    """Kill a worker that has just published. The counts of the seconds since then are lost, as documented."""
    before = published(folder)
    killed = []

    def has_published():
        for pid, at in published(folder).items():
            # Workers come and go.
            if at > before.setdefault(pid, at):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.append(pid)
                return True
        return False

    assert until(has_published)
    return killed[0]


def drawn(page):
    """Return the look-ups a second in each step of the chart, by the end of the step, and those of the span."""
    total = page.text('[data-figure="requests"]')
    heads, *rows = page.csv()
    place = heads.index("Look-ups per second: Look-ups")
    return {datetime.fromisoformat(row[0]).timestamp(): float(row[place]) for row in rows}, int(total.replace(",", ""))


def visits(folder):
    """Return the times of all visits, and the processes that answered them."""
    lines = [line.split() for line in (folder / "visits").read_text().splitlines()]
    return [float(at) for at, _ in lines], {pid for _, pid in lines}


def test_charts_and_the_figures_of_the_span_equal_an_independent_count_whatever_becomes_of_the_workers(
    chromium, tmp_path
):
    log = tmp_path / "log"
    with running(GUNICORN, log, is_up=lambda site: site.is_up("visit"), BROWSER_TEST_DIRECTORY=str(tmp_path)) as site:
        page = Page(chromium, site)
        page.driver.get(f"{site.url}/wheelcache/")
        assert page.is_fresh()
        page.find('[data-span="600"]').click()
        with flat_load(site):
            began = time.monotonic()

            def at(seconds):
                time.sleep(max(0.0, began + seconds - time.monotonic()))

            # During this time, workers exit after their number of visits.
            at(8)
            site.process.send_signal(signal.SIGHUP)
            at(18)
            killed = {kill_a_worker(tmp_path)}
            at(24)
            site.process.send_signal(signal.SIGTTIN)
            at(30)
            killed.add(kill_a_worker(tmp_path))
            site.process.send_signal(signal.SIGTTOU)
            at(36)
        times, pids = visits(tmp_path)
        count = {start: LOOKUPS * number for start, number in Counter(int(at // STEP) * STEP for at in times).items()}
        last = max(count)
        # Five at first, five after the reload, two in place of the killed ones, and those that replace exited workers.
        assert len(pids) > 5 + 5 + len(killed) == 12
        # The load may have ended at the beginning of the step, which the chart shows once it is over.
        assert until(lambda: page.look_again() or last + STEP in drawn(page)[0], SOON)
        shown, total = drawn(page)
    page.errors()
    assert len(count) >= 4
    whole = A_SECOND * LOOKUPS * STEP
    for start, number in count.items():
        # A step that the load did not fill may lack the same number of look-ups.
        assert abs(shown[start + STEP] * STEP - number) <= 0.03 * max(number, whole / 2), (start, shown, count)
    assert total == pytest.approx(sum(count.values()), rel=0.03)
    assert "Traceback" not in log.read_text(), log.read_text()
