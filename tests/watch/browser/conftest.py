"""Start Debian's Chromium."""

import os
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from tests.watch.browser.canned import CannedSite
from tests.watch.browser.page import SOON, Page

BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1600"),
]


@pytest.fixture(scope="session")
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
    # With a path, Selenium neither looks for a driver nor downloads one.
    driver = Chrome(options, ChromeService(str(DRIVER)))
    driver.set_page_load_timeout(SOON)
    yield driver
    driver.quit()


@pytest.fixture
def site():
    site = CannedSite()
    yield site
    site.stop()


@pytest.fixture
def page(chromium, site):
    """The page of ``site``, which shows the cards that ``page.show`` receives."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    page = Page(chromium, site)

    def show(*cards, **figures):
        site.figures = {**site.figures, "caches": list(cards), **figures}
        page.open()

    page.show = show
    yield page
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.errors() == []
    # It would go on drawing, which takes a third of a core from other tests.
    chromium.get("about:blank")
