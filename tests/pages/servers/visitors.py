"""Honest visitors and an attacker of ``site`` on a server. The answers to the visitors are compared with those of the
same site without its cache."""

import gzip
import random
import re
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from itertools import count, cycle
from typing import NamedTuple

from django.middleware.csrf import _unmask_cipher_token

from tests.pages.servers.hostile import Attacker
from tests.waiting import PATIENCE

LIFETIMES = ["long", "long", "short", "renewed"]
ATTACKER_PATIENCE = 3
"""Seconds for which the attacker waits for an answer: some servers do not answer all malformed requests."""
PER_PAGE = 16
"""Requests of each side for a page."""
# The headers of visitors that the attacker knows.
ALICE = {"Accept-Language": "en", "Cookie": "django_language=de; theme=dark", "X-Country": "CH"}
GERMAN = {"User-Agent": "Mozilla/5.0", "Accept": "text/html", "Accept-Language": "de", "X-Country": "DE"}
GERMAN |= {"Accept-Encoding": "gzip", "Cookie": "_ga=1"}

OTHERS = {"age", "cache-status", "connection", "content-length", "date", "expires", "server", "transfer-encoding"}
"""Headers that differ between two equal answers, or that the server or the cache writes."""
OTHERS |= {"content-encoding", "etag"}
"""A cache may send a page without compression, and so with another ETag."""
TOKEN = re.compile(r'(name="csrfmiddlewaretoken" value=")(\w{64})')


class Answer(NamedTuple):
    """An answer to a visitor. Names of headers are in lower case."""

    status: int
    headers: list
    body: bytes

    @property
    def cache_status(self):
        return dict(self.headers).get("cache-status", "")

    def shown(self, cookie):
        """Return the parts that must be those of the project without a cache, for a request with these cookies."""
        try:
            is_compressed = "content-encoding" in dict(self.headers) and self.body
            text = (gzip.decompress(self.body) if is_compressed else self.body).decode()
        except (OSError, ValueError):
            # The body is not in the coding or the charset that the headers name.
            return self.status, repr(self.body)
        secrets = re.findall(r"csrftoken=(\w+)", f"{cookie} {self.headers}")
        # Each answer has another token, from which its visitor's secret can be computed.
        with_secrets = TOKEN.sub(lambda token: f"{token[1]}{_unmask_cipher_token(token[2]) in secrets}", text)
        compared = {name for name, _ in self.headers} - OTHERS
        if with_secrets != text or any(value.lstrip().startswith("csrftoken=") for _, value in self.headers):
            # With a token, a stored page is private.
            compared.discard("cache-control")
        headers = sorted((name, lasting(name, value)) for name, value in self.headers if name in compared)
        return self.status, headers, with_secrets


def lasting(name, value):
    """Return the part of a header that is the same in all equal answers."""
    if name == "vary":
        return sorted(value.lower().split(", "))
    return re.sub(r"(?i)(expires=[^;]*|^(csrftoken|sessionid)=\w+)", "", value)


class Siege:
    """The visitors and the attacker of one server.

    Attributes:
        figures: counts "honest" and "hostile" requests, "honest hits", and "reached": hostile requests that the cache
            has answered or has looked at.
        wrong: for each request that got another answer than from the site without its cache: the path, the headers and
            both answers.
    """

    def __init__(self, server):
        self._address = ("127.0.0.1", server.port)
        self._lock = threading.Lock()
        self._expected = {}
        self.wrong, self.figures = [], Counter()
        alice, self._bob = map(self._log_in, ("alice", "bob"))
        paths, chance = server("paths"), random.Random(0)
        order = cycle(chance.sample(paths, len(paths)))
        # URLs of pages that nobody has asked for.
        self._urls = (f"{next(order).format(life=chance.choice(LIFETIMES))}?n={number:06}" for number in count(1))
        # For each visitor, the headers that the attacker knows, and all of them.
        self._visitors = [
            (ALICE, {**ALICE, "Cookie": f"{ALICE['Cookie']}; csrftoken={'a' * 32}; {alice}"}),
            (GERMAN, {**GERMAN, "Cookie": f"{GERMAN['Cookie']}; csrftoken={'b' * 32}"}),
            ({}, {}),
        ]

    def _ask(self, request, patience=PATIENCE):
        """Return the answer to a request, on a connection of its own.

        Raises:
            OSError, ValueError, HTTPException: if there is none, or it is malformed.
        """
        with socket.create_connection(self._address, patience) as connection:
            connection.sendall(request)
            with HTTPResponse(connection, method="HEAD" if request.startswith(b"HEAD") else "GET") as response:
                response.begin()
                headers = [(name.lower(), value.strip()) for name, value in response.getheaders()]
                return Answer(response.status, headers, response.read())

    def _get(self, kind, target, headers=()):
        """Return the answer of an application to an honest request."""
        lines = {"Host": "example.com", "X-Application": kind, **dict(headers)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return self._ask(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))

    def _log_in(self, name):
        return dict(self._get("uncached", f"/login/{name}").headers)["set-cookie"].partition(";")[0]

    def _visit(self, headers, url):
        """Make a request, and compare its answer, but for the number in the URL."""
        cookie, path = headers.get("Cookie"), url[:-6]
        key = (path, str(headers))

        def seen(answer):
            return str(answer.shown(cookie)).replace(url[-6:], "N")

        if key not in self._expected:
            self._expected[key] = seen(self._get("uncached", url, headers))
        answer = self._get("cached", url, headers)
        with self._lock:
            self.figures.update({"honest": 1, "honest hits": "; hit" in answer.cache_status})
            if (found := seen(answer)) != self._expected[key]:
                self.wrong.append((path, headers, found, self._expected[key]))

    def _attack(self, request):
        """Make a request of the attacker, which may be so malformed that nothing answers."""
        is_reached = False
        with suppress(OSError, ValueError, HTTPException):
            is_reached = "wheelcache" in self._ask(request, ATTACKER_PATIENCE).cache_status
        with self._lock:
            self.figures.update({"hostile": 1, "reached": is_reached})

    def run(self, requests, *, threads=4):
        """Make so many honest requests, and as many of the attacker."""
        urls = [next(self._urls) for _ in range(requests // PER_PAGE + 1)]

        def make(number):
            chance, attacker = random.Random(number), Attacker(self._bob, number)
            for step in range(number, requests, threads):
                public, _ = chance.choice(self._visitors)
                self._attack(attacker.mutate(public, urls[step // PER_PAGE]))
                _, headers = chance.choice(self._visitors)
                self._visit(headers, urls[step // PER_PAGE])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(make, range(threads)))
