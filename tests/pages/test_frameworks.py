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
    return await call_next(request)


@pytest.fixture(params=["FastAPI", "middleware inside", "middleware outside"])
def site(request, clock, closed):
    site, app = maker(AsgiSite, clock, closed)(), FastAPI() if request.param == "FastAPI" else Starlette()
    site.add = app.add_route
    if request.param == "middleware inside":
        app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    site.app = site.cache.asgi(app)
    if request.param == "middleware outside":
        site.app = BaseHTTPMiddleware(site.app, dispatch=dispatch)
    return site


def test_a_page_is_made_once_for_a_hundred_requests(site):
    site.add("/page", lambda request: JSONResponse({"name": request.query_params["name"]}, headers=FOR_A_MINUTE))

    async def together():
        return await asyncio.gather(*(site.ask_async(*site.parts("/page?name=a")) for _ in range(100)))

    assert {each.body for each in asyncio.run(together())} == {b'{"name":"a"}'}
    assert (site.stats().stored, site.stats().collapsed) == (1, 99)
    hit = site.get("/page?name=a")
    assert (hit.body, hit["content-type"], hit.detail) == (b'{"name":"a"}', "application/json", "hit; ttl=60")


def test_a_stream_is_sent_piece_by_piece_and_stored_at_its_end(site):
    may_go_on = asyncio.Event()

    async def body():
        yield b"first "
        await asyncio.wait_for(may_go_on.wait(), PATIENCE)
        yield b"second"

    async def send(message):
        if message.get("body") == b"first ":
            # Only now, so that a response that is collected first would never end.
            may_go_on.set()

    site.add("/stream", lambda request: StreamingResponse(body(), headers=FOR_A_MINUTE))
    asyncio.run(site.app(site.scope(*site.parts("/stream")[:4]), receive_of_nobody(), send))
    stored = site.get("/stream")
    assert (stored.body, stored.detail) == (b"first second", "hit; ttl=60")
