"""A site of one cache, kept in the directory ``SNAPSHOTS``, for real servers: ``/set/key/value``, ``/get/key``."""

import os
from pathlib import Path

from wheelcache import Cache
from wheelcache.persistence.sigterm import exit_on_sigterm

cache = Cache(
    "site",
    snapshot_dir=Path(os.environ["SNAPSHOTS"]),
    snapshot_interval=float(os.environ.get("INTERVAL", "300")),
    log_interval=None,
)
exit_on_sigterm()


def answer(path):
    what, *args = path.strip("/").split("/")
    if what == "set":
        cache.set(*args)
    return str(cache.get(args[0]) if what == "get" else len(cache)).encode()


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer(environ["PATH_INFO"])]


async def asgi_application(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer(scope["path"])})
