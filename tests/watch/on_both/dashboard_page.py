"""The addresses of the dashboard, and what tests look for in its page."""

import json
import re

from wheelcache.watch.dashboard.dashboard import ASSETS
from wheelcache.watch.dashboard.responses import HEADER, HEADERS

CONFIG = re.compile(r'id="config">(.*?)</script>', re.DOTALL)
PAGE = "/wheelcache/"
FIGURES = f"{PAGE}figures.json"
READS = [PAGE, FIGURES, *(f"{PAGE}{each}" for each in ASSETS)]
CLEAR, PURGE = (f"{PAGE}{each}" for each in ("clear", "purge"))
INSPECT, ANSWERS = (f"{PAGE}{each}" for each in ("inspect", "answers"))
SENT = {HEADER: "1"}
"""The header with which the page sends its requests."""


def config_in(page):
    """The configuration in the text of the page."""
    return json.loads(CONFIG.search(page)[1])


def has_the_headers(headers):
    return all(headers.get(name) == value for name, value in HEADERS.items())
