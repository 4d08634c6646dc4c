"""The dashboard in a browser."""

import csv
import io

from selenium.webdriver.common.by import By

from tests.waiting import PATIENCE, until

SOON = 3 * PATIENCE
"""Seconds: a worker publishes every three, the page asks every three, and the machine may be busy."""


class Page:
    """The dashboard in the browser."""

    def __init__(self, driver, site):
        self.driver = driver
        self.site = site
        self.expected = []

    def open(self):
        """Open the page. Return when it has figures."""
        self.driver.get(f"{self.site.url}/wheelcache/")
        assert until(lambda: self.state() == "fresh", SOON)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def figure(self, name):
        """Return a figure of the cache. It is hidden if it is 0."""
        return self.text(f'section[data-cache] [data-figure="{name}"]')

    def number(self, name):
        return int(self.figure(name).replace(",", ""))

    def state(self):
        return self.run("return document.body?.dataset.state")

    def look_again(self):
        """Update the page immediately instead of within three seconds."""
        self.run("dispatchEvent(new Event('online'))")

    def unfold(self):
        """Unfold all sections of the details."""
        self.run("for (const each of document.querySelectorAll('details')) each.open = true")
        self.driver.execute_async_script(TWO_FRAMES)

    def values(self, chart):
        """Return the values in the keys of a chart, by label."""
        pairs = """
            return [...document.querySelectorAll(arguments[0])]
              .map((key) => [...key.children].map((one) => one.textContent));
        """
        return dict(self.run(pairs, f'figure[data-chart="{chart}"] .key'))

    def facts(self, part):
        """Return the rows of a list or a table that are displayed, as texts."""
        rows = """
            return [...document.querySelectorAll(arguments[0])].filter((row) => row.offsetParent)
              .map((row) => [...row.children].map((one) => one.textContent));
        """
        return self.run(rows, f'[data-part="{part}"] :is(dl > div, tbody > tr)')

    def csv(self):
        """Return the rows of the charts that the button downloads, as texts."""
        script = """
            const done = arguments[0];
            const made = URL.createObjectURL;
            URL.createObjectURL = (blob) => { blob.text().then(done); return made.call(URL, blob); };
            document.querySelector("[data-part=csv]").click();
            URL.createObjectURL = made;
        """
        return list(csv.reader(io.StringIO(self.driver.execute_async_script(script))))

    def caches(self):
        """Return the names in the table of caches, in its order."""
        return [each.get_attribute("data-row") for each in self.all("#overview tbody tr")]

    def select(self, cache):
        """Show the details of a cache."""
        self.find(f'[data-cache-link="{cache}"]').click()
        body = f'section[data-cache="{cache}"] [data-part="body"]'
        assert until(lambda: any(each.is_displayed() for each in self.all(body)), SOON)

    def press(self, selector, *, sure=True):
        self.find(selector).click()
        assert self.find("dialog#confirm").is_displayed()
        said = self.text("#confirm-text")
        self.find("#confirm-yes" if sure else "#confirm-no").click()
        assert not self.find("dialog#confirm").is_displayed()
        return said

    def errors(self):
        """Return new messages on the console of the page, except about an icon that sites may lack."""
        entries = self.driver.get_log("browser")
        messages = [each["message"] for each in entries if each["level"] in ("SEVERE", "WARNING")]
        return [each for each in messages if "/favicon.ico" not in each and not any(map(each.count, self.expected))]


def set_offline(driver, *, offline):
    conditions = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)


TWO_FRAMES = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"


def resize(driver, width, height):
    """Give the window another size. Return when the page has its layout for it."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert until(lambda: driver.execute_script("return innerWidth") == width, SOON)
    driver.execute_async_script(TWO_FRAMES)
