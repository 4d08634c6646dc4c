"""A WSGI site whose every visit does the same and is counted in a file, independently of the cache.

Environment: ``BROWSER_TEST_DIRECTORY``, with the figures and the file ``visits``: the time of each visit, and
the process that answered it.
"""

import json
import os
import time
from pathlib import Path

from tests.watch.browser.traffic import LOOKUPS
from wheelcache import Cache
from wheelcache.watch.dashboard.dashboard import ASSETS, Dashboard, asset
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import HEADERS

DIRECTORY = Path(os.environ["BROWSER_TEST_DIRECTORY"])
cache = Cache("pages", figures_dir=DIRECTORY / "figures")
dashboard = Dashboard("a flat load", lambda: [cache], lambda name: [])
visits = os.open(DIRECTORY / "visits", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def visit():
    if not len(cache):
        for key in range(LOOKUPS // 2):
            cache.set(key, key)
    for key in range(LOOKUPS):
        cache.get(key)
    # A single system call, so that other processes cannot interleave.
    os.write(visits, f"{time.time()} {os.getpid()}\n".encode())
    return {"pid": os.getpid()}


def application(environ, start_response):
    name = environ["PATH_INFO"].removeprefix("/wheelcache/").removeprefix("/")
    if name in ASSETS:
        kind, body = ASSETS[name], asset(name)
    elif name in ("visit", "figures.json"):
        kind, body = "application/json", json.dumps(visit() if name == "visit" else dashboard.figures()).encode()
    else:
        kind, body = "text/html; charset=utf-8", dashboard.page({Permission.VIEW_FIGURES}).encode()
    headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
    start_response("200 OK", list(headers.items()))
    return [body]
