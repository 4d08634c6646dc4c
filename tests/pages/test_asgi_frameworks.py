"""FastAPI and Starlette behind the cache, with Starlette's BaseHTTPMiddleware inside or outside of it, or without."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, WebSocketRoute

from tests.pages.site import AsgiSite
from tests.waiting import PATIENCE

pytestmark = pytest.mark.pairs(full="framework", of="framework")

FOR_A_MINUTE = {"Cache-Control": "max-age=60"}


class Application:
    """The behavior of the endpoints of both frameworks.

    Attributes:
        runs: the paths of the requests that reached them.
        may_go_on: a stream waits for it after its first piece, and a background task waits for it.
        finished: the background tasks that have ended.
    """

    def __init__(self):
        self.runs = []
        self.finished = []
        self.may_go_on = asyncio.Event()

    def page(self, request):
        self.runs.append(request.url.path)
        return JSONResponse({"name": request.query_params.get("name")}, headers=FOR_A_MINUTE)

    def stream(self, request):
        self.runs.append(request.url.path)

        async def body():
            yield b"first "
            await asyncio.wait_for(self.may_go_on.wait(), PATIENCE)
            yield b"second"

        return StreamingResponse(body(), headers=FOR_A_MINUTE)

    def background(self, request):
        self.runs.append(request.url.path)
        return JSONResponse("sent", headers=FOR_A_MINUTE, background=BackgroundTask(self.work))

    async def work(self):
        await asyncio.wait_for(self.may_go_on.wait(), PATIENCE)
        self.finished.append("work")

    def failure(self, request):
        self.runs.append(request.url.path)
        raise ArithmeticError("the view failed")

    def add_to(self, app):
        for view in (self.page, self.stream, self.background, self.failure):
            app.add_route(f"/{view.__name__}", view)
        return app


def fastapi_app(endpoints):
    app = endpoints.add_to(FastAPI())

    @app.get("/item/{number}")
    async def item(number: int):
        endpoints.runs.append("/item")
        return {"number": number}

    return app


FRAMEWORKS = {
    "FastAPI": fastapi_app,
    "Starlette": lambda endpoints: endpoints.add_to(Starlette()),
    "a mounted Starlette": lambda endpoints: Starlette(routes=[Mount("/", endpoints.add_to(Starlette()))]),
}


async def dispatch(request, call_next):
    response = await call_next(request)
    response.headers["X-Seen"] = "yes"
    return response


class Middleware(BaseHTTPMiddleware):
    def __init__(self, app):
        super().__init__(app, dispatch)


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return FRAMEWORKS[request.param]


@pytest.fixture(params=["no middleware", "middleware inside", "middleware outside"])
def site(request, framework, clock, closed):
    """Return a site with ``endpoints``. Its event loop is one for all requests of a test."""
    site = AsgiSite(clock)
    site.endpoints = Application()
    app = framework(site.endpoints)
    if request.param == "middleware inside":
        app.add_middleware(Middleware)
    site.app = site.cache.asgi(app)
    if request.param == "middleware outside":
        site.app = Middleware(site.app)
    site.shows_middleware = None if request.param == "no middleware" else "yes"
    closed(site.cache.cache)
    return site


def test_a_page_is_made_once(site):
    first = site.get("/page?name=a")
    assert (first.status, first.body, first.detail) == (200, b'{"name":"a"}', "fwd=miss; stored")
    again = site.get("/page?name=a")
    assert (again.status, again.body, again["content-type"]) == (200, b'{"name":"a"}', "application/json")
    assert again.detail == "hit; ttl=60"
    assert again.headers.get("x-seen") == site.shows_middleware
    assert site.get("/page?name=b").body == b'{"name":"b"}'
    assert site.endpoints.runs == ["/page"] * 2


def test_a_hundred_requests_together_cause_one_run(site):
    answers = site.get_together([("/page",)] * 100)
    assert {answer.body for answer in answers} == {b'{"name":null}'}
    assert site.endpoints.runs == ["/page"]


def test_a_stream_is_sent_piece_by_piece_and_stored_at_its_end(site):
    received = []

    async def main():
        async def send(message):
            received.append(message.get("body"))
            if message.get("body") == b"first ":
                # Only now, so that a response that is collected first would never end.
                site.endpoints.may_go_on.set()

        await site.app(site.scope(*site.parts("/stream")[:4]), nobody, send)

    asyncio.run(main())
    assert b"".join(filter(None, received)) == b"first second"
    assert site.get("/stream").body == b"first second"
    assert site.endpoints.runs == ["/stream"]


def test_a_background_task_runs_and_no_request_for_the_page_waits_for_it(site):
    async def main():
        leader = asyncio.create_task(site.ask_async(*site.parts("/background")))
        followers = [asyncio.create_task(site.ask_async(*site.parts("/background"))) for _ in range(3)]
        answers = await asyncio.wait_for(asyncio.gather(*followers), PATIENCE)
        assert {answer.body for answer in answers} == {b'"sent"'}
        assert site.endpoints.finished == []
        site.endpoints.may_go_on.set()
        await asyncio.wait_for(leader, PATIENCE)

    asyncio.run(main())
    assert site.endpoints.finished == ["work"]
    assert site.endpoints.runs == ["/background"]


def test_an_exception_of_a_view_reaches_the_server_and_no_later_request(site):
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="the view failed"):
            site.get("/failure")
    assert site.endpoints.runs == ["/failure"] * 2
    assert site.stats().stored == 0


# A middleware outside of the cache ends the application's run, as it ends that of any application.
@pytest.mark.pairs(full="framework", of="framework, spec_version")
@pytest.mark.parametrize("site", ["no middleware", "middleware inside"], indirect=True)
@pytest.mark.parametrize("spec_version", ["2.0", "2.4"])
def test_a_client_that_disconnects_does_not_keep_a_stream_from_being_stored(site, spec_version):
    async def main():
        messages = [{"type": "http.request", "body": b"", "more_body": False}]
        has_left = asyncio.Event()

        async def receive():
            if not messages:
                await has_left.wait()
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message):
            if message.get("body"):
                site.endpoints.may_go_on.set()
                has_left.set()
                raise OSError("the client has left")

        scope = {**site.scope(*site.parts("/stream")[:4]), "asgi": {"version": "3.0", "spec_version": spec_version}}
        await site.app(scope, receive, send)

    asyncio.run(main())
    assert site.get("/stream").body == b"first second"
    assert site.endpoints.runs == ["/stream"]


def test_a_response_without_a_lifetime_is_not_stored(clock):
    site = AsgiSite(clock)
    site.endpoints = Application()
    site.app = site.cache.asgi(fastapi_app(site.endpoints))
    for _ in range(2):
        assert site.get("/item/7").body == b'{"number":7}'
    assert site.get("/item/none").status == 422
    assert site.endpoints.runs == ["/item"] * 2


def test_the_lifespan_and_websockets_reach_the_framework(clock):
    events = []

    @asynccontextmanager
    async def lifespan(app):
        events.append("started")
        yield
        events.append("stopped")

    async def echo(websocket):
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    site = AsgiSite(clock)
    app = site.cache.asgi(Starlette(lifespan=lifespan, routes=[WebSocketRoute("/echo", echo)]))

    def talk(scope, *messages):
        incoming, sent = [*reversed(messages)], []

        async def receive():
            return incoming.pop()

        async def send(message):
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        return sent

    talk({"type": "lifespan"}, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    assert events == ["started", "stopped"]
    scope = {**site.scope(*site.parts("/echo")[:4]), "type": "websocket"}
    sent = talk(scope, {"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"})
    assert sent[1] == {"type": "websocket.send", "text": "hello"}


async def nobody():
    """Receive as from a client that has sent its request, and stays."""
    return await asyncio.get_running_loop().create_future()
