"""The memory of a process whose HTTP cache is attacked: run as ``python -m tests.pages.memory_attacks KIND ...``.

Prints, in JSON, the bytes by which the process has grown after the warm-up, and figures that show that the attack has
reached the cache. Each kind needs a process of its own.
"""

import ctypes
import gc
import json
import os
import sys
from collections import Counter
from pathlib import Path
from wsgiref.util import setup_testing_defaults

from wheelcache.pages import HTTPCache

PAGE = os.sysconf("SC_PAGE_SIZE")
WARM_UP = 2000
LONG = 3000
"""Characters that an attacker adds to a request: less than most servers accept."""


def text(number, length=LONG):
    """Return text that no other number has, and that no interpreter shares."""
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


def grown(kind, requests, max_bytes):
    """Return the growth in bytes, and the figures, after ``requests`` requests of this kind, in a new process."""
    pages = HTTPCache(max_bytes=max_bytes, max_body=100_000, session_cookies=["sessionid"])
    app = pages.wsgi(application)
    statuses = Counter()

    def start_response(status, headers, exc_info=None):
        statuses[{name.lower(): value for name, value in headers}.get("cache-status", "none")[:17]] += 1
        return lambda data: None

    def ask(attack, number):
        environ = {"HTTP_HOST": "example.com", "REMOTE_ADDR": "127.0.0.1", **ATTACKS[attack](number)}
        setup_testing_defaults(environ)
        try:
            body = app(environ, start_response)
        except ArithmeticError:
            statuses["failed"] += 1
            return
        # A client that leaves has received a part of the body.
        next(iter(body), None)
        getattr(body, "close", list)()

    for number in range(WARM_UP):
        ask("many small pages", number % 100)
    before = resident()
    statuses.clear()
    for number in range(requests):
        ask(kind, number)
    return {"grown": resident() - before, "statuses": statuses, "entries": len(pages.cache)}


def resident():
    """Return the bytes of memory that the process has, without those that the allocator has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    kind, requests, max_bytes = sys.argv[1:]
    print(json.dumps(grown(kind, int(requests), int(max_bytes))))
