"""Run axe-core, which finds barriers for users of a page. It is fetched once, and kept in ``.fetched``."""

import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

FETCHED = Path(__file__).parents[3] / ".fetched"

PACKAGE, VERSION = "axe-playwright-python", "0.1.8"
"""A package on PyPI that contains axe-core 4.12, without the packages that this one needs."""


@cache
def source():
    """Return the script."""
    FETCHED.mkdir(exist_ok=True)
    path = FETCHED / f"axe-{VERSION}.js"
    if not path.exists():
        archives = FETCHED / "archives"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", archives]
        subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True)
        (wheel,) = archives.glob(f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl")
        with zipfile.ZipFile(wheel) as contents:
            path.write_bytes(contents.read("axe_playwright_python/axe.min.js"))
    return path.read_text()


OF_COLORS = ["color-contrast", "link-in-text-block"]
"""The rules that depend on the theme."""


def violations(driver, rules=None):
    """Return the violations of ``rules``, by default all, in the page: rule, meaning and nodes."""
    if driver.execute_script("return !window.axe"):
        driver.execute_script(source())
    run = """
        const [rules, done] = arguments;
        axe.run(document, { resultTypes: ["violations"], ...(rules && { runOnly: rules }) })
          .then(done, (error) => done({ error: String(error) }));
        """
    found = driver.execute_async_script(run, rules)
    assert found.get("passes"), found
    return [(each["id"], each["help"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]


def violations_in_both_themes(driver):
    """Return the violations of all rules in the light theme, and of those about colors in the dark one."""
    found = []
    for theme, rules in (("light", None), ("dark", OF_COLORS)):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        found += violations(driver, rules)
    return found
