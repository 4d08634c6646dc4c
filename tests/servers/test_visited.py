"""A Django project behind an HTTP cache, on real servers: no visitor gets a page that was made for another one.

An answer is compared with that of the same project without a cache to the same request.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.servers.answers import TOKEN, Answer, cookies_of, unmasked
from tests.servers.process import Fleet

CHECKOUT = str(Path(__file__).parents[2])
SITE = "tests.servers.visited_site"
# The only server of ASGI is the first one, so that the tests with pairs run each case on it and on one of WSGI.
SERVERS = {
    "uvicorn": ["-m", "uvicorn", "--log-level=warning", "--port={port}", f"{SITE}:asgi"],
    "gunicorn": [
        *("-m", "gunicorn", "--worker-class=gthread", "--threads=4", "--bind=127.0.0.1:{port}"),
        f"{SITE}:wsgi",
    ],
    "granian": [
        *("-m", "granian", "--interface=wsgi", "--no-ws", "--blocking-threads=4", "--port={port}"),
        f"{SITE}:wsgi",
    ],
    "waitress with DEBUG": [
        *("-m", "waitress", "--no-clear-untrusted-proxy-headers", "--listen=127.0.0.1:{port}"),
        f"{SITE}:wsgi",
    ],
}

numbers = count()


def ask(connection, kind, path, headers, method="GET", **form):
    """Make a request of the application ``kind``. A form is posted."""
    sent = {"Host": "example.com", "X-Application": kind, **headers}
    if form:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request(method, path, urlencode(form) if form else None, sent)
    response = connection.getresponse()
    fields = [(name.lower(), value) for name, value in response.getheaders()]
    return Answer(response.status, fields, response.read())


class Visits:
    """Visits of the project on one server.

    Attributes:
        connection: to the server.
        visitors: the headers of the requests of each visitor.
        methods: for requests that may have any.
    """

    def __init__(self, server, stack, methods):
        self.server = server
        self.methods = methods
        self.connection = stack.enter_context(closing(server.connect()))
        self._known = {}
        self.visitors = {
            "a stranger": {},
            "a stranger who is tracked": {"Cookie": "_ga=1.2.3; __utm=4"},
            "a German": {"Cookie": "django_language=de"},
            "a German browser": {"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"},
            "one from Tokyo": {"Cookie": "zone=Asia/Tokyo"},
            "one in the dark": {"Cookie": "theme=dark"},
            "a German in the dark": {"Cookie": "_ga=5; theme=dark; django_language=de"},
            "a Swiss": {"X-Country": "CH"},
            "a modern browser": {"Accept-Encoding": "gzip, deflate, br", "User-Agent": "Mozilla/5.0"},
            "a bot": {"User-Agent": "a bot"},
            "a visitor of the other host": {"Host": "other.example"},
            "a visitor behind a proxy": {"X-Forwarded-Host": "other.example", "X-Forwarded-Proto": "https"},
            "an attacker with a forwarded host": {"X-Forwarded-Host": "evil.example"},
            "an attacker with underscores": {"X_Forwarded_Host": "evil.example"},
            "an attacker with a host": {"Host": "evil.example"},
            "an attacker with a large header": {"X-Country": "x" * 5000},
            "an attacker with a session": {"Cookie": "sessionid=forged; theme=dark"},
            "a visitor with a form": {"Cookie": f"csrftoken={'a' * 32}"},
            "another one with a form": {"Cookie": f"csrftoken={'b' * 32}"},
            "Alice": {"Cookie": self.log_in("alice")},
            "Bob": {"Cookie": self.log_in("bob")},
        }
        self.visitors["Alice in German"] = {"Cookie": self.visitors["Alice"]["Cookie"] + "; django_language=de"}
        token = {"Cookie": f"csrftoken={'c' * 32}"}
        posted = self.ask("uncached", "/form/", token, "POST", csrfmiddlewaretoken="c" * 32)
        self.visitors["one with a message"] = {"Cookie": cookies_of(posted)}

    def ask(self, kind, path, headers, method="GET", **form):
        return ask(self.connection, kind, path, headers, method, **form)

    def send(self, request):
        """Send bytes on a connection of their own. The answer, if there is one, does not matter."""
        with closing(self.server.connect()) as connection:
            connection.sock.sendall(request)
            connection.sock.recv(65536)

    def log_in(self, name):
        """Return the cookies of a user."""
        token = "d" * 32
        form = {"username": name, "password": f"of {name}", "csrfmiddlewaretoken": token}
        answer = self.ask("uncached", "/admin/login/", {"Cookie": f"csrftoken={token}"}, "POST", **form)
        assert answer.status == 302, answer
        return cookies_of(answer)

    def visit(self, kind, path, visitor, method="GET"):
        """Make a request as a visitor, and compare the answer with that of the project without a cache."""
        answer = self.ask(kind, path, self.visitors[visitor], method)
        # A HEAD is answered with the headers of the stored page.
        expected = self.expected(path, visitor, "GET" if answer.is_hit else method)
        if method == "HEAD":
            expected = [(*each[:2], "")[: len(each)] for each in expected]
        assert answer.shown(self.visitors[visitor].get("Cookie")) in expected, (path, visitor)
        return answer

    def expected(self, path, visitor, method="GET"):
        """Return the answers that a visitor may get without an HTTP cache: the second one may be of ``cache_page``."""
        path = path.partition("?")[0]
        key = (path, visitor, method)
        if key not in self._known:
            headers = self.visitors[visitor]
            answers = [self.ask("uncached", path, headers, method) for _ in range(1 + ("kept" in path))]
            self._known[key] = [answer.shown(headers.get("Cookie")) for answer in answers]
        return self._known[key]


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    """Start a server, or get the one that runs."""
    with ExitStack() as stack:
        fleet = Fleet(stack, tmp_path_factory.mktemp("servers"))

        @cache
        def start(name):
            folder = tmp_path_factory.mktemp("site")
            debug = f"{'DEBUG' in name:d}"
            server = fleet(name, SERVERS[name], VISITED_SITE=str(folder), VISITED_DEBUG=debug)
            # waitress sends the body that Django makes for a HEAD.
            return Visits(server, stack, ["GET"] if "waitress" in name else ["GET", "HEAD"])

        yield start
        # Tracebacks of Django may name the folder of this checkout.
        lines = fleet.logs().replace(CHECKOUT, "").splitlines()
        named = [number for number, line in enumerate(lines) if "wheelcache" in line]
        assert not named, "\n".join(lines[max(0, named[0] - 20) : named[-1] + 20])


@pytest.fixture(params=SERVERS)
def site(request, visits):
    site = visits(request.param)
    # The server may have closed it.
    site.connection.close()
    return site


# Pairs of requests for a page: by a first visitor, and by a second one, who is answered with the page that was stored
# for the first one ("shared"), with another one that is stored, too ("own"), or with one that is not stored ("none").
PAIRS = [
    ("/plain/", "a stranger", "a stranger who is tracked", "shared"),
    ("/plain/", "a stranger who is tracked", "one in the dark", "shared"),
    ("/plain/", "a stranger", "a Swiss", "shared"),
    ("/plain/", "a stranger", "a German", "own"),
    ("/plain/", "a German", "a stranger", "own"),
    ("/plain/", "a German", "a German in the dark", "shared"),
    ("/plain/", "a stranger", "a German browser", "own"),
    ("/plain/", "a German browser", "a stranger", "own"),
    ("/plain/", "a stranger", "a modern browser", "own"),
    ("/plain/", "a modern browser", "a stranger", "own"),
    ("/plain/", "a stranger", "a bot", "none"),
    ("/plain/", "a bot", "a stranger", "own"),
    ("/plain/", "a stranger", "Alice", "none"),
    ("/plain/", "Alice", "a stranger", "own"),
    ("/plain/", "a stranger", "a visitor of the other host", "own"),
    ("/zone/", "a stranger", "one from Tokyo", "own"),
    ("/zone/", "one from Tokyo", "a stranger", "own"),
    ("/theme/", "a stranger", "one in the dark", "own"),
    ("/theme/", "one in the dark", "a stranger", "own"),
    ("/theme/", "one in the dark", "an attacker with a session", "none"),
    ("/theme/", "a stranger", "a stranger who is tracked", "shared"),
    ("/country/", "a stranger", "a Swiss", "own"),
    ("/country/", "a Swiss", "a stranger", "own"),
    ("/url/", "a stranger", "a visitor behind a proxy", "own"),
    ("/url/", "a visitor behind a proxy", "a stranger", "own"),
    ("/url/", "a visitor behind a proxy", "a visitor of the other host", "own"),
    ("/url/", "a stranger", "an attacker with a forwarded host", "none"),
    ("/moved/", "a visitor behind a proxy", "a stranger", "own"),
    ("/moved/", "a stranger", "one in the dark", "shared"),
    ("/address/", "a stranger", "a stranger", "none"),
    ("/user/", "Alice", "Bob", "own"),
    ("/user/", "Bob", "Alice", "own"),
    ("/user/", "Alice", "a stranger", "own"),
    ("/user/", "a stranger", "Alice", "own"),
    ("/user/", "Alice", "Alice in German", "own"),
    ("/user/", "a stranger", "a stranger who is tracked", "shared"),
    ("/form/", "a visitor with a form", "another one with a form", "shared"),
    ("/form/", "a visitor with a form", "a stranger", "shared"),
    ("/form/", "a stranger", "a visitor with a form", "shared"),
    ("/form/", "a modern browser", "Alice", "own"),
    ("/form/", "Alice", "Bob", "own"),
    ("/kept_form/", "a visitor with a form", "another one with a form", "none"),
    ("/kept_form/", "a visitor with a form", "a stranger", "none"),
    ("/kept_form/", "a stranger", "another one with a form", "none"),
    ("/messages/", "one with a message", "a stranger", "own"),
    ("/messages/", "a stranger", "one with a message", "none"),
    ("/kept/", "a stranger", "one in the dark", "shared"),
    ("/kept/", "a stranger", "a German", "own"),
    ("/kept/", "one from Tokyo", "a stranger", "own"),
    ("/kept_theme/", "a stranger", "one in the dark", "own"),
    ("/kept_user/", "Alice", "Bob", "own"),
    ("/kept_user/", "Alice", "a stranger", "own"),
    ("/expires/", "a stranger", "one in the dark", "shared"),
    ("/fresh/", "a stranger", "a stranger", "none"),
    ("/marked/", "a stranger", "a stranger", "none"),
    ("/streamed/", "Alice", "Bob", "none"),
    ("/streamed/", "Alice", "a stranger", "none"),
    ("/missing/", "a stranger", "a German", "none"),
    ("/broken/", "a stranger", "a stranger", "none"),
    ("/plain", "a stranger", "a visitor behind a proxy", "none"),
    ("/admin/", "Alice", "Bob", "none"),
    ("/admin/auth/user/", "Alice", "a stranger", "none"),
    ("/admin/auth/user/", "Alice", "Bob", "none"),
    ("/admin/login/", "a stranger", "Alice", "none"),
]
CACHED_SITE = "wrapper"
CACHED = sorted({path for path, *_, result in PAIRS if result != "none"})


def ids(pairs):
    return [f"{path} {first}, {second}" for path, first, second, *_ in pairs]


def of_all(pairs):
    """Parametrize a test with each pair of visits on the first server, and on one of the others."""
    cases = pytest.mark.parametrize("visits_of_two", pairs, ids=ids(pairs))
    return lambda test: pytest.mark.pairs(full="site", of="visits_of_two")(cases(test))


def on_each_driver(*servers):
    """Parametrize a test with one server of WSGI and one of ASGI."""
    return pytest.mark.parametrize("site", servers, indirect=True)


def url_of(path):
    """Return a URL of a page that no other test asks for."""
    return f"{path}?{next(numbers)}" if path.endswith("/") and "admin" not in path else path


@of_all(PAIRS)
def test_a_visitor_gets_the_page_of_another_one_only_if_it_is_the_same(site, visits_of_two):
    path, first, second, *expected = visits_of_two
    url = url_of(path)
    site.visit(CACHED_SITE, url, first)
    hits = [site.visit(CACHED_SITE, url, second).is_hit for _ in range(4)]
    # If the first answer could not be stored, the next one shows that one can be, and the one after it is stored.
    assert (hits[0], hits[-1]) == (expected == ["shared"], expected != ["none"])
    site.visit(CACHED_SITE, url, first)


ATTACKERS = [
    "an attacker with a forwarded host",
    "an attacker with underscores",
    "an attacker with a host",
    "an attacker with a large header",
    "an attacker with a session",
    "a bot",
]


@pytest.mark.pairs(full="site", of="attacker")
@pytest.mark.parametrize("attacker", ATTACKERS)
def test_an_attacker_neither_poisons_a_page_nor_keeps_it_from_being_stored(site, attacker):
    for path in ("/url/", "/moved/", "/country/", "/theme/"):
        url = url_of(path)
        site.visit(CACHED_SITE, url, attacker)
        assert [site.visit(CACHED_SITE, url, "a stranger") for _ in range(4)][-1].is_hit
        site.visit(CACHED_SITE, url, attacker)


# Requests that servers, caches and applications may understand differently; {url} stands for the URL of the page.
STRANGE = {
    "a body": "GET {url} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 12\r\n\r\ntheme=hacked",
    "two hosts": "GET {url} HTTP/1.1\r\nHost: example.com\r\nHost: evil.example\r\n\r\n",
    "two hosts, the other way round": "GET {url} HTTP/1.1\r\nHost: evil.example\r\nHost: example.com\r\n\r\n",
    "a list of hosts": "GET {url} HTTP/1.1\r\nHost: example.com, other.example\r\n\r\n",
    "a host with a port": "GET {url} HTTP/1.1\r\nHost: example.com:8080\r\n\r\n",
    "no host": "GET {url} HTTP/1.0\r\nX-Forwarded-Host: other.example\r\n\r\n",
    "an absolute URL": "GET http://other.example{url} HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "another method": "get {url} HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "a method in a header": "GET {url} HTTP/1.1\r\nHost: example.com\r\nX-HTTP-Method-Override: POST\r\n\r\n",
    "a URL in a header": "GET {url} HTTP/1.1\r\nHost: example.com\r\nX-Original-URL: /missing/\r\n\r\n",
    "a length and chunks": (
        "GET {url} HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a control character": "GET {url} HTTP/1.1\r\nHost: example.com\r\nX-Country: C\x07H\r\n\r\n",
    "a header in two lines": "GET {url} HTTP/1.1\r\nHost: example.com\r\nX-Country: C\r\n H\r\n\r\n",
    "a header twice": "GET {url} HTTP/1.1\r\nHost: example.com\r\nX-Country: CH\r\nX-Country: AT\r\n\r\n",
    "two cookies": "GET {url} HTTP/1.1\r\nHost: example.com\r\nCookie: theme=dark\r\nCookie: zone=Asia/Tokyo\r\n\r\n",
    "an authorization": "GET {url} HTTP/1.1\r\nHost: example.com\r\nAuthorization: Basic YTpi\r\n\r\n",
    "an expectation": "GET {url} HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\n\r\n",
    "an upgrade": "GET {url} HTTP/1.1\r\nHost: example.com\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "another path": "GET /other/..{url} HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "a doubled slash": "GET /{url} HTTP/1.1\r\nHost: example.com\r\n\r\n",
}


# Each server has a parser of its own.
@pytest.mark.parametrize("how", STRANGE)
def test_a_strange_request_poisons_no_page(site, how):
    for path in ("/url/", "/country/", "/theme/"):
        url = url_of(path)
        request = STRANGE[how].replace("{url}", url).replace("\r\n", f"\r\nX-Application: {CACHED_SITE}\r\n", 1)
        for _ in range(2):
            site.send(request.encode("latin-1"))
        for visitor in ("a stranger", "a Swiss", "one in the dark", "a stranger"):
            site.visit(CACHED_SITE, url, visitor)


# Not "/zone/": it shows the cookie, which keeps a page out of any cache.
MIXED = [
    ("/plain/", "a German", "a stranger"),
    ("/theme/", "one in the dark", "a stranger"),
    ("/country/", "a Swiss", "a stranger"),
]


@of_all(MIXED)
def test_without_its_companion_a_cache_would_serve_the_wrong_page(site, visits_of_two):
    """``page_cache`` refuses to start without it; this is a cache that knows nothing of Django."""
    path, first, second = visits_of_two
    url = url_of(path)
    site.ask("bare", url, site.visitors[first])
    answer = site.ask("bare", url, site.visitors[second])
    assert answer.is_hit
    assert answer.shown("") in site.expected(path, first)
    assert answer.shown("") not in site.expected(path, second)


@on_each_driver("gunicorn", "uvicorn")
def test_no_order_of_visits_mixes_pages(site):
    chance = random.Random(1)
    for path in CACHED:
        url = url_of(path)
        for visitor in chance.sample([*site.visitors], len(site.visitors)):
            site.visit(CACHED_SITE, url, visitor, chance.choice(site.methods))


@on_each_driver("granian", "uvicorn")
def test_pages_that_are_renewed_in_the_background_stay_those_of_their_visitors(site):
    """A renewal sends only the headers on which the page depends."""
    chance = random.Random(0)
    hits = 0
    for path in CACHED:
        url = url_of(path)
        for visitor in chance.sample([*site.visitors] * 2, 2 * len(site.visitors)):
            headers = site.visitors[visitor]
            answer = site.ask("renewed", url, headers)
            # The lifetime is another one.
            assert answer.shown(headers.get("Cookie"))[::2] in [each[::2] for each in site.expected(path, visitor)]
            hits += answer.is_hit
    assert hits > len(CACHED) * len(site.visitors) / 4


WHOLE_SITE = [pair for pair in PAIRS if pair[0] in ("/plain/", "/user/", "/kept/", "/kept_user/", "/fresh/")]


@of_all(WHOLE_SITE)
def test_the_same_holds_with_the_middleware_of_django_that_caches_the_whole_site(site, visits_of_two):
    path, first, second, _ = visits_of_two
    url = url_of(path)
    for visitor in (first, second, second, first):
        answer = site.ask("whole site", url, site.visitors[visitor])
        # It adds headers to every page.
        assert answer.shown("")[::2] in [expected[::2] for expected in site.expected(path, visitor)]


def test_a_browser_with_a_page_receives_a_304_unless_the_page_is_of_another_visitor(site):
    url = url_of("/theme/")
    dark = site.visitors["one in the dark"]
    for _ in range(2):
        tag = dict(site.ask(CACHED_SITE, url, dark).headers)["etag"]
        unchanged = site.ask(CACHED_SITE, url, {**dark, "If-None-Match": tag})
        assert (unchanged.status, unchanged.body) == (304, b"")
        other = site.ask(CACHED_SITE, url, {"If-None-Match": tag})
        assert other.shown("") in site.expected(url, "a stranger")


@pytest.mark.timeout(300)
def test_forms_of_hits_are_accepted_from_their_visitors_only(site):
    """Twelve visitors at the same time. Each posts its own tokens, and those of another one."""
    url, posts = url_of("/form/"), []
    site.visit(CACHED_SITE, url, "a stranger")

    def post_all(number):
        with closing(site.server.connect()) as connection:
            visitor = Visitor(connection, url)
            for _ in range(10):
                posts.append(own := visitor.token())
                assert visitor.post(own) == 302
                foreign = random.choice(posts)
                if unmasked(foreign) != unmasked(own):
                    assert visitor.post(foreign) == 403
            return visitor.hits

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(post_all, range(12))) >= 100


class Visitor:
    """A browser that gets a form of the cached site and posts it.

    Attributes:
        hits: the forms that the cache has answered with.
    """

    def __init__(self, connection, url):
        self._connection = connection
        self._url = url
        self._headers = {}
        self.hits = 0

    def token(self):
        answer = ask(self._connection, CACHED_SITE, self._url, self._headers)
        self.hits += answer.is_hit
        self._headers = {"Cookie": cookies_of(answer)}
        return TOKEN.search(answer.body.decode())[2]

    def post(self, token):
        return ask(self._connection, CACHED_SITE, "/form/", self._headers, "POST", csrfmiddlewaretoken=token).status


def test_a_form_of_the_site_can_be_posted_and_only_its_visitor_sees_the_message(site):
    url = url_of("/messages/")
    site.visit(CACHED_SITE, url, "a stranger")
    shown = site.ask(CACHED_SITE, "/form/", {})
    cookies = cookies_of(shown)
    token = TOKEN.search(shown.body.decode())[2]
    assert site.ask(CACHED_SITE, "/form/", {"Cookie": cookies}, "POST", csrfmiddlewaretoken="x" * 64).status == 403
    posted = site.ask(CACHED_SITE, "/form/", {"Cookie": cookies}, "POST", csrfmiddlewaretoken=token)
    assert posted.status == 302
    message = {"Cookie": f"{cookies}; {cookies_of(posted)}"}
    assert b"saved" in site.ask(CACHED_SITE, url, message).body
    assert b"saved" not in site.visit(CACHED_SITE, url, "a stranger").body
