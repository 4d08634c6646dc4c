"""Run axe-core, which finds barriers for users of a page. It is fetched once, and kept in ``.fetched``."""

import fcntl
import subprocess
import sys
import zipfile
from functools import cache

from tests.conformance.sources import FETCHED

PACKAGE, VERSION = "axe-playwright-python", "0.1.8"
"""A package on PyPI that contains axe-core 4.12, without the packages that this one needs."""


@cache
def source():
    """Return the script."""
    FETCHED.mkdir(exist_ok=True)
    path = FETCHED / f"axe-{VERSION}.js"
    with (FETCHED / "lock").open("w") as lock:
        # Tests in other processes may fetch the script at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_bytes(_fetched())
    return path.read_text()


def _fetched():
    archives = FETCHED / "archives"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", archives]
    subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True)
    (wheel,) = archives.glob(f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl")
    with zipfile.ZipFile(wheel) as contents:
        return contents.read("axe_playwright_python/axe.min.js")


def violations(driver):
    """Return the violations in the page: rule, meaning and nodes."""
    driver.execute_script(source())
    run = "const done = arguments[0]; axe.run(document).then(done, (error) => done({error: String(error)}))"
    found = driver.execute_async_script(run)
    assert found.get("passes"), found
    return [(each["id"], each["help"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]
