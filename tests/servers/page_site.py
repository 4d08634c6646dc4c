"""Applications for WSGI and ASGI whose pages show their user, behind an HTTPCache. Each worker counts its runs."""

import asyncio
import json
import os
import time

from tests.pages.users import respond
from wheelcache.pages import NOTES_KEY, HTTPCache

SECONDS = float(os.environ["SLOW_SECONDS"])
"""That a slow page takes."""

LARGE = b"x" * 2**24
"""More than the operating system keeps for a client that does not read."""

begun = []
runs = []


def answer(path, headers, notes):
    """The headers and the body of a page."""
    more, shown = {}, {}
    if path == "/runs":
        shown = len(runs)
    elif path == "/is-running":
        shown = len(begun) > runs.count("/slow")
    elif path != "/pid":
        runs.append(path)
        if path.startswith("/slow"):
            more, shown = {"cache-control": "max-age=1, stale-while-revalidate=60"}, "slow"
        else:
            more, shown = respond(path, headers, notes)
    body = json.dumps(shown).encode()
    return {"content-type": "application/json", "content-length": str(len(body)), **more}, body


def plain_wsgi(environ, start_response):
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
    path = environ["PATH_INFO"]
    if path.startswith("/slow"):
        begun.append(path)
        time.sleep(SECONDS)
    sent, body = answer(path, headers, environ.get(NOTES_KEY))
    start_response("200 OK", [*sent.items()])
    return [body]


async def plain_asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    if scope["path"].startswith("/slow"):
        begun.append(scope["path"])
        await asyncio.sleep(SECONDS)
    if scope["path"].startswith("/large"):
        runs.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")]})
        await send({"type": "http.response.body", "body": b'"', "more_body": True})
        for first in range(0, len(LARGE), 2**16):
            await send({"type": "http.response.body", "body": LARGE[first : first + 2**16], "more_body": True})
        await send({"type": "http.response.body", "body": b'"'})
        return
    sent, body = answer(scope["path"], headers, scope.get(NOTES_KEY))
    fields = [(name.encode(), value.encode()) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


pages = HTTPCache(max_body=32 << 20)
wsgi, asgi = pages.wsgi(plain_wsgi), pages.asgi(plain_asgi)
