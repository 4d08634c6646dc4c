"""Applications for WSGI and ASGI whose pages show their user, behind an HTTPCache. Each worker counts its runs."""

import asyncio
import json
import os
import time

from tests.http_cache.users import respond
from wheelcache.http_cache import SEAM, HTTPCache

SECONDS = float(os.environ["SLOW_SECONDS"])
"""That a slow page takes."""

begun = []
runs = []


def answer(path, headers, notes):
    """The headers and the body of a page."""
    if path == "/pid":
        return {}, b"{}"
    if path == "/runs":
        return {}, json.dumps(len(runs)).encode()
    if path == "/is-running":
        return {}, json.dumps(len(begun) > runs.count("/slow")).encode()
    runs.append(path)
    if path.startswith("/slow"):
        return {"cache-control": "max-age=1, stale-while-revalidate=60"}, b'"slow"'
    headers, body = respond(path, headers, notes)
    return headers, json.dumps(body).encode()


def plain_wsgi(environ, start_response):
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
    path = environ["PATH_INFO"]
    if path.startswith("/slow"):
        begun.append(path)
        time.sleep(SECONDS)
    more, body = answer(path, headers, environ.get(SEAM))
    start_response("200 OK", [("Content-Type", "application/json"), *more.items()])
    return [body]


async def plain_asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    if scope["path"].startswith("/slow"):
        begun.append(scope["path"])
        await asyncio.sleep(SECONDS)
    more, body = answer(scope["path"], headers, scope.get(SEAM))
    fields = [
        (b"content-type", b"application/json"),
        *((name.encode(), value.encode()) for name, value in more.items()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


pages = HTTPCache()
wsgi, asgi = pages.wsgi(plain_wsgi), pages.asgi(plain_asgi)
