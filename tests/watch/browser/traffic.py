"""Simulate the visitors of the sites."""

import random
import time

from wheelcache.watch.site_file import SiteFile

HOSTILE = "<img src=x onerror=alert(1)>"
"""The name of a cache."""


LOOKUPS = 20
"""Look-ups of a visit to ``flat_site``."""


def visit(get_or_load):
    """Look up ten keys, a few of them often, with a loader that takes a moment."""
    for _ in range(10):
        key = f"city {int(random.paretovariate(0.6))}"[:12]
        get_or_load(key, load)


def load():
    time.sleep(random.uniform(0.0005, 0.004))
    return ["a city", random.random()]


def published(folder):
    """Return the time when each worker of a site published, by its number."""
    return dict(
        SiteFile(folder / "figures").read(
            lambda db: db.execute("SELECT pid, published FROM processes").fetchall(), list
        )
    )
