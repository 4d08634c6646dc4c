"""FastAPI and Starlette behind the cache: they have no companion, and so only what HTTP says."""

import asyncio

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, StreamingResponse

from tests.pages.site import AsgiSite, maker
from tests.waiting import PATIENCE
from wheelcache.pages.local_requests import receive_of_nobody

FOR_A_MINUTE = {"Cache-Control": "max-age=60"}


async def dispatch(request, call_next):
    response = await call_next(request)
    response.headers["X-Seen"] = "yes"
    return response


@pytest.fixture(params=["FastAPI", "middleware inside", "middleware outside"])
def fastapi(request, clock, closed):
    """Return a site with ``runs``, the paths of the requests that have reached its views."""
    site, app = maker(AsgiSite, clock, closed)(), FastAPI() if request.param == "FastAPI" else Starlette()
    site.runs_of, site.may_go_on, site.kind = [], asyncio.Event(), request.param

    def page(request):
        site.runs_of.append(request.url.path)
        return JSONResponse({"name": request.query_params.get("name")}, headers=FOR_A_MINUTE)

    def stream(request):
        site.runs_of.append(request.url.path)

        async def body():
            yield b"first "
            await asyncio.wait_for(site.may_go_on.wait(), PATIENCE)
            yield b"second"

        return StreamingResponse(body(), headers=FOR_A_MINUTE)

    for view in (page, stream):
        app.add_route(f"/{view.__name__}", view)
    if request.param == "middleware inside":
        app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    site.app = site.cache.asgi(app)
    if request.param == "middleware outside":
        site.app = BaseHTTPMiddleware(site.app, dispatch=dispatch)
    return site


def test_a_page_is_made_once_for_a_hundred_requests(fastapi):
    first = fastapi.get("/page?name=a")
    assert (first.status, first.body, first.detail) == (200, b'{"name":"a"}', "fwd=miss; stored")
    again = fastapi.get("/page?name=a")
    assert (again.body, again["content-type"], again.detail) == (first.body, "application/json", "hit; ttl=60")
    assert again.headers.get("x-seen") == (None if fastapi.kind == "FastAPI" else "yes")

    async def together():
        return await asyncio.gather(*(fastapi.ask_async(*fastapi.parts("/page")) for _ in range(100)))

    assert {each.body for each in asyncio.run(together())} == {b'{"name":null}'}
    assert fastapi.runs_of == ["/page"] * 2


def test_a_stream_is_sent_piece_by_piece_and_stored_at_its_end(fastapi):
    async def send(message):
        if message.get("body") == b"first ":
            # Only now, so that a response that is collected first would never end.
            fastapi.may_go_on.set()

    asyncio.run(fastapi.app(fastapi.scope(*fastapi.parts("/stream")[:4]), receive_of_nobody(), send))
    assert fastapi.get("/stream").body == b"first second"
    assert fastapi.runs_of == ["/stream"]
