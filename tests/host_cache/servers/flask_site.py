"""A Flask site whose workers share a HostCache, which has its sessions, views and the results of functions.

Environment: ``HOST_FOLDER``, with the entries, and the file ``runs``: a byte for each computation.
"""

import os
import secrets
from pathlib import Path

import flask

from tests.host_cache.servers.runs import note_run
from wheelcache.flask_backend import Cache

application = flask.Flask("site")
application.config.update(
    CACHE_TYPE="wheelcache.flask_backend.HostCache",
    CACHE_OPTIONS={
        "location": str(Path(os.environ["HOST_FOLDER"], "cache")),
        "figures_dir": None,
        "fill_wait": {"view/": 30},
    },
)
cache = Cache(application)


@application.get("/count")
def count():
    """Count in a session, as the session interface of CTFd does: the data is in the cache, under the cookie."""
    name = flask.request.cookies.get("sessionid") or secrets.token_hex(16)
    number = (cache.get(f"session:{name}") or 0) + 1
    cache.set(f"session:{name}", number)
    response = flask.jsonify(count=number, pid=os.getpid())
    response.set_cookie("sessionid", name)
    return response


@application.get("/page/<int:number>")
@cache.cached(timeout=600)
def page(number):
    return note_run(number)


@cache.memoize(600)
def computed(number):
    return note_run(number)


@application.get("/value/<int:number>")
def value(number):
    return computed(number)
