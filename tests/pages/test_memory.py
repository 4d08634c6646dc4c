"""No visitor makes the process grow beyond ``max_bytes``: many hostile requests, each kind in a process of its own."""

import ctypes
import gc
import json
import os
import sys
from collections import Counter
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import pytest

from tests.scripts import run_python
from wheelcache.pages import HTTPCache

REQUESTS = 20_000
WARM_UP = 2000
MAX_BYTES = 2 << 20
MORE = 8 << 20
"""Bytes for the keys, the figures and the objects of the stored pages, and for the allocator."""


def text(number, length=3000):
    """Return text that no other number has, and that no interpreter shares: less than most servers accept."""
    return f"{number}-".ljust(length, "x")


def get(path="/", query="", method="GET", **headers):
    return {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, **headers}


# The request number n of each kind of attack. The application stores a page unless the path says otherwise.
ATTACKS = {
    "404s with long queries": lambda n: get("/missing", text(n)),
    "POSTs with a Location": lambda n: get("/moved", text(n), "POST"),
    "HEADs of many URLs": lambda n: get("/varies", text(n), "HEAD"),
    "many values of Vary": lambda n: get("/varies", HTTP_X_COUNTRY=text(n)),
    "many encodings": lambda n: get("/varies", HTTP_ACCEPT_ENCODING="gzip," + text(n, 400)),
    "many cookies": lambda n: get("/varies", HTTP_COOKIE=f"theme={text(n)}"),
    "many small pages": lambda n: get("/", str(n)),
    "many hosts": lambda n: get("/", HTTP_HOST=text(n, 250) + ".example"),
    "many tags": lambda n: get("/tags", str(n)),
    "pages that are private": lambda n: get("/private", text(n)),
    "pages that are too long": lambda n: get("/large", text(n)),
    "pages that fail": lambda n: get("/error", text(n)),
    "clients that leave": lambda n: get("/stream", text(n)),
    "all at the same time": lambda n: ATTACKS[MIXED[n % len(MIXED)]](n),
}
MIXED = [*ATTACKS][:-1]

LASTING = ("Cache-Control", "max-age=600")
RESPONSES = {
    "/missing": ("404 Not Found", [], b"page"),
    "/varies": ("200 OK", [LASTING, ("Vary", "Accept-Language, Accept-Encoding, X-Country, Cookie")], b"page"),
    "/private": ("200 OK", [("Cache-Control", "private")], b"page"),
    "/large": ("200 OK", [LASTING], b"x" * 200_000),
}


def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path == "/error":
        raise ArithmeticError
    status, headers, body = RESPONSES.get(path, ("200 OK", [LASTING], b"page"))
    of_path = {
        "/moved": [("Location", f"/?{query}")],
        "/tags": [("Cache-Tag", ", ".join(f"{query}-{number}-{'x' * 80}" for number in range(20)))],
    }
    start_response(status, headers + of_path.get(path, []))
    return iter([body, body]) if path == "/stream" else [body]


def attack(kind):
    """Print the growth of the process in bytes, the entries, and how many requests the cache has seen."""
    pages = HTTPCache(max_bytes=MAX_BYTES, max_body=100_000, session_cookies=["sessionid"])
    app = pages.wsgi(application)
    seen = Counter()

    def start_response(status, headers, exc_info=None):
        seen[any(name.lower() == "cache-status" for name, _ in headers)] += 1
        return lambda data: None

    def ask(environ):
        environ = {"HTTP_HOST": "example.com", "REMOTE_ADDR": "127.0.0.1", **environ}
        setup_testing_defaults(environ)
        try:
            body = app(environ, start_response)
        except ArithmeticError:
            seen[True] += 1
            return
        # A client that leaves has received a part of the body.
        next(iter(body), None)
        getattr(body, "close", list)()

    for number in range(WARM_UP):
        ask(get("/", str(number % 100)))
    before = resident()
    for number in range(REQUESTS):
        ask(ATTACKS[kind](number))
    print(json.dumps([resident() - before, len(pages.cache), seen[True]]))


def resident():
    """Return the bytes of memory that the process has, without those that the allocator has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# All of them at the same time, and each by itself.
@pytest.mark.parametrize("kind", [[*ATTACKS][-1], *(pytest.param(kind, marks=pytest.mark.deep) for kind in MIXED)])
def test_hostile_requests_do_not_make_the_process_grow(kind):
    grown, entries, seen = json.loads(run_python("-m", __name__, kind, check=True).stdout)
    assert seen == WARM_UP + REQUESTS
    assert entries >= 1
    assert grown < MAX_BYTES + MORE


if __name__ == "__main__":
    attack(sys.argv[1])
