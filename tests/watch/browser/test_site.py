"""The dashboard in Debian's Chromium, behind a login, in front of a real server with two workers."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from tests.servers.process import ROOT, Server, running
from tests.waiting import join, start, until
from tests.watch.browser.page import SOON, Page
from tests.watch.on_both.dashboard_page import SENT
from tests.watch.published import published_at
from wheelcache.watch.dashboard.responses import FORGED

MODULE = "tests.watch.browser.django_site"
WORKERS = 2
GUNICORN = [
    *("-m", "gunicorn", "--workers", str(WORKERS), "--threads", "4", "--bind", "127.0.0.1:{port}"),
    *("--no-control-socket", f"{MODULE}:application"),
]
CLEAR = 'section[data-cache="atlas"] [data-action="clear"]'


class Site(Server):
    """A server with ``WORKERS`` processes, and visitors for it.

    Attributes:
        cookies: those of each user that has logged in.
    """

    def __init__(self, process, port):
        super().__init__(process, port)
        self.cookies = {}

    def is_up(self):
        return super().is_up("state")

    def publishes(self):
        """Wait until the workers have published their counts. A worker publishes only new ones, so all get a visit."""
        workers, now = self.entries("visit"), time.time()
        assert until(lambda: all(published_at(self.folder).get(pid, 0.0) > now for pid in workers), SOON)

    def entries(self, path="state"):
        """Return the answers by worker. Any free worker answers, so repeat the request until all have."""
        found = {}

        def all_answered():
            state = self(path)
            found[state["pid"]] = state["entries"]
            return len(found) == WORKERS

        assert until(all_answered, SOON, note=lambda: found)
        return found

    @contextmanager
    def traffic(self):
        """Run visitors during the block, in which each worker gets entries."""
        gone = threading.Event()

        def visit():
            while not gone.wait(0.02):
                self("visit")

        visitors = [start(visit) for _ in range(3)]
        try:
            assert until(lambda: all(self.entries().values()), SOON)
            yield
        finally:
            gone.set()
            join(*visitors)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("django")
    given = {"BROWSER_TEST_DIRECTORY": str(folder)}
    subprocess.run([sys.executable, "-m", MODULE], cwd=ROOT, env=os.environ | given, check=True, timeout=250)
    log = folder / "log"
    with running(GUNICORN, log, make=Site, is_up=Site.is_up, **given) as site:
        site.folder = folder
        with site.traffic():
            site.publishes()
        yield site
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def page(chromium, server):
    """A page on which no user has logged in."""
    chromium.get(f"{server.url}/state")
    chromium.delete_all_cookies()
    chromium.get_log("browser")
    page = Page(chromium, server)
    yield page
    assert page.errors() == []


def events(page):
    """Return the texts of the recent events without their times."""
    page.look_again()
    more = page.find("#events-more")
    if more.is_displayed() and more.get_attribute("aria-expanded") == "false":
        more.click()
    rows = page.run("return [...document.querySelectorAll('#events tbody tr')].map((row) => row.innerText)")
    return [re.sub(r"\s+", " ", re.sub(r"^\d\d:\d\d:\d\d\s", "", row)) for row in rows]


def test_the_figures_of_all_workers_move_while_traffic_runs(page):
    with page.site.traffic():
        page.open()
        before = {name: page.number(name) for name in ("requests", "hits", "misses")}
        assert until(lambda: all(page.number(name) > before[name] for name in before), SOON)
    assert page.number("requests") == page.number("hits") + page.number("misses")
    assert until(lambda: page.workers() == set(page.site.entries()), SOON)
    # A step takes ten seconds.
    assert until(lambda: {"hit_ratio", "misses", "computing"} <= set(page.charts()), SOON, note=page.charts)


def test_a_clear_empties_all_workers_once_it_is_confirmed_and_the_events_name_the_operator(page):
    with page.site.traffic():
        page.open()
    said = page.press(CLEAR, sure=False)
    assert "will be removed" in said
    assert all(str(pid) in said for pid in page.site.entries())
    assert all(page.site.entries().values())
    page.press(CLEAR)
    assert until(lambda: page.text("#message").startswith("Cleared atlas. Takes effect in worker "), SOON)
    assert until(lambda: not any(page.site.entries().values()), SOON)
    page.site("fail")
    failed = "Load failed atlas ZeroDivisionError: division by zero"
    assert until(lambda: any(each.startswith(failed) for each in events(page)), SOON)
    assert "Cleared atlas by operator" in [each.split(" (")[0] for each in events(page)]


def test_who_is_logged_out_is_told_to_log_in_again_and_sees_the_last_figures(page):
    page.open()
    page.expected = ["401 (Unauthorized)"]
    requests = page.figure("requests")
    page.driver.delete_all_cookies()
    page.look_again()
    assert until(lambda: page.state() == "login", SOON)
    assert "log in" in page.text("#banner-text")
    assert page.figure("requests") == requests
    page.find("#login").click()
    page.log_in()
    assert page.is_fresh()


FORGED_BY_SCRIPT = """
const [url, sent] = arguments;
const post = { method: "POST", credentials: "include", body: new URLSearchParams({ cache: "atlas" }) };
const tries = [fetch(url, { ...post, mode: "no-cors" }), fetch(url, { ...post, headers: sent })];
return Promise.allSettled(tries).then((results) => results.map(({ status }) => status));
"""
FORGED_BY_FORM = """
const form = document.createElement("form");
Object.assign(form, { method: "POST", action: arguments[0] });
form.innerHTML = '<input name="cache" value="atlas">';
document.body.append(form);
form.submit();
"""


def test_another_site_on_the_same_host_changes_nothing_although_it_sends_the_cookies(page, site):
    with page.site.traffic():
        page.open()
    page.expected = ["403 (", "blocked by CORS policy", "net::ERR_FAILED", "net::ERR_BLOCKED_BY_RESPONSE"]
    page.driver.get(f"{site.url}/other")
    clear = f"{page.site.url}/wheelcache/clear"
    # The browser hides the response to the first request, and never sends the second, whose header needs the consent of
    # the site.
    assert page.run(FORGED_BY_SCRIPT, clear, SENT) == ["rejected", "rejected"]
    page.run(FORGED_BY_FORM, clear)
    # Without the cookies, the user would have to log in.
    assert until(lambda: FORGED in (page.run("return document.body?.textContent") or ""), SOON)
    assert all(page.site.entries().values())
