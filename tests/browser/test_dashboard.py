"""The dashboard in Debian's Chromium, behind a login, in front of a real server with two workers."""

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.traffic import HOSTILE
from tests.servers.process import ROOT, Server, running
from tests.waiting import until

BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1600"),
]
WORKERS = 2
SOON = 20
"""Seconds: a worker publishes every three, the page asks every three, and the machine may be busy."""


class Site(Server):
    """A server with ``WORKERS`` processes, and visitors for it."""

    def is_up(self):
        return super().is_up("state")

    def entries(self):
        """Of each worker, by its number. Whoever is free answers, so it is asked until all have."""
        found = {}

        def all_answered():
            state = self("state")
            found[state["pid"]] = state["entries"]
            return len(found) == WORKERS

        assert until(all_answered, SOON), found
        return found

    @contextmanager
    def traffic(self):
        """Visitors who come for as long as the block lasts."""
        gone = threading.Event()

        def visit():
            while not gone.wait(0.02):
                self("visit")

        visitors = [threading.Thread(target=visit) for _ in range(3)]
        for each in visitors:
            each.start()
        try:
            yield
        finally:
            gone.set()
            for each in visitors:
                each.join(30)


GUNICORN = [
    *("-m", "gunicorn", "--workers", str(WORKERS), "--threads", "4", "--bind", "127.0.0.1:{port}"),
    "--no-control-socket",
]


@contextmanager
def serving(module, directory):
    log = directory / "log"
    command = [*GUNICORN, f"{module}:application"]
    with running(command, log, make=Site, is_up=Site.is_up, BROWSER_TEST_DIRECTORY=str(directory)) as site:
        with site.traffic():
            # Until both have something to show.
            assert until(lambda: all(site.entries().values()), SOON)
        yield site
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def django_site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("django")
    environment = {**os.environ, "BROWSER_TEST_DIRECTORY": str(directory)}
    command = [sys.executable, "-m", "tests.browser.django_site"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=60)
    with serving("tests.browser.django_site", directory) as site:
        yield site


@pytest.fixture(scope="module")
def flask_site(tmp_path_factory):
    with serving("tests.browser.flask_site", tmp_path_factory.mktemp("flask")) as site:
        yield site


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    missing = [str(each) for each in (BROWSER, DRIVER) if not os.access(each, os.X_OK)]
    if missing:
        pytest.fail(
            f"There is no {' and no '.join(missing)}: `make packages` installs Debian's chromium and its driver"
        )
    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # A path, so that Selenium does not look for, or fetch, a driver of its own.
    driver = Chrome(options, ChromeService(str(DRIVER)))
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


class Page:
    """The dashboard in the browser."""

    def __init__(self, driver, site):
        self.driver = driver
        self.site = site
        self.expected = []

    def open(self, user="operator"):
        """As somebody does who has not logged in yet."""
        self.driver.get(f"{self.site.url}/wheelcache/")
        assert self.driver.title == "Log in"
        self.log_in(user)
        return self

    def log_in(self, user="operator"):
        self.find("input[name=username]").send_keys(user)
        self.find("input[name=password]").send_keys("secret")
        self.find("button").click()

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def figure(self, name, cache="atlas"):
        return self.text(f'section[data-cache="{cache}"] [data-figure="{name}"]')

    def number(self, name):
        return int(self.figure(name).replace(",", ""))

    def state(self):
        return self.run("return document.body?.dataset.state")

    def is_fresh(self):
        return until(lambda: self.state() == "fresh", SOON)

    def look_again(self):
        """Now, not in three seconds."""
        self.run("dispatchEvent(new Event('online'))")

    def press(self, selector, *, sure=True):
        self.find(selector).click()
        assert self.find("dialog#confirm").is_displayed()
        said = self.text("#confirm-text")
        self.find("#confirm-yes" if sure else "#confirm-no").click()
        assert not self.find("dialog#confirm").is_displayed()
        return said

    def workers(self):
        return {int(row.get_attribute("data-worker")) for row in self.all('section[data-cache="atlas"] [data-worker]')}

    def errors(self):
        """What the console has of this page since it was last asked, but for an icon that sites may not have."""
        entries = self.driver.get_log("browser")
        messages = [each["message"] for each in entries if each["level"] in ("SEVERE", "WARNING")]
        return [each for each in messages if "/favicon.ico" not in each and not any(map(each.count, self.expected))]


@pytest.fixture
def page(chromium, request):
    """A page of the site that the test names, on which nobody has logged in."""
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


def set_offline(driver, *, offline):
    conditions = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)


@BOTH
def test_behind_a_login_the_figures_move_while_traffic_runs(page):
    with page.site.traffic():
        page.open()
        assert page.is_fresh()
        page.run("window.wasNotReloaded = true")
        before = {name: page.number(name) for name in ("requests", "hits", "misses")}
        updated = page.text("#updated-line")
        assert until(lambda: all(page.number(name) > before[name] for name in before), SOON)
        assert page.text("#updated-line") != updated
        assert until(lambda: float(page.figure("requests_per_second").replace(",", "")) > 0, 60)
        assert re.fullmatch(r"\d+\.\d%", page.figure("hit_ratio_now"))
        assert page.run("return window.wasNotReloaded")
    assert page.number("requests") == page.number("hits") + page.number("misses")
    assert 0 < page.number("entries") <= 1000
    assert re.fullmatch(r"Counted since start, (.+, )?\d\d:\d\d:\d\d", page.text("#since"))


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
    assert until(lambda: page.text("#message").startswith("Cleared atlas. Takes effect in worker "), SOON)
    assert until(lambda: not any(page.site.entries().values()), SOON)
    assert until(lambda: page.look_again() or page.figure("entries") == "0", SOON)
    assert page.number("cleared") > 0


@BOTH
def test_a_reset_has_the_figures_start_from_zero(page):
    page.open()
    assert page.is_fresh()
    assert page.number("requests") > 0
    page.press("#reset")
    assert until(lambda: page.text("#message") == "The figures start from zero.", SOON)
    assert until(lambda: page.look_again() or page.number("requests") == 0, SOON)
    assert page.text("#since").startswith("Counted since reset at ")
    assert page.figure("hit_ratio") == "no look-ups"
    with page.site.traffic():
        assert until(lambda: page.number("requests") > 0, SOON)
    # For whoever looks, from whatever worker.
    page.driver.refresh()
    assert page.is_fresh()
    assert page.text("#since").startswith("Counted since reset at ")


def test_the_charts_say_what_they_show(page):
    page.open()
    assert page.is_fresh()
    charts = {each.get_attribute("data-chart") for each in page.all('section[data-cache="atlas"] figure')}
    assert charts == {"hit_ratio", "requests", "entries", "removals", "load_ms", "load_buckets"}

    def label(chart):
        return page.find(f'[data-cache="atlas"] figure[data-chart="{chart}"] svg[role=img]').get_attribute("aria-label")

    assert label("hit_ratio").startswith("Hit ratio")
    with page.site.traffic():
        # A sample is taken every ten seconds.
        assert until(lambda: "last 10 s" in label("requests") and "nothing yet" not in label("hit_ratio"), 60)
    line = page.find('[data-cache="atlas"] figure[data-chart="requests"] path.line').get_attribute("d")
    assert line.startswith("M")
    # A tile is of the last minute, a caption of the last step, and each says so.
    labels = [each.text for each in page.all('[data-cache="atlas"] .now .label')]
    assert labels == ["Hit ratio, last minute", "Look-ups, last minute", "Entries", "Memory"]
    captions = [each.text for each in page.all('[data-cache="atlas"] figure .span') if each.text]
    assert captions == ["last 10 s:"] * 5
    assert not re.search("requests|now", page.find('[data-cache="atlas"]').text, re.IGNORECASE)
    assert page.figure("max_entries") == "of 800 in 2 workers, 400 each"


def test_names_are_not_markup(page):
    page.open()
    assert page.is_fresh()
    names = [each.get_attribute("data-cache") for each in page.all("section[data-cache]")]
    assert sorted(names) == [HOSTILE, "atlas"]
    assert page.all("main img") == []
    assert [each.text for each in page.all("section[data-cache] h2")] == names
    card = page.find(f"section[data-cache='{HOSTILE}']")
    card.find_element(By.CSS_SELECTOR, '[data-action="clear"]').click()
    assert page.text("#confirm-heading") == f"Clear “{HOSTILE}”?"
    page.find("#confirm-yes").click()
    assert until(lambda: page.text("#message").startswith(f"Cleared {HOSTILE}. "), SOON)


def test_a_dialog_is_left_with_escape_and_gives_the_focus_back(page):
    page.open()
    assert page.is_fresh()
    page.find("#reset").send_keys(Keys.ENTER)
    assert page.find("dialog#confirm").is_displayed()
    assert page.driver.switch_to.active_element.get_attribute("id") == "confirm-no"
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.find("dialog#confirm").is_displayed()
    assert page.driver.switch_to.active_element.get_attribute("id") == "reset"
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


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_has_to_be_scrolled_sideways(page, width):
    metrics = {"width": width, "height": 780, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.open()
    assert page.is_fresh()
    assert page.run("return innerWidth") == width
    assert page.run("return document.documentElement.scrollWidth") <= width
    page.find("#reset").click()
    assert page.run("return document.querySelector('dialog').getBoundingClientRect().right") <= width


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
    # What is known is still shown.
    assert page.figure("requests") == requests
    page.press("#reset")
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
