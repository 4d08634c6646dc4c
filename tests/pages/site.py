"""A site behind an HTTPCache, for tests that hold for both drivers."""

import asyncio
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, unquote_to_bytes
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from tests.waiting import start, until
from wheelcache.pages import NOTES_KEY
from wheelcache.pages import site as surroundings
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.options import Options
from wheelcache.pages.variants import environ_name
from wheelcache.pages.wsgi import renewal_pool

USUAL = {"cache-control": "max-age=60"}
STALE = {"cache-control": "max-age=60, stale-while-revalidate=60"}
EPOCH = 1_700_000_000
"""The time of day when the clock of the tests shows 0: Tue, 14 Nov 2023 22:13:20 GMT."""


def site_on(clock, **facts):
    """Return the facts of a site whose time the test moves."""
    return surroundings.Site(clock=clock, wall_clock=lambda: EPOCH + clock(), **facts)


@dataclass
class Response:
    """A response, from the application or to the client. Names of headers are in lower case."""

    body: bytes = b"page"
    headers: dict = field(default_factory=lambda: {**USUAL})
    status: int = 200

    def __getitem__(self, name):
        return self.headers[name]

    @property
    def detail(self):
        """The parameters of Cache-Status, without the name of the cache."""
        return self.headers.get("cache-status", "").partition("; ")[2]


Request = namedtuple("Request", "method path query headers notes")
"""A request, as the application sees it."""


def answering(headers=USUAL, body=b"page", status=200, *, notes=lambda notes: None):
    """Return an application that always gives this response, and calls ``notes`` with its notes."""

    def respond(request):
        if request.notes is not None:
            notes(request.notes)
        return Response(body, dict(headers), status)

    return respond


def echo(name, vary=None):
    """Return an application whose page shows a request header."""
    headers = USUAL if vary is None else {**USUAL, "vary": vary}
    return lambda request: Response(repr(request.headers.get(name)).encode(), headers)


def settle():
    """Wait for the renewals in threads. Those in tasks end with ``Site.ask``."""
    assert until(lambda: not renewal_pool.pending)


class Site:
    """An application behind a cache.

    Attributes:
        respond: ``respond(request)`` returns a ``Response``, or raises.
        requests: those that the application has seen.
    """

    def __init__(self, clock, *, has_companion=False, tokens=None, **options):
        self.clock = clock
        self.cache = PageCache(Options(**options), site_on(clock, has_companion=has_companion, tokens=tokens))
        self.requests = []
        self.respond = answering()

    def run(self, request):
        self.requests.append(request)
        return self.respond(request)

    def found(self, *headers, target="/"):
        """Make a request with each of the headers. Return "hit" or "fwd" for each."""
        return [self.get(target, each).detail[:3] for each in headers]

    @property
    def runs(self):
        return len(self.requests)

    def stats(self):
        return self.cache.stats()

    def get(self, *args, **how):
        """Make a request: see ``parts``."""
        return self.ask(*self.parts(*args, **how))

    @staticmethod
    def parts(target="/", headers=(), *, method="GET", host="example.com", body=b""):
        """The method, path, query, headers and body of a request. ``headers`` are a dict, or pairs."""
        pairs = [*(headers.items() if isinstance(headers, dict) else headers)]
        path, _, query = target.partition("?")
        return method, path, query, [("Host", host), *pairs], body


class WsgiSite(Site):
    """Both sides of the cache are checked by wsgiref's validator."""

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.app = validator(self.cache.wsgi(validator(self.application)))

    def application(self, environ, start_response):
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name == "CONTENT_TYPE"
        }
        method, path, query = (environ.get(name, "") for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING"))
        response = self.run(Request(method, path, query, headers, environ.get(NOTES_KEY)))
        content_type = [] if response.status == 304 else [("Content-Type", "text/plain")]
        start_response(f"{response.status} Status", [*content_type, *response.headers.items()])
        return [response.body]

    def environ(self, method, path, query, pairs, body):
        environ = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": path + "?" * bool(query) + query,
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
        }
        for name, value in pairs:
            key = environ_name(name.lower().encode())
            environ[key] = f"{environ[key]},{value}" if key in environ else value
        if body:
            environ["CONTENT_LENGTH"] = str(len(body))
        setup_testing_defaults(environ)
        return environ

    def ask(self, *parts):
        return answer_of(self.app, self.environ(*parts))

    def get_unchecked(self, *args, **how):
        """Make a ``get`` without the validator."""
        return answer_of(self.cache.wsgi(self.application), self.environ(*self.parts(*args, **how)))


def answer_of(app, environ):
    answer = []

    def start_response(status, headers, exc_info=None):
        answer[:] = [int(status[:3]), {name.lower(): value for name, value in headers}]
        return answer.append

    result = app(environ, start_response)
    try:
        received = b"".join(result)
    finally:
        if hasattr(result, "close"):
            result.close()
    status, headers = answer
    return Response(received, headers, status)


def is_stored(site, *request, **how):
    """Return whether two equal requests get the same page."""
    return site.get(*request, **how).body == site.get(*request, **how).body


def hits(site, target, requests=12):
    """Return the number of requests, each by another browser with another cookie, that the cache answers."""
    headers = [{"User-Agent": f"browser {number}", "Cookie": f"tracked={number}"} for number in range(requests)]
    return sum(site.get(target, each).detail.startswith("hit") for each in headers)


class AsgiSite(Site):
    loop = None

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.app = self.cache.asgi(self.application)

    async def application(self, scope, receive, send):
        message = await receive()
        assert message["type"] == "http.request"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope.get("query_string", b"").decode()
        response = self.run(Request(scope["method"], scope["path"], query, headers, scope.get(NOTES_KEY)))
        fields = [(b"content-type", b"text/plain")]
        fields += [(name.encode(), value.encode("latin-1")) for name, value in response.headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": fields})
        await send({"type": "http.response.body", "body": response.body})

    def scope(self, method, path, query, pairs):
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote_to_bytes(path.encode("latin-1")).decode(errors="replace"),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
            "client": ("127.0.0.1", 1),
        }

    async def ask_async(self, method, path, query, pairs, body=b""):
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        sent = []

        async def receive():
            if messages:
                return messages.pop()
            return await asyncio.get_running_loop().create_future()

        async def send(message):
            sent.append(message)

        if body:
            pairs = [*pairs, ("content-length", str(len(body)))]
        await self.app(self.scope(method, path, query, pairs), receive, send)
        start, *bodies = sent
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
        return Response(b"".join(each.get("body", b"") for each in bodies), headers, start["status"])

    def ask(self, *parts):
        """Make a request in the running ``loop``, or without one in a new loop, which ends after its tasks."""
        if self.loop is not None:
            return asyncio.run_coroutine_threadsafe(self.ask_async(*parts), self.loop).result()

        async def main():
            response = await self.ask_async(*parts)
            # Renewals are tasks of their own.
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
            return response

        return asyncio.run(main())

    def get_unchecked(self, *args, **how):
        return self.get(*args, **how)


async def go_on():
    """Let all tasks go on until they wait."""
    for _ in range(100):
        await asyncio.sleep(0)


@contextmanager
def running_loop():
    """Run an event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = start(loop.run_forever)

    async def finish():
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    try:
        yield loop
        asyncio.run_coroutine_threadsafe(finish(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def maker(site_class, clock, closed):
    """Return a function that makes a site of this class from the options of ``HTTPCache``.

    Args:
        clock: of the sites, unless one is given with the options.
        closed: the fixture, which closes their caches at the end of the test.
    """

    def make(clock=clock, **options):
        site = site_class(clock, **options)
        closed(site.cache.cache)
        return site

    return make
