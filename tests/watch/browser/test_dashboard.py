"""The dashboard in Debian's Chromium, behind a login, in front of a real server with two workers."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.servers.process import ROOT, Server, running
from tests.waiting import join, start, until
from tests.watch.browser.page import SOON, Page, resize, set_offline
from tests.watch.browser.traffic import HOSTILE, published
from tests.watch.on_both.dashboard_page import SENT
from wheelcache.watch.dashboard.responses import FORGED

WORKERS = 2


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
        assert until(lambda: all(published(self.folder).get(pid, 0.0) > now for pid in workers), SOON)

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
        """Run visitors during the block."""
        gone = threading.Event()

        def visit():
            while not gone.wait(0.02):
                self("visit")

        visitors = [start(visit) for _ in range(3)]
        try:
            yield
        finally:
            gone.set()
            join(*visitors)


GUNICORN = [
    *("-m", "gunicorn", "--workers", str(WORKERS), "--threads", "4", "--bind", "127.0.0.1:{port}"),
    "--no-control-socket",
]


@contextmanager
def serving(module, directory):
    log = directory / "log"
    command = [*GUNICORN, f"{module}:application"]
    with running(command, log, make=Site, is_up=Site.is_up, BROWSER_TEST_DIRECTORY=str(directory)) as site:
        site.folder = directory
        with site.traffic():
            # Wait until both have something to show.
            assert until(lambda: all(site.entries().values()), SOON)
        yield site
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def django_site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("django")
    environment = {**os.environ, "BROWSER_TEST_DIRECTORY": str(directory)}
    command = [sys.executable, "-m", "tests.watch.browser.django_site"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=250)
    with serving("tests.watch.browser.django_site", directory) as site:
        # An outage is only shown after a step of the history.
        site.entries("outage")
        yield site


@pytest.fixture(scope="module")
def flask_site(tmp_path_factory):
    with serving("tests.watch.browser.flask_site", tmp_path_factory.mktemp("flask")) as site:
        yield site


@pytest.fixture
def page(chromium, request):
    """A page of the site that the test names, on which no user has logged in."""
    site = request.getfixturevalue(getattr(request, "param", "django_site"))
    chromium.get("about:blank")
    chromium.delete_all_cookies()
    chromium.get(f"{site.url}/state")
    chromium.delete_all_cookies()
    chromium.get_log("browser")
    page = Page(chromium, site)
    yield page
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    set_offline(chromium, offline=False)
    assert page.errors() == []


BOTH = pytest.mark.parametrize("page", ["django_site", "flask_site"], indirect=True)


def entries(page, cache="atlas"):
    """Return the number of entries, which is in the tile of the memory or, if that is not known, of the entries."""
    note = page.figure("entries_note", cache)
    return int(note.split()[0].replace(",", "")) if note else page.number("memory")


@BOTH
def test_behind_a_login_the_figures_move_while_traffic_runs(page):
    with page.site.traffic():
        page.open()
        assert page.is_fresh()
        page.run("window.wasNotReloaded = true")
        # Before the numbers: the page may be updated while they are read.
        updated = page.text("#updated-line")
        before = {name: page.number(name) for name in ("requests", "hits", "misses")}
        assert until(lambda: all(page.number(name) > before[name] for name in before), SOON)
        # Two workers may publish in the same second.
        assert until(lambda: page.text("#updated-line") != updated, SOON)
        assert page.run("return window.wasNotReloaded")
    assert page.number("requests") == page.number("hits") + page.number("misses")
    # The memory is known, so the entries are in its note.
    assert 0 < entries(page) <= 1000
    assert page.text("#span-name") == "Last hour"


@BOTH
def test_all_workers_are_rows(page):
    page.open()
    assert page.is_fresh()
    assert until(lambda: page.workers() == set(page.site.entries()), SOON)
    threads = {each.get_attribute("data-thread") for each in page.all('[data-cache="atlas"] [data-thread]')}
    assert threads <= {"running", "parked"}


@BOTH
def test_a_clear_empties_all_workers_once_it_is_confirmed(page):
    with page.site.traffic():
        assert until(lambda: all(page.site.entries().values()), SOON)
    page.open()
    assert until(lambda: page.is_fresh() and len(page.workers()) == WORKERS, SOON)
    clear = 'section[data-cache="atlas"] [data-action="clear"]'
    said = page.press(clear, sure=False)
    assert "will be removed" in said
    assert all(str(pid) in said for pid in page.site.entries())
    assert page.text("#message") == ""
    assert all(page.site.entries().values())
    page.press(clear)
    cleared = "Cleared atlas. Takes effect in worker "
    assert until(lambda: page.text("#message").startswith(cleared), SOON, note=lambda: page.text("#message"))
    assert until(lambda: not any(page.site.entries().values()), SOON)
    assert until(lambda: page.look_again() or entries(page) == 0, SOON)
    page.unfold("removals")
    assert until(lambda: "Cleared" in [name for name, *_ in page.facts("removals")], SOON)


@BOTH
def test_the_recent_events_tell_by_whom_a_cache_was_cleared_and_which_load_failed(page):
    page.open()
    assert page.is_fresh()
    page.press('section[data-cache="atlas"] [data-action="clear"]')
    for _ in range(3):
        page.site("fail")
    page.site("visit")

    def seen():
        page.look_again()
        more = page.find("#events-more")
        if more.is_displayed() and more.get_attribute("aria-expanded") == "false":
            more.click()
        rows = page.run("return [...document.querySelectorAll('#events tbody tr')].map((row) => row.innerText)")
        # The page updates the time without a request.
        return [re.sub(r"\s+", " ", re.sub(r"^\d\d:\d\d:\d\d\s", "", row)) for row in rows]

    failed = "Load failed atlas ZeroDivisionError: division by zero"
    assert until(lambda: any(each.startswith(failed) for each in seen()), SOON)
    assert "Cleared atlas by operator" in [each.split(" (")[0] for each in seen()]
    assert until(lambda: any(re.match(r"Started workers \d+ and \d+$", each) for each in seen()), SOON, note=seen)
    assert page.find("#events-table").is_displayed()


def test_the_charts_say_what_they_show(page):
    page.open()
    assert page.is_fresh()

    def label(chart):
        return page.find(f'[data-cache="atlas"] figure[data-chart="{chart}"] [role=img]').get_attribute("aria-label")

    with page.site.traffic():
        # A step takes ten seconds, and some have passed.
        assert until(lambda: {"hit_ratio", "misses", "computing"} <= set(page.charts()), SOON, note=page.charts)
        assert until(lambda: "last 10 s" in label("misses"), SOON, note=lambda: label("misses"))
        assert until(lambda: float(page.figure("requests_per_second").replace(",", "")) > 0, SOON)
        assert re.fullmatch(r"\d+\.\d%", page.figure("hit_ratio"))
    page.unfold()
    assert {"requests", "entries", "load_ms"} <= set(page.charts())
    assert label("hit_ratio").startswith("Hit ratio, Last hour: Hits ")
    labels = [each.text for each in page.all('[data-cache="atlas"] .tile .label')]
    assert labels == ["Hit ratio", "Look-ups per second", "Time computing", "Memory now"]
    captions = {each.text for each in page.all('[data-cache="atlas"] figure[data-chart] .when')}
    assert captions - {""} == {"last 10 s"}
    assert page.figure("entries_note").endswith(" of 800 entries in 2 workers")


def test_a_cache_of_which_the_store_behind_is_down_says_so(page):
    page.open()
    assert page.is_fresh()
    headline = "Cache 'copies': its store is down for"
    assert until(
        lambda: page.look_again() or page.text("#headline").startswith(headline),
        SOON,
        note=lambda: page.text("#headline"),
    )
    assert page.caches()[0] == "copies"
    page.select("copies")
    assert until(lambda: page.look_again() or page.figure("store_breaker", "copies") == "open in 2 of 2 workers", SOON)
    page.unfold("store")
    assert page.find('[data-cache="copies"] [data-figure="store_breaker"]').is_displayed()
    assert page.figure("store_tracking", "copies") == "not in 2 of 2 workers"
    for name in ("store_reads", "store_writes", "store_errors", "store_refused"):
        assert int(page.figure(name, "copies")) > 0, name
    assert until(lambda: len(page.all('[data-cache="copies"] [data-worker][data-breaker-open]')) == WORKERS, SOON)
    mark = "return getComputedStyle(document.querySelector('[data-breaker-open] th'), '::before').content"
    assert "breaker open" in page.run(mark)
    assert "2 with an open breaker" in page.text('[data-cache="copies"] [data-part="workers-summary"]')
    page.select("atlas")
    assert not page.find('[data-cache="atlas"] [data-part="store"]').is_displayed()


def test_names_are_not_markup(page):
    page.open()
    assert page.is_fresh()
    assert sorted(page.caches()) == [HOSTILE, "atlas", "copies"]
    page.select(HOSTILE)
    assert page.all("main img") == []
    card = page.find(f"section[data-cache='{HOSTILE}']")
    assert card.find_element(By.CSS_SELECTOR, "h2").text == HOSTILE
    card.find_element(By.CSS_SELECTOR, '[data-action="clear"]').click()
    assert page.text("#confirm-heading") == f"Clear “{HOSTILE}”?"
    page.find("#confirm-yes").click()
    assert until(lambda: page.text("#message").startswith(f"Cleared {HOSTILE}. "), SOON)


def test_a_dialog_is_left_with_escape_and_gives_the_focus_back(page):
    page.open()
    assert page.is_fresh()
    page.find('[data-cache="atlas"] [data-action=clear]').send_keys(Keys.ENTER)
    assert page.find("dialog#confirm").is_displayed()
    assert page.driver.switch_to.active_element.get_attribute("id") == "confirm-no"
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.find("dialog#confirm").is_displayed()
    assert page.driver.switch_to.active_element.get_attribute("data-action") == "clear"
    assert page.text("#message") == ""


def test_both_themes(page):
    page.open()
    assert page.is_fresh()

    def colours(theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        return page.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")

    assert colours("light") == ["rgb(244, 245, 247)", "rgb(23, 27, 33)"]
    assert colours("dark") == ["rgb(15, 18, 22)", "rgb(231, 234, 238)"]


def test_nothing_has_to_be_scrolled_sideways(page):
    page.open()
    assert page.is_fresh()
    for width in (360, 768, 1600):
        resize(page.driver, width, 780)
        assert page.run("return document.documentElement.scrollWidth") <= width
        page.find('[data-cache="atlas"] [data-action=clear]').click()
        assert page.run("return document.querySelector('dialog').getBoundingClientRect().right") <= width
        page.find("#confirm-no").click()


@BOTH
def test_who_is_logged_out_is_told_to_log_in_again(page):
    page.open()
    assert page.is_fresh()
    page.expected = ["401 (Unauthorized)"]
    requests = page.figure("requests")
    page.driver.delete_all_cookies()
    page.look_again()
    assert until(lambda: page.state() == "login", SOON)
    assert "log in" in page.text("#banner-text")
    # The last figures are still shown.
    assert page.figure("requests") == requests
    page.press('[data-cache="atlas"] [data-action=clear]')
    assert until(lambda: page.text("#message").startswith("That did not work: "), SOON)
    page.find("#login").click()
    page.log_in()
    assert page.is_fresh()


@BOTH
def test_who_may_not_see_it_does_not(page):
    page.expected = ["403 (Forbidden)"]
    page.open("visitor")
    assert page.all("#config") == []
    page.driver.get(f"{page.site.url}/wheelcache/figures.json")
    assert "hits" not in page.driver.page_source


@BOTH
def test_the_buttons_are_only_shown_to_users_who_may_operate(page):
    page.open("viewer")
    assert page.is_fresh()
    assert page.number("requests") > 0
    buttons = "[data-action=clear]"
    assert [each for each in page.all(buttons) if each.is_displayed()] == []
    # A handmade request is refused.
    page.expected = ["403 ("]
    post = "fetch('clear', {method: 'POST', headers: arguments[0]})"
    assert page.run(f"return {post}.then((response) => response.json())", SENT) == {
        "error": "You may view the figures, but not change anything"
    }
    page.driver.delete_all_cookies()
    page.open("operator")
    assert page.is_fresh()
    assert all(each.is_displayed() for each in page.all("[data-action=clear]"))


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


@BOTH
def test_another_site_on_the_same_host_changes_nothing_although_it_sends_the_cookies(page, django_site, flask_site):
    with page.site.traffic():
        assert until(lambda: all(page.site.entries().values()), SOON)
    page.open()
    other = flask_site if page.site is django_site else django_site
    page.expected = ["403 (", "blocked by CORS policy", "net::ERR_FAILED", "net::ERR_BLOCKED_BY_RESPONSE"]
    page.driver.get(f"{other.url}/state")
    clear = f"{page.site.url}/wheelcache/clear"
    # The browser hides the response to the first request, and never sends the second, whose header needs the consent of
    # the site.
    assert page.run(FORGED_BY_SCRIPT, clear, SENT) == ["rejected", "rejected"]
    page.run(FORGED_BY_FORM, clear)
    # Without the cookies, the user would have to log in.
    assert until(lambda: FORGED in (page.run("return document.body?.textContent") or ""), SOON)
    assert all(page.site.entries().values())


def test_figures_that_cannot_be_had_are_said_to_be_old(page):
    page.open()
    assert page.is_fresh()
    page.expected = ["net::ERR_INTERNET_DISCONNECTED"]
    set_offline(page.driver, offline=True)
    page.look_again()
    assert until(lambda: page.state() == "old", SOON)
    assert "the server cannot be reached" in page.text("#banner-text")
    set_offline(page.driver, offline=False)
    page.look_again()
    assert page.is_fresh()
    assert not page.find("#banner").is_displayed()


# Inspection.


def state(page):
    return page.text('section[data-cache="atlas"] [data-part="state"]')


@BOTH
def test_an_inspector_samples_finds_and_deletes_an_entry_in_all_workers(page):
    with page.site.traffic():
        assert until(lambda: all(page.site.entries().values()), SOON)
    page.site.publishes()
    page.open("inspector")
    # The page asks for the answers of the workers ten times as often.
    page.run("const real = setTimeout; setTimeout = (run, pause) => real(run, pause === 500 ? 50 : pause)")
    page.find('[data-part="inspection"] summary').click()
    page.find('[data-part="sample"]').click()
    assert until(lambda: re.fullmatch("The largest of .* together", state(page)), SOON)
    assert page.find('[data-part="hottest"] tbody td').text.endswith("%")
    button = page.find('[data-part="hottest"] tbody button')
    key = button.text
    # A click at its place would miss it if the figures above it change meanwhile.
    page.run("arguments[0].click()", button)
    assert until(lambda: re.fullmatch(r"Present in [12] of 2 workers", state(page)), SOON, note=lambda: state(page))
    assert page.find('[name="text"]').get_attribute("value") == key
    page.find('[data-part="delete"]').click()
    assert key in page.text("#confirm-text")
    page.find("#confirm-no").click()
    page.press('[data-part="delete"]')
    assert until(lambda: state(page) == "Deleted in the workers below", SOON)
    page.find('[data-part="inspection"] form button').click()
    assert until(lambda: state(page).startswith("Present in 0 of 2 workers"), SOON)
    assert until(lambda: page.look_again() or "by inspector: a sample (5 times)" in page.text("#events"), SOON)
    assert until(lambda: page.look_again() or "Entries deleted" in page.text("#events"), SOON)
    assert key not in page.text("#events")


@BOTH
def test_only_inspectors_have_the_form_and_only_for_caches_with_the_option(page):
    page.open("operator")
    assert not page.find('[data-part="inspection"]').is_displayed()
