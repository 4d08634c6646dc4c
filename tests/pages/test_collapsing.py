"""One run of the application for many requests: cancelled leaders, renewals, lost clients. ``test_herd`` has the rules
that hold for threads and tasks."""

import asyncio
import threading

import pytest

from tests.pages.site import STALE, AsgiSite, Response, WsgiSite, answer_of, answering, go_on, maker, settle
from tests.waiting import PATIENCE, join, start, until
from wheelcache.pages import asgi, pages

USUAL = [(b"cache-control", b"max-age=60")]


class SlowSite(AsgiSite):
    """An ASGI site whose application waits until it may answer.

    Attributes:
        may_answer: an event.
        headers, bodies: of the response.
        after: awaited by the application after its last message.
    """

    def __init__(self, clock, **options):
        super().__init__(clock, **options)
        self.may_answer = asyncio.Event()
        self.headers = USUAL
        self.bodies = [b"page"]
        self.after = None

    async def application(self, scope, receive, send):
        self.requests.append(scope)
        await receive()
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for number, body in enumerate(self.bodies):
            more = number + 1 < len(self.bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})
        if self.after is not None:
            await self.after

    async def begin(self, number, target="/", headers=()):
        """Begin requests, which wait. Return their tasks."""
        tasks = [asyncio.ensure_future(self.ask_async(*self.parts(target, headers))) for _ in range(number)]
        await go_on()
        return tasks


@pytest.fixture
def make_slow(clock, closed):
    return maker(SlowSite, clock, closed)


@pytest.fixture
def site(make_slow):
    return make_slow()


class NoSecrets:
    """Tokens of a framework that finds no secret in any cookie, and makes a new one."""

    cookie = b"token"

    def secret(self, cookies):
        return ""

    def refused(self, body, *, is_compressed):
        """Return None: no body has a token."""


@pytest.mark.parametrize(
    "headers", [{"authorization": "Basic YTpi"}, {"cache-control": "no-store"}, {"cookie": "token=malformed"}]
)
async def test_no_request_waits_for_one_whose_response_may_not_be_storable_nor_the_other_way_round(make_slow, headers):
    site = make_slow(tokens=NoSecrets())
    clients = [*await site.begin(2, "/", headers), *await site.begin(1), *await site.begin(1, "/", headers)]
    assert site.runs == 4
    site.may_answer.set()
    await asyncio.gather(*clients)
    assert site.stats().collapsed == 0


async def test_a_request_that_waits_for_a_run_with_other_values_runs_the_application_itself_and_waits_once(site):
    site.headers = [*USUAL, (b"vary", b"accept-language")]
    clients = [
        task for each in ("de", "en", "de", "fr") for task in await site.begin(1, "/", {"accept-language": each})
    ]
    assert site.runs == 1
    site.may_answer.set()
    await asyncio.gather(*clients)
    assert (site.runs, site.stats().collapsed) == (3, 1)


async def test_the_others_go_on_as_soon_as_a_response_begins_that_cannot_be_stored(site):
    site.headers, site.bodies = [(b"cache-control", b"private")], [b"a", b"b"]
    site.after = asyncio.get_running_loop().create_future()
    clients = await site.begin(10)
    assert site.runs == 1
    site.may_answer.set()
    await go_on()
    assert site.runs == 10
    # The next requests do not even begin to wait.
    site.may_answer.clear()
    clients += await site.begin(10)
    assert site.runs == 20
    site.may_answer.set()
    site.after.set_result(None)
    await asyncio.gather(*clients)


async def test_the_others_go_on_with_the_last_message_and_not_with_the_end_of_background_work(site):
    site.after = asyncio.get_running_loop().create_future()
    clients = await site.begin(10)
    site.may_answer.set()
    await asyncio.gather(*clients[1:])
    assert site.runs == 1
    site.after.set_result(None)
    await clients[0]


async def test_if_the_leading_request_is_cancelled_one_other_runs_the_application(site):
    clients = await site.begin(21)
    # One that waits leaves the others alone.
    for number in (1, 0):
        clients[number].cancel()
    await go_on()
    assert site.runs == 2
    site.may_answer.set()
    answers = await asyncio.gather(*clients[2:])
    assert ({answer.body for answer in answers}, site.runs) == ({b"page"}, 2)


async def run_for_nobody(site, application):
    """Run an application for a client that has disconnected."""

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        """Send nothing."""

    await site.cache.asgi(application)(site.scope("GET", "/", "", [("host", "example.com")]), receive, send)


async def test_a_client_that_disconnects_does_not_end_a_run_for_which_others_wait(site):
    gone = asyncio.Event()

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        raise OSError("the client has disconnected")

    async def application(scope, receive, send):
        listening = asyncio.ensure_future(receive())
        await site.application(scope, request, send)
        assert not listening.done()
        listening.cancel()

    async def request():
        return {"type": "http.request"}

    app = site.cache.asgi(application)
    leader = asyncio.ensure_future(app(site.scope("GET", "/", "", [("Host", "example.com")]), receive, send))
    await go_on()
    (follower,) = await site.begin(1)
    gone.set()
    await go_on()
    site.may_answer.set()
    await leader
    assert ((await follower).body, site.runs) == (b"page", 1)


async def test_a_client_that_disconnects_does_not_end_a_response_that_is_being_stored(site):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": USUAL})
        listening = asyncio.ensure_future(receive())
        await go_on()
        assert not listening.done()
        await send({"type": "http.response.body", "body": b"page"})
        listening.cancel()

    await run_for_nobody(site, application)
    assert site.stats().stored == 1


@pytest.mark.parametrize("begins", [True, False])
async def test_a_client_that_disconnects_ends_a_run_whose_page_is_not_stored(site, begins):
    """An application that listens for it, as for a long computation, must be able to stop, with a part of the page."""

    async def events(scope, receive, send):
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        if not begins:
            await send({"type": "http.response.start", "status": 200, "headers": USUAL})
        await send({"type": "http.response.body", "body": b"part"})

    await run_for_nobody(site, events)
    assert site.stats().stored == 0


async def test_a_request_gets_the_stale_page_while_the_application_is_slow(make_slow, clock):
    site = make_slow(serve_stale_after=0.01, fail_safe=600)
    site.may_answer.set()
    await asyncio.gather(*await site.begin(1))
    site.may_answer.clear()
    clock.advance(61)
    (client,) = await site.begin(1)
    assert ((await client).detail, site.runs) == ("hit; ttl=-1; detail=slow", 2)
    site.may_answer.set()
    await go_on()
    assert (await (await site.begin(1))[0]).detail == "hit; ttl=60"


async def test_beyond_the_most_runs_no_request_waits(site, monkeypatch):
    monkeypatch.setattr(pages, "MOST_RUNS", 1)

    clients = [task for path in ("/first", "/second") for task in await site.begin(2, path)]
    assert site.runs == 3
    site.may_answer.set()
    await asyncio.gather(*clients)


# Renewals.


async def test_beyond_the_most_renewals_pages_are_not_renewed_and_one_warning_says_so(site, clock, monkeypatch, caplog):
    monkeypatch.setattr(asgi, "MOST_RENEWALS", 1)
    whole, state = site.scope, {"pool": 1}
    site.scope = lambda *parts: {**whole(*parts), "state": state}
    site.headers = [(b"cache-control", STALE["cache-control"].encode())]
    site.may_answer.set()
    for path in ("/a", "/b", "/c"):
        await asyncio.gather(*await site.begin(1, path))
    site.may_answer.clear()
    clock.advance(61)
    clients = [task for path in ("/a", "/b", "/c") for task in await site.begin(1, path)]
    assert {answer.detail for answer in await asyncio.gather(*clients)} == {"hit; ttl=-1; detail=stale"}
    assert (site.runs, caplog.text.count("Pages are not renewed")) == (4, 1)
    # The application may write into it.
    assert site.requests[3]["state"] == state is not site.requests[3]["state"]
    site.may_answer.set()


def test_the_renewal_of_a_thread_has_a_clean_environ_and_closes_its_response(wsgi, clock):
    environs, closed = [], []

    class Body(list):
        def close(self):
            closed.append(threading.current_thread().name)

    def application(environ, start_response):
        environs.append(environ)
        start_response("200 OK", [("Cache-Control", "max-age=60, stale-while-revalidate=60")])
        return Body([b"page"])

    app = wsgi.cache.wsgi(application)
    for _ in range(2):
        environ = wsgi.environ("GET", "/", "a=b", [("Host", "example.com"), ("Cookie", "a=b")], b"")
        environ |= {"gunicorn.socket": object(), "wsgi.early_hints": object()}
        assert answer_of(app, environ).body == b"page"
        clock.advance(60)
    assert until(lambda: len(closed) == 2)
    renewal = environs[1]
    assert closed[1].startswith("wheelcache-pages")
    assert {"gunicorn.socket", "wsgi.early_hints", "HTTP_COOKIE"}.isdisjoint(renewal)
    # So that a log of addresses does not fail.
    assert renewal["REMOTE_ADDR"] == "192.0.2.0"
    assert (renewal["wsgi.input"].read(), renewal["QUERY_STRING"], renewal["HTTP_HOST"]) == (b"", "a=b", "example.com")


def test_two_threads_renew_pages_for_which_64_renewals_wait_at_most(wsgi, clock, caplog):
    began, may_answer = [], threading.Event()
    targets = [f"/{number}" for number in range(67)]
    wsgi.respond = answering(STALE)
    for target in targets:
        wsgi.get_unchecked(target)
    clock.advance(60)

    def respond(request):
        began.append(request.path)
        assert may_answer.wait(PATIENCE)
        return Response()

    wsgi.respond = respond
    for number, target in enumerate(targets):
        wsgi.get_unchecked(target)
        assert until(lambda number=number: len(began) == min(number + 1, 2))
        assert ("Pages are not renewed" in caplog.text) == (number == 66)
    may_answer.set()
    settle()
    assert len(began) == 66
    # The last one is not given up for ever.
    wsgi.get_unchecked(targets[66])
    settle()
    assert len(began) == 67


def test_a_page_that_another_request_has_made_between_the_look_up_and_the_claim_is_used(wsgi, monkeypatch):
    begin = wsgi.cache.pages.turns.begin

    def begin_later(*args, **how):
        monkeypatch.undo()
        wsgi.get_unchecked()
        return begin(*args, **how)

    monkeypatch.setattr(wsgi.cache.pages.turns, "begin", begin_later)
    assert (wsgi.get_unchecked().detail, wsgi.runs) == ("hit; ttl=60", 1)


def test_an_application_that_requests_its_own_page_does_not_wait_for_itself(clock, closed):
    site = maker(WsgiSite, clock, closed)(wait=100 * PATIENCE)
    site.respond = lambda request: Response(b"inner" if site.runs > 1 else b"outer, " + site.get_unchecked().body)
    bodies = []
    join(start(lambda: bodies.append(site.get_unchecked().body)))
    assert bodies == [b"outer, inner"]
