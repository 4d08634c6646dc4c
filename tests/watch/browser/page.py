"""The dashboard in a browser."""

import csv
import io

from selenium.common.exceptions import WebDriverException
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

    def open(self, user="operator", cache="atlas"):
        """Open the page as a user that has not logged in yet, with the details of ``cache`` if the user may see it.

        A user of the site that has logged in before gets the same cookies, since the form takes half a second.
        """
        url = f"{self.site.url}/wheelcache/"
        if user in self.site.cookies:
            for cookie in self.site.cookies[user]:
                self.driver.add_cookie(cookie)
            self.driver.get(url)
            assert self.driver.title != "Log in"
        else:
            self.driver.get(url)
            assert self.driver.title == "Log in"
            self.run("window.isLogin = true")
            self.log_in(user)
            assert until(self.has_left_login, SOON)
            self.site.cookies[user] = self.driver.get_cookies()
        if self.all("#config"):
            assert self.is_fresh()
            self.select(cache)
        return self

    def has_left_login(self):
        try:
            return self.run("return !window.isLogin && document.readyState === 'complete'")
        except WebDriverException:
            # The driver reports an inspector error if it looks at a page that is just being left.
            return False

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
        """Return a figure. It is hidden if it is 0."""
        return self.text(f'section[data-cache="{cache}"] [data-figure="{name}"]')

    def number(self, name):
        return int(self.figure(name).replace(",", ""))

    def state(self):
        return self.run("return document.body?.dataset.state")

    def is_fresh(self):
        return until(lambda: self.state() == "fresh", SOON)

    def look_again(self):
        """Update the page immediately instead of within three seconds."""
        self.run("dispatchEvent(new Event('online'))")

    def unfold(self, name=None):
        """Unfold a section of the details, or all."""
        selector = "details" if name is None else f'[data-part="{name}"]'
        self.run("for (const each of document.querySelectorAll(arguments[0])) each.open = true", selector)
        self.driver.execute_async_script(TWO_FRAMES)

    def charts(self):
        """Return the names of the charts that are displayed."""
        return [each.get_attribute("data-chart") for each in self.all("figure[data-chart]") if each.is_displayed()]

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

    def workers(self):
        return {int(row.get_attribute("data-worker")) for row in self.all('section[data-cache="atlas"] [data-worker]')}

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
