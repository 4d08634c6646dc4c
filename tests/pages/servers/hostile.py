"""Honest visitors and an attacker of ``site``, on sockets of their own."""

import random
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPException
from itertools import cycle

from tests.pages.servers.visitors import FORM, PATIENCE, Visits

LIFETIMES = ["long", "long", "short", "renewed"]
ATTACKER_PATIENCE = 3
"""Seconds for which the attacker waits for an answer: some servers do not answer all malformed requests."""
PER_PAGE = 16
"""Requests of each side for a page."""

OF_URLS = {
    "evil.example": "X-Forwarded-Host X-Forwarded-Server X-Host X_Forwarded_Host",
    "https": "X-Forwarded-Proto X-Forwarded-Scheme X-Forwarded-Ssl",
    "/evil": "X-Forwarded-Prefix X-Script-Name X-Original-Url X-Rewrite-Url SCRIPT_NAME",
    "POST": "X-Http-Method-Override",
    "444": "X-Forwarded-Port",
    "6.6.6.6": "X-Forwarded-For",
    "host=evil.example;proto=https": "Forwarded",
}
URL_HEADERS = {name: value for value, names in OF_URLS.items() for name in names.split()}
CHARSETS = ["cp037", "utf-16", "unicode_escape", "latin-1"]
SPACES = ["\xc2\xa0", "\xa0", "\xc2\x85", "\x85", "\xe3\x80\x80", "\t", "\x1c", "\x0b"]
"""Characters that ``str.strip`` removes: in UTF-8, and in Latin-1."""

OF_HEADERS = {
    # Parts that frameworks read early.
    "Content-Type": [
        *(f"text/plain; charset={each}" for each in CHARSETS),
        *("application/json", FORM, "multipart/form-data; boundary=x", "text/html\n+Content-Type: application/json"),
    ],
    "Connection": ["evil, keep-alive", "TE, keep-alive\nTE: trailers", "upgrade\nUpgrade: h2c"],
    "Content-Length": [
        *("0", "0\n+Content-Length: 0", "10\n\nn=evil&a=1", f"10\nContent-Type: {FORM}\n\nn=evil&a=1"),
        "3\nTransfer-Encoding: chunked\n\n0\r\n\r\n",
    ],
    "Transfer-Encoding": ["chunked\n\n6\r\nn=evil\r\n0\r\n\r\n"],
    # Two cookie parsers; CSRF, and the attacker's own session.
    "Cookie": [
        *(f"{{cookie}}; {each}theme=EVIL" for each in SPACES),
        *(f"{{cookie}}; {each}{{session}}" for each in SPACES),
        *("{cookie}; theme\xc2\xa0=EVIL", "{cookie}\n+Cookie: theme=EVIL", "{cookie}\n+Cookie: {session}"),
        *("{cookie}, theme=EVIL", "a=1, theme=EVIL; {cookie}", 'a="1; theme=EVIL; zone=Asia/Tokyo"; {cookie}'),
        *('theme="EVIL; {cookie}', r'theme="\105VIL"; {cookie}', "{cookie}; theme=EVIL; theme=light"),
        *("=theme=EVIL; {cookie}", "theme; {cookie}", "{cookie}; th\xe9me=EVIL; theme=\xe9"),
        *('$Version="1"; theme="EVIL"; $Path="/"; {cookie}', "{cookie}; \xc2\xa0django_language=en"),
        *("{cookie}; \xc2\xa0zone=Asia/Tokyo", "{cookie}; {session}", "{token}", "{token}; {session}"),
    ],
    # Different values that share a key.
    "Accept-Language": [
        *(",de", "de,,en", "D\xa0E", '"de"', "de;q=0.5;q=1", "DE", "de;x=1", f"{'xx,' * 200}de"),
        "de\n+Accept-Language: en",
    ],
    "X-Country": [
        *("DE,", ",DE", "DE ,", "DE,,AT", '"DE', "D E", "de", "x" * 2000, "D\r\n E", "D\x07E"),
        *("DE\n+X-Country: EVIL", "EVIL\n+X-Country: DE"),
    ],
    "Accept-Encoding": ["gzip;q=0", "x-gzip", "GZIP"],
    "Accept": ["application/json"],
    "User-Agent": ["a bot"],
    "Authorization": ["Basic YTpi"],
    "Host": [
        *("EXAMPLE.com", "example.com:80", "example.com.", "example.com:444", "evil.example", "other.example"),
        *("example.com\n+Host: evil.example", "example.com, other.example"),
    ],
    **{name: [value] for name, value in URL_HEADERS.items()},
    "Cache-Control": ["no-store", "max-age=0", "only-if-cached", '"' + '\\"' * 400],
    "Range": ["bytes=0-3"],
    "If-None-Match": ['*\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\nIf-Range: "x"'],
    "If-Match": ['"x"'],
    "Expect": ["100-continue"],
}
METHODS = ["HEAD", "OPTIONS", "PUT", "get", "TRACE"]
TARGETS = ["/{url}", "/x/..{url}", "{url};x", "{url}#x", "{url}&n=evil", "{url}&%6E=evil", "{url}%00"]
ATTACKS = [
    *(f"{name}: {value}" for name, values in OF_HEADERS.items() for value in values),
    *("GET {url} HTTP/1.0", "GET {url} HTTP/1.0\n-Host", "GET http://other.example{url} HTTP/1.1"),
    *(f"{each} {{url}} HTTP/1.1" for each in METHODS),
    "POST {url} HTTP/1.1\nContent-Length: 0",
    *(f"GET {each} HTTP/1.1" for each in [*TARGETS, "{slashes}", "{letters}"]),
]
"""Changes of an honest visitor's request. A line replaces the lines of its header; "+" adds a line, "-" removes lines.
The first line may be a request line. Lines after an empty one are the body."""

STRANGE_FRAMING = re.compile(rb"(?i)content.length|transfer.encoding|expect|upgrade|connection|\r\n\r\n.|^(?!GET )")
"""Requests after which the two sides of a connection may disagree about its state."""


class Attacker:
    """Makes requests from those of honest visitors, without their secrets.

    Args:
        session: the cookie of the attacker's own session.
    """

    def __init__(self, session, seed):
        self._chance = random.Random(seed)
        self._own = {"session": session, "token": f"csrftoken={'e' * 32}"}

    def mutate(self, public, url):
        """Return a request with one of ``ATTACKS``, and often another one that changes the headers or the target."""
        others = [attack for attack in ATTACKS if "\n\n" not in attack]
        chosen = [*self._chance.choices(others, k=self._chance.randrange(2)), self._chance.choice(["", *ATTACKS])]
        return self.forge("\n".join(filter(None, chosen)), public, url)

    def forge(self, attack, public, url):
        """Return the request of an attack as bytes."""
        path, query = url.split("?")
        letters = path[:-2] + f"%{ord(path[-2]):X}" + path[-1] + "?" + query
        places = {"url": url, "slashes": path.replace("/", "%2F")[3:] + "?" + query, "letters": letters}
        places |= {**self._own, "cookie": public.get("Cookie", "_ga=2")}
        head, _, body = attack.partition("\n\n")
        request, headers = f"GET {url} HTTP/1.1", [("Host", "example.com"), *public.items()]
        for line in head.split("\n") if head else ():
            line = re.sub(r"{(\w+)}", lambda found: places[found[1]], line)
            name, _, value = line.partition(": ")
            if " HTTP/" in line:
                request = line
                continue
            if not name.startswith("+"):
                headers = [pair for pair in headers if pair[0] != name.lstrip("-")]
            if not name.startswith("-"):
                headers.append((name.lstrip("+"), value))
        lines = [request, *(f"{name}: {value}" for name, value in [*headers, ("X-Application", "cached")]), "", body]
        return "\r\n".join(lines).encode("latin-1")


GERMAN = {
    "User-Agent": "Mozilla/5.0",
    "Accept": "text/html",
    "Accept-Language": "de",
    "X-Country": "DE",
    "Accept-Encoding": "gzip",
    "Cookie": "_ga=1",
}


class Siege:
    """The visitors and the attacker of one server.

    Attributes:
        visitors: for each, the headers that the attacker knows, and all of them.
        figures: counts "honest" and "hostile" requests, "honest hits", and "reached": hostile requests that the cache
            has answered or has looked at.
    """

    def __init__(self, server):
        self.visits = Visits(server)
        self.visitors = {}
        secrets = {
            "Alice": f"csrftoken={'a' * 32}; {self.visits.sessions['alice']}",
            "a German": f"csrftoken={'b' * 32}",
        }
        alice = {"Accept-Language": "en", "Cookie": "django_language=de; theme=dark", "X-Country": "CH"}
        for name, public in (("Alice", alice), ("a German", GERMAN), ("a stranger", {})):
            own = {"Cookie": f"{public['Cookie']}; {secrets[name]}"} if name in secrets else {}
            self.visitors[name] = public, {**public, **own}
        self.begin()

    def begin(self):
        """Forget the figures and the wrong answers."""
        self.visits.wrong, self.figures, self._lock = [], Counter(), threading.Lock()

    def _visit(self, client, name, url):
        answer = self.visits.visit(client, self.visitors[name][1], url)
        with self._lock:
            self.figures.update({"honest": 1, "honest hits": answer.is_hit})

    def _attack(self, client, request):
        """Make a request of the attacker, which may be so malformed that nothing answers."""
        answer = None
        with suppress(OSError, ValueError, HTTPException):
            client.send(request)
            answer = client.receive("HEAD" if request.startswith(b"HEAD") else "GET")
        if answer is None or STRANGE_FRAMING.search(request):
            client.close()
        status = dict(answer.headers).get("cache-status", "") if answer else ""
        with self._lock:
            self.figures.update({"hostile": 1, "reached": "wheelcache" in status})

    def probe(self, attack, paths, visitors=("a German",)):
        """Make an attack the first request for each page of ``paths``. ``visitors`` make the next ones."""
        attacker = Attacker(self.visits.sessions["bob"], 0)
        clients = self.visits.client(), self.visits.client(ATTACKER_PATIENCE)
        with closing(clients[0]) as honest, closing(clients[1]) as hostile:
            for path in paths:
                url = self.visits.url(path)
                for name in visitors:
                    self._attack(hostile, attacker.forge(attack, self.visitors[name][0], url))
                    self._visit(honest, name, url)

    def run(self, requests, *, threads=4):
        """Make so many honest requests, and as many of the attacker at the same time."""
        paths = (self.visits.paths + self.visits.leaky) * len(LIFETIMES)
        chance_of_urls = random.Random(0)
        order = cycle(chance_of_urls.sample(paths, len(paths)))
        number_of_pages = requests // PER_PAGE + 1
        urls = [self.visits.url(next(order), chance_of_urls.choice(LIFETIMES)) for _ in range(number_of_pages)]

        def url_for(chance, step):
            """Return the URL of the newest page, or sometimes of an older one, which may have expired."""
            newest = step // PER_PAGE
            return urls[newest if chance.random() < 0.8 else chance.randint(max(0, newest - 200), newest)]

        # The attacker begins ahead, and then keeps the pace of the visitors.
        permits = threading.Semaphore(threads)

        def visit(number):
            chance = random.Random(number)
            with closing(self.visits.client()) as client:
                for step in range(number, requests, threads):
                    self._visit(client, chance.choice([*self.visitors]), url_for(chance, step))
                    permits.release()

        def attack(number):
            chance = random.Random(f"{number} attack")
            attacker = Attacker(self.visits.sessions["bob"], number)
            with closing(self.visits.client(ATTACKER_PATIENCE)) as client:
                for step in range(number, requests, threads):
                    permits.acquire(timeout=PATIENCE)
                    public = self.visitors[chance.choice([*self.visitors])][0]
                    self._attack(client, attacker.mutate(public, url_for(chance, step)))

        with ThreadPoolExecutor(2 * threads) as pool:
            for part in [pool.submit(each, number) for number in range(threads) for each in (visit, attack)]:
                part.result()
