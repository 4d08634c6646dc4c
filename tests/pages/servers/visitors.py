"""Visitors of ``site`` on a server. Their answers are compared with those of the same site without its cache."""

import gzip
import re
import socket
import threading
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from itertools import count
from string import ascii_letters, digits
from urllib.parse import urlencode

from tests.waiting import PATIENCE

OTHERS = {"age", "cache-status", "connection", "content-length", "date", "expires", "server", "transfer-encoding"}
"""Headers that differ between two equal answers, or that the server or the cache writes."""
OTHERS |= {"content-encoding", "etag"}
"""A cache may send a page without compression, and so with another ETag."""
TOKEN = re.compile(r'(name="csrfmiddlewaretoken" value=")(\w{64})')
FORM = "application/x-www-form-urlencoded"


@dataclass
class Answer:
    """An answer to a visitor. Names of headers are in lower case."""

    status: int
    headers: list
    body: bytes

    @property
    def is_hit(self):
        """Return whether a stored page was the answer."""
        return "; hit" in dict(self.headers).get("cache-status", "")

    @property
    def cookies(self):
        pairs = (value.partition(";")[0] for name, value in self.headers if name == "set-cookie")
        return "; ".join(pair for pair in pairs if not pair.endswith('=""'))

    @property
    def text(self):
        return (
            gzip.decompress(self.body) if "content-encoding" in dict(self.headers) and self.body else self.body
        ).decode()

    def shown(self, cookie):
        """Return the parts that must be those of the project without a cache, for a request with these cookies."""
        try:
            text = self.text
        except (OSError, ValueError):
            # The body is not in the coding or the charset that the headers name.
            return self.status, repr(self.body)
        if self.status >= 400 and "DEBUG = True" in text:
            # The page shows the whole request and addresses of objects.
            return (self.status,)
        secrets = re.findall(r"csrftoken=(\w+)", f"{cookie} {self.headers}")
        # Each answer has another token, from which its visitor's secret can be computed.
        with_secrets = TOKEN.sub(lambda token: f"{token[1]}{unmasked(token[2]) in secrets}", text)
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


def unmasked(token):
    """Return the secret in a token of CSRF protection, as Django does."""
    letters = ascii_letters + digits
    mask, cipher = ([*map(letters.index, part)] for part in (token[:32], token[32:]))
    return "".join(letters[one - other] for one, other in zip(cipher, mask, strict=True))


class Client:
    """A connection, which is opened again if the server has closed it."""

    def __init__(self, port, patience=PATIENCE):
        self._port = port
        self._patience = patience
        self._socket = None

    def send(self, request):
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._patience)
        self._socket.sendall(request)

    def receive(self, method="GET"):
        """Return the answer to the last request.

        Raises:
            OSError, ValueError, HTTPException: if there is none, or it is malformed.
        """
        with HTTPResponse(self._socket, method=method) as response:
            response.begin()
            body = response.read()
            headers = [(name.lower(), value.strip()) for name, value in response.getheaders()]
            if response.will_close:
                self.close()
            return Answer(response.status, headers, body)

    def ask(self, kind, target, headers=(), **form):
        """Return the answer of an application to an honest request. A form is posted."""
        body = urlencode(form)
        sent = {"Host": "example.com", "X-Application": kind, **dict(headers)}
        if form:
            sent |= {"Content-Type": FORM, "Content-Length": len(body)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        request = f"{'POST' if form else 'GET'} {target} HTTP/1.1\r\n{lines}\r\n{body}".encode("latin-1")
        try:
            self.send(request)
            return self.receive()
        except ConnectionError:
            # The server had closed it.
            self.close()
            self.send(request)
            return self.receive()

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Visits:
    """Visits of the site on one server.

    Attributes:
        paths: of the pages; ``leaky`` for pages that show a secret of their visitor.
        sessions: the cookies of users, by name.
        wrong: for each request that got another answer than from the site without its cache: the path, the cookies and
            both answers.
    """

    def __init__(self, server):
        self.client = partial(Client, server.port)
        paths = server("paths")
        self.leaky = paths["leaky"]
        self.paths = paths["pages"]
        self.sessions = {name: self._log_in(name) for name in ("alice", "bob")}
        self.wrong = []
        self._expected = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def _log_in(self, name):
        token = "d" * 32
        form = {"username": name, "password": f"of {name}", "csrfmiddlewaretoken": token}
        with closing(self.client()) as client:
            answer = client.ask("uncached", "/admin/login/", {"Cookie": f"csrftoken={token}"}, **form)
        assert answer.status == 302, answer
        return next(pair for pair in answer.cookies.split("; ") if pair.startswith("sessionid="))

    def url(self, path, lifetime="long"):
        """Return the URL of a page that nobody has asked for."""
        return f"{path.format(life=lifetime)}?n={next(self._numbers):06}"

    def visit(self, client, headers, url):
        """Make a request, and compare its answer, but for the number in the URL."""
        cookie, path = headers.get("Cookie"), url[:-6]
        key = (path, str(headers))

        def seen(answer):
            return str(answer.shown(cookie)).replace(url[-6:], "N")

        if key not in self._expected:
            # Answers of ``cache_page`` may differ from the second one on, and may be those of the other kind.
            own, times = (path.partition("?")[0], 2) if "kept" in path else (url, 1)
            self._expected[key] = [seen(client.ask("uncached", own, headers)) for _ in range(times)]
        answer = client.ask("cached", url, headers)
        with self._lock:
            if (found := seen(answer)) not in self._expected[key]:
                self.wrong.append((path, headers, found, self._expected[key]))
        return answer
