"""Applications for WSGI and ASGI with slow pages, behind an HTTPCache. Each worker counts its runs."""

import asyncio
import json
import os
import time

from wheelcache.pages import HTTPCache

SECONDS = float(os.environ["SLOW_SECONDS"])
"""That a slow page takes."""

CONTROL = {"/slow": "max-age=1, stale-while-revalidate=60"}
begun, ended = [], []


def answer(path):
    """Return the headers and the body of a page."""
    if path in CONTROL:
        ended.append(path)
    shown = {"/runs": len(ended), "/is-running": len(begun) > ended.count("/slow")}.get(path, path[1:])
    return [("content-type", "application/json"), ("cache-control", CONTROL.get(path, "no-store"))], json.dumps(shown)


def plain_wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/slow":
        begun.append(path)
        time.sleep(SECONDS)
    headers, body = answer(path)
    start_response("200 OK", headers)
    return [body.encode()]


async def plain_asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/slow":
        begun.append(path)
        await asyncio.sleep(SECONDS)
    headers, body = answer(path)
    fields = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body.encode()})


pages = HTTPCache()
wsgi, asgi = pages.wsgi(plain_wsgi), pages.asgi(plain_asgi)
