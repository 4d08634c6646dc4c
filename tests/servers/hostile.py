"""Honest visitors and an attacker of ``hostile_site``, on sockets of their own. Every answer to an honest visitor is
compared with the answer of the same site without its cache.
"""

import random
import re
import socket
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count, cycle
from urllib.parse import urlencode

from tests.servers.answers import Answer, cookies_of

LIFETIMES = ["long", "long", "short", "renewed"]
PATIENCE = 60
ATTACKER_PATIENCE = 3
"""Seconds for which the attacker waits for an answer: some servers do not answer all malformed requests."""
PER_PAGE = 16
"""Requests of each side for a page."""

URL_HEADERS = {
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Scheme": "https",
    "X-Forwarded-Port": "444",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-Server": "evil.example",
    "X-Forwarded-Ssl": "on",
    "X-Forwarded-Uri": "/evil",
    "X-Forwarded-Path": "/evil",
    "X-Forwarded-Protocol": "https",
    "X-Envoy-Original-Path": "/evil",
    "X-Url-Scheme": "https",
    "Front-End-Https": "on",
    "X-Script-Name": "/evil",
    "X-Host": "evil.example",
    "X-Original-Host": "evil.example",
    "X-Original-Url": "/evil",
    "X-Rewrite-Url": "/evil",
    "X-Http-Method-Override": "POST",
    "X-Http-Method": "POST",
    "X-Method-Override": "POST",
    "Forwarded": "host=evil.example;proto=https",
}
CHARSETS = ["cp037", "utf-16", "utf-7", "unicode_escape", "punycode", "latin-1"]
SPACES = ["\xc2\xa0", "\xa0", "\xc2\x85", "\x85", "\xe3\x80\x80", "\t", "\x1c", "\x0b"]
"""Characters that ``str.strip`` removes: in UTF-8, and in Latin-1."""

ATTACKS = {
    # a. Content-Type of a GET, and all else that frameworks read early.
    **{f"charset {each}": f"Content-Type: text/plain; charset={each}" for each in CHARSETS},
    "type JSON": "Content-Type: application/json",
    "type form": "Content-Type: application/x-www-form-urlencoded",
    "type multipart": "Content-Type: multipart/form-data; boundary=x",
    "type in two lines": "Content-Type: text/html\n+Content-Type: application/json",
    "protocol": "GET {url} HTTP/1.0",
    "connection": "Connection: evil, keep-alive",
    "trailers": "TE: trailers\nConnection: TE, keep-alive",
    "length zero": "Content-Length: 0",
    "lengths": "Content-Length: 0\n+Content-Length: 0",
    "body": "Content-Length: 10\n\nn=evil&a=1",
    "form": "Content-Type: application/x-www-form-urlencoded\nContent-Length: 10\n\nn=evil&a=1",
    "chunks": "Transfer-Encoding: chunked\n\n6\r\nn=evil\r\n0\r\n\r\n",
    # b. Two cookie parsers.
    **{f"cookie after {each!r}": f"Cookie: {{cookie}}; {each}theme=EVIL" for each in SPACES},
    **{f"session after {each!r}": f"Cookie: {{cookie}}; {each}{{session}}" for each in SPACES},
    "cookie before a space": "Cookie: {cookie}; theme\xc2\xa0=EVIL",
    "cookie lines": "+Cookie: theme=EVIL",
    "cookie lines, empty": "+Cookie: ",
    "cookie lines, session": "+Cookie: {session}",
    "cookie list": "Cookie: {cookie}, theme=EVIL",
    "cookie list first": "Cookie: a=1, theme=EVIL; {cookie}",
    "cookie quoted": 'Cookie: a="1; theme=EVIL; zone=Asia/Tokyo"; {cookie}',
    "cookie quoted apart": 'Cookie: theme="EVIL; {cookie}',
    "cookie escaped": r'Cookie: theme="\105VIL"; {cookie}',
    "cookie twice": "Cookie: {cookie}; theme=EVIL; theme=light",
    "cookie without a name": "Cookie: =theme=EVIL; {cookie}",
    "cookie without a value": "Cookie: theme; {cookie}",
    "cookie in Latin-1": "Cookie: {cookie}; th\xe9me=EVIL; theme=\xe9",
    "cookie of RFC 2965": 'Cookie: $Version="1"; theme="EVIL"; $Path="/"; {cookie}',
    "cookie language": "Cookie: {cookie}; \xc2\xa0django_language=en",
    "cookie zone": "Cookie: {cookie}; \xc2\xa0zone=Asia/Tokyo",
    # c. Different values that share a key.
    **{
        f"languages {each!r:.20}": f"Accept-Language: {each}"
        for each in (",de", "de,", "de,,en", "d e", "D\xa0E", '"de"', "de;q=0.5;q=1", "de;q=x", "DE", "de;x=1", "de,?")
    },
    "languages, oversized": f"Accept-Language: {'xx,' * 200}de",
    "languages, lines": "+Accept-Language: en",
    **{f"country {each!r}": f"X-Country: {each}" for each in ("DE,", ",DE", "DE ,", "DE,,AT", '"DE', "D E", "de")},
    "country, lines": "+X-Country: EVIL",
    "country, lines the other way round": "X-Country: EVIL\n+X-Country: DE",
    "country, too long": f"X-Country: {'x' * 2000}",
    **{f"encodings {each!r}": f"Accept-Encoding: {each}" for each in ("*", "gzip;q=0", "x-gzip", "GZIP", "gzip;q=x")},
    **{f"accept {each!r}": f"Accept: {each}" for each in ("application/json", "*/*", "text/*, application/json;q=2")},
    "agent": "User-Agent: evil",
    # d. CSRF, and the visitor's own session.
    "session": "Cookie: {cookie}; {session}",
    "token": "Cookie: csrftoken={token}",
    "token and session": "Cookie: csrftoken={token}; {session}",
    "authorization": "Authorization: Basic YTpi",
    # e. Headers from which URLs are built, and the host.
    **{name: f"{name}: {value}" for name, value in URL_HEADERS.items()},
    "X_Forwarded_Host": "X_Forwarded_Host: evil.example",
    "X-Forwarded-For": "X-Forwarded-For: 6.6.6.6",
    "SCRIPT_NAME": "SCRIPT_NAME: /evil",
    **{
        f"host {each}": f"Host: {each}"
        for each in (
            "EXAMPLE.com",
            "example.com:80",
            "example.com.",
            "example.com:444",
            "evil.example",
            "other.example",
        )
    },
    "hosts": "+Host: evil.example",
    "no host": "GET {url} HTTP/1.0\n-Host",
    "absolute URL": "GET http://other.example{url} HTTP/1.1",
    # Other methods, paths, queries and directives.
    **{f"method {each}": f"{each} {{url}} HTTP/1.1" for each in ("HEAD", "OPTIONS", "PUT", "get", "PURGE", "TRACE")},
    "method POST": "POST {url} HTTP/1.1\nContent-Length: 0",
    **{
        f"path {each!r}": f"GET {each} HTTP/1.1"
        for each in (
            "/{url}",
            "/.{url}",
            "/x/..{url}",
            "{url};x",
            "{url}#x",
            "{url}&n=evil",
            "{url}&%6E=evil",
            "{url}%00",
        )
    },
    "path, slashes": "GET {slashes} HTTP/1.1",
    "path, letters": "GET {letters} HTTP/1.1",
    **{
        f"directive {each!r:.20}": f"Cache-Control: {each}"
        for each in ("no-store", "no-cache", "max-age=0", "only-if-cached", "max-stale", '"' + '\\"' * 400)
    },
    "range": "Range: bytes=0-3",
    "conditions": 'If-None-Match: *\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\nIf-Range: "x"',
    "match": 'If-Match: "x"',
    "expectation": "Expect: 100-continue",
    "upgrade": "Connection: upgrade\nUpgrade: h2c",
    "folded": "X-Country: D\r\n E",
    "control": "X-Country: D\x07E",
}
"""Changes of an honest visitor's request. A line replaces the lines of its header; "+" adds a line, "-" removes lines.
The first line may be a request line. Lines after an empty one are the body."""

NASTY = [*SPACES, *',;="\\:/?#%&<>()[]{}@*+', " ", "%00", "%2F", "q=0", "q=1", "EVIL", "\xe9", "\xff", "x" * 600, ""]
VALUES = ["evil", "", "0", "1", "*", "de", "DE", "en", "https", "on", "gzip", "evil.example", "text/html", "theme=EVIL"]
NAMES = [
    *("Host", "Cookie", "Accept", "Accept-Language", "Accept-Encoding", "Accept-Charset", "User-Agent", "Referer"),
    *("Content-Type", "X-Country", "Authorization", "Cache-Control", "Pragma", "Range", "If-None-Match", "Origin"),
    *("X-Forwarded-For", "X-Requested-With", "Via", "Age", "Vary", "Date", "Priority", "Purpose", "X-Wheelcache"),
    *URL_HEADERS,
]

STRANGE_FRAMING = re.compile(rb"(?i)content.length|transfer.encoding|expect|upgrade|connection|\r\n\r\n.|^(?!GET )")
"""Requests after which the two sides of a connection may disagree about its state."""


class Visitor:
    """An honest visitor.

    Attributes:
        public: the headers that an attacker knows: all but the cookies of the session and of CSRF protection.
        cookie: all cookies.
    """

    def __init__(self, headers, secrets=""):
        self.public = [("Host", "example.com"), *headers.items()]
        self.cookie = "; ".join(filter(None, [headers.get("Cookie"), secrets]))
        others = [pair for pair in self.public if pair[0] != "Cookie"]
        self._head = "".join(f"{name}: {value}\r\n" for name, value in [*others, ("Cookie", self.cookie)] if value)

    def request(self, url, *, uncached=False):
        more = "X-Uncached: uncached\r\n" if uncached else ""
        return f"GET {url} HTTP/1.1\r\n{self._head}{more}\r\n".encode("latin-1")


class Client:
    """A connection, which is opened again if the server has closed it."""

    def __init__(self, port, patience=PATIENCE):
        self._port = port
        self._patience = patience
        self._socket = self._received = None

    def send(self, request):
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._patience)
            self._received = self._socket.makefile("rb")
        self._socket.sendall(request)

    def receive(self, *, has_body=True):
        """Return the answer to the last request.

        Raises:
            OSError, ValueError: if there is none, or it is malformed.
        """
        status, headers = 100, {}
        while status < 200:
            first = self._received.readline()
            if not first:
                raise ConnectionResetError
            status = int(first.split(b" ", 2)[1])
            headers = []
            while (line := self._received.readline().rstrip()) != b"":
                name, _, value = line.decode("latin-1").partition(":")
                headers.append((name.lower(), value.strip()))
        body = self._body(status, dict(headers)) if has_body else b""
        if "close" in dict(headers).get("connection", "").lower():
            self.close()
        return Answer(status, headers, body)

    def _body(self, status, headers):
        if status in (204, 304):
            return b""
        if "content-length" in headers:
            return self._received.read(int(headers["content-length"]))
        if "transfer-encoding" not in headers:
            return self._received.read()
        parts = []
        while length := int(self._received.readline(), 16):
            parts.append(self._received.read(length + 2)[:-2])
        self._received.readline()
        return b"".join(parts)

    def ask(self, request):
        """Return the answer to an honest request, for which a closed connection is opened again once."""
        try:
            self.send(request)
            return self.receive()
        except ConnectionError:
            self.close()
            self.send(request)
            return self.receive()

    def close(self):
        if self._socket is not None:
            self._received.close()
            self._socket.close()
            self._socket = None


class Attacker:
    """Makes requests from those of honest visitors, without their secrets.

    Args:
        session: the cookie of the attacker's own session.
    """

    def __init__(self, session, seed):
        self._chance = random.Random(seed)
        self._own = {"session": session, "token": "e" * 32}

    def forge(self, attack, visitor, url):
        """Return the request of one of ``ATTACKS``."""
        return self._compiled(*self._changed(attack, visitor, url))

    def mutate(self, visitor, url):
        """Return a request with random changes, and often one of ``ATTACKS`` in it."""
        chance = self._chance
        attack = ATTACKS[chance.choice([*ATTACKS])] if chance.random() < 0.7 else ""
        request, headers, body = self._changed(attack, visitor, url)
        for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
            change = chance.randrange(7)
            place = chance.randrange(len(headers) + 1)
            name, value = headers[place] if place < len(headers) else (chance.choice(NAMES), chance.choice(VALUES))
            if change == 0:
                headers.insert(place, (chance.choice(NAMES), chance.choice(VALUES)))
            elif change == 1:
                headers.insert(place, (name, chance.choice([value, *VALUES])))
            elif change == 2:
                headers[place : place + 1] = []
            elif change == 3:
                headers[place : place + 1] = [(chance.choice([name.upper(), name.replace("-", "_")]), value)]
            elif change == 4:
                request = self._with_nasty(request, request.find("?") + 1 if "?" in request else 0)
            else:
                headers[place : place + 1] = [(name, self._with_nasty(value, 0))]
        return self._compiled(request, headers, body)

    def _with_nasty(self, text, start):
        chance = self._chance
        end = text.rfind(" ") if start and " " in text else len(text)
        place = chance.randint(start, max(start, end))
        return text[:place] + chance.choice(NASTY) + text[place + chance.randrange(2) :]

    def _changed(self, attack, visitor, url):
        path, query = url.split("?")
        letters = path[:-2] + f"%{ord(path[-2]):X}" + path[-1] + "?" + query
        places = {"url": url, "slashes": path.replace("/", "%2F")[3:] + "?" + query, "letters": letters}
        cookie = dict(visitor.public).get("Cookie", "_ga=2")
        head, _, body = attack.partition("\n\n")
        request, headers = f"GET {url} HTTP/1.1", visitor.public.copy()
        for line in head.split("\n") if head else ():
            line = re.sub(r"{(\w+)}", lambda found: {**places, **self._own, "cookie": cookie}[found[1]], line)
            name, _, value = line.partition(": ")
            if " HTTP/" in line:
                request = line
                continue
            if not name.startswith("+"):
                headers = [pair for pair in headers if pair[0] != name.lstrip("-")]
            if not name.startswith("-"):
                headers.append((name.lstrip("+"), value))
        return request, headers, body

    @staticmethod
    def _compiled(request, headers, body):
        lines = [request, *(f"{name}: {value}" for name, value in headers), "", body]
        return "\r\n".join(lines).encode("latin-1")


class Siege:
    """The visitors and the attacker of one server.

    Attributes:
        paths: of the pages; ``leaky`` for pages that show a secret of their visitor.
        wrong: for each honest request that got another answer than from the site without its cache: the path, the
            visitor, both answers, and the attacks on that page so far.
        figures: counts "honest" and "hostile" requests, and "hits" of each kind; "reached": hostile requests that the
            cache has answered or has looked at.
    """

    def __init__(self, server, *, flask):
        self.port = server.port
        paths = server("paths")
        self.leaky = paths["leaky"]
        self.paths = paths["django"] + (paths["flask"] if flask else [])
        self.wrong = []
        self.figures = Counter()
        self._expected = {}
        self._numbers = count(1)
        self._attacks = defaultdict(list)
        self._lock = threading.Lock()
        with closing(Client(self.port)) as client:
            alice, bob = (self._log_in(client, name) for name in ("alice", "bob"))
        self._session = bob
        self.visitors = {
            "Alice": Visitor(
                {"Accept-Language": "en", "Cookie": "django_language=de; theme=dark", "X-Country": "CH"},
                f"csrftoken={'a' * 32}; {alice}",
            ),
            "a German": Visitor(
                {
                    "User-Agent": "Mozilla/5.0",
                    "Accept": "text/html",
                    "Accept-Language": "de",
                    "X-Country": "DE",
                    "Accept-Encoding": "gzip",
                    "Cookie": "_ga=1",
                },
                f"csrftoken={'b' * 32}",
            ),
            "a stranger": Visitor({}),
        }

    def begin(self):
        """Forget the figures and the wrong answers."""
        self.wrong, self.figures = [], Counter()

    def _log_in(self, client, name):
        token = "d" * 32
        form = urlencode({"username": name, "password": f"of {name}", "csrfmiddlewaretoken": token})
        request = (
            "POST /admin/login/ HTTP/1.1\r\nHost: example.com\r\nX-Uncached: uncached\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n"
            f"Cookie: csrftoken={token}\r\n\r\n{form}"
        )
        answer = client.ask(request.encode())
        assert answer.status == 302, answer
        return next(pair for pair in cookies_of(answer).split("; ") if pair.startswith("sessionid="))

    def url(self, path, lifetime):
        """Return the URL of a page that nobody has asked for."""
        return f"{path.format(life=lifetime)}?n={next(self._numbers):06}"

    def seen(self, answer, visitor, url):
        """Return the parts of an answer that must be equal, without the number of the page.

        A cache may send a page without compression, and so with another ETag.
        """
        try:
            status, headers, text = answer.shown(visitor.cookie)
        except (OSError, ValueError):
            # The body is not in the coding or the charset that the headers name.
            return answer.status, repr(answer.headers), repr(answer.body)
        assert ("content-encoding", "gzip") not in headers or ("Accept-Encoding", "gzip") in visitor.public
        kept = [pair for pair in headers if pair[0] not in ("content-encoding", "etag")]
        return (status, repr(kept).replace(url[-6:], "N"), text.replace(url[-6:], "N"))

    def visit(self, client, name, url):
        """Make an honest request, and compare its answer."""
        visitor = self.visitors[name]
        path = url[:-6]
        if (name, path) not in self._expected:
            self._expected[name, path] = self.seen(client.ask(visitor.request(url, uncached=True)), visitor, url)
        answer = client.ask(visitor.request(url))
        seen = self.seen(answer, visitor, url)
        with self._lock:
            self.figures["honest"] += 1
            self.figures["honest hits"] += answer.is_hit
            if seen != self._expected[name, path]:
                self.wrong.append((path, name, seen, self._expected[name, path], [*self._attacks[url]]))

    def attack(self, client, request, url):
        """Make a request of the attacker, which may be so malformed that nothing answers."""
        answer = None
        with self._lock:
            self._attacks[url].append(request)
        with suppress(OSError, ValueError):
            client.send(request)
            answer = client.receive(has_body=not request.startswith(b"HEAD"))
        if answer is None or STRANGE_FRAMING.search(request):
            client.close()
        status = dict(answer.headers).get("cache-status", "") if answer else ""
        with self._lock:
            self.figures["hostile"] += 1
            self.figures["hostile hits"] += "; hit" in status
            self.figures["reached"] += "wheelcache" in status

    def probe(self, name, paths, visitors=("a German",)):
        """Make one of ``ATTACKS`` the first request for each page of ``paths``. ``visitors`` make the next ones."""
        attacker = Attacker(self._session, 0)
        with closing(Client(self.port)) as honest, closing(Client(self.port, ATTACKER_PATIENCE)) as hostile:
            for path in paths:
                url = self.url(path, "long")
                for visitor in visitors:
                    self.attack(hostile, attacker.forge(ATTACKS[name], self.visitors[visitor], url), url)
                    self.visit(honest, visitor, url)

    def run(self, requests, *, threads=4, seed=0, step=lambda: None):
        """Make so many honest requests, and as many of the attacker at the same time.

        Args:
            step: called after each honest request.
        """
        paths = (self.paths + self.leaky) * len(LIFETIMES)
        chance_of_urls = random.Random(seed)
        order = cycle(chance_of_urls.sample(paths, len(paths)))
        urls, visited = [], count()

        def url_for(chance):
            """Return the URL of the newest page, or sometimes of an older one, which may have expired."""
            with self._lock:
                if next(visited) // (2 * PER_PAGE) >= len(urls):
                    urls.append(self.url(next(order), chance_of_urls.choice(LIFETIMES)))
                return urls[-1] if chance.random() < 0.8 else urls[-chance.randint(1, min(len(urls), 200))]

        # The attacker begins ahead, and then keeps the pace of the visitors.
        permits = threading.Semaphore(threads)

        def visit(number):
            chance = random.Random(f"{seed} {number}")
            with closing(Client(self.port)) as client:
                for _ in range(number, requests, threads):
                    self.visit(client, chance.choice([*self.visitors]), url_for(chance))
                    permits.release()
                    step()

        def attack(number):
            chance = random.Random(f"{seed} {number} attack")
            attacker = Attacker(self._session, f"{seed} {number}")
            with closing(Client(self.port, ATTACKER_PATIENCE)) as client:
                for _ in range(number, requests, threads):
                    permits.acquire(timeout=PATIENCE)
                    url, copied = url_for(chance), self.visitors[chance.choice([*self.visitors])]
                    self.attack(client, attacker.mutate(copied, url), url)

        with ThreadPoolExecutor(2 * threads) as pool:
            for part in [pool.submit(each, number) for number in range(threads) for each in (visit, attack)]:
                part.result()
