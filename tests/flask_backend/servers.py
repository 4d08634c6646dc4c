"""A Flask site on waitress: ``python -m tests.flask_backend.servers <port> <fill_wait as JSON>``.

What it caches is slow to compute, counts how often it is, and fails when told to.
"""

import json
import sys
import threading
import time
from collections import Counter

import flask
import flask_caching
from waitress import serve

THREADS = 32
SLOW = 0.2
"""Seconds that computing takes."""

app = flask.Flask(__name__)
cache = flask_caching.Cache()
runs = Counter()
lock = threading.Lock()
released = threading.Event()


class Boom(Exception):
    pass


def run_of(name):
    """Which run of ``name`` this is, from 1."""
    with lock:
        runs[name] += 1
        return runs[name]


@app.before_request
def start():
    flask.g.started = time.perf_counter()


@app.after_request
def stamp(response):
    response.headers["X-Seconds"] = str(time.perf_counter() - flask.g.started)
    return response


@app.get("/cached/<name>")
@cache.cached(timeout=600)
def cached(name):
    run = run_of(name)
    time.sleep(SLOW)
    return {"run": run}


@app.get("/async/<name>")
@cache.cached(timeout=600)
async def cached_async(name):
    return cached.uncached(name)


@cache.memoize(timeout=600)
def memoized(name):
    run = run_of(name)
    time.sleep(SLOW)
    return {"run": run}


@app.get("/memoized/<name>")
def calls_a_memoized_function(name):
    return memoized(name)


def is_right(response):
    return isinstance(response, dict)


@app.get("/fails/<how>/<name>")
@cache.cached(timeout=600, response_filter=is_right, unless=lambda: "bypass" in flask.request.args)
def fails(how, name):
    """Its first run fails when it is released. ``broken`` always does."""
    run = run_of(name)
    if how == "broken":
        time.sleep(SLOW)
        raise Boom
    if run > 1:
        time.sleep(SLOW)
        return {"run": run}
    assert released.wait(30)
    if how == "raises":
        raise Boom
    return "not cached", 503


@app.post("/runs/<name>")
def runs_of(name):
    return {"runs": runs[name]}


def engine():
    return app.extensions["cache"][cache]._cache


@app.post("/waiting")
def waiting():
    """How many wait for somebody to fill."""
    return {"waiting": sum(len(lease.waiters) for lease in list(engine()._leases.in_force.values()))}


@app.post("/expire")
def expire():
    """The time of every entry comes, and all stay in memory."""
    keys = engine().keys()
    for key in keys:
        engine().touch(key, 0.001)
    time.sleep(0.01)
    return {"expired": len(keys)}


@app.post("/hold")
def hold():
    released.clear()
    return {}


@app.post("/release")
def release():
    """What hangs goes on."""
    released.set()
    return {}


if __name__ == "__main__":
    port, fill_wait = sys.argv[1:]
    app.config.update(
        CACHE_TYPE="wheelcache.flask_backend.WheelCache",
        # What expired stays in memory for a minute: reads have to see that it did.
        CACHE_OPTIONS={"interval": 60, "jitter": 0, "log_interval": None, "fill_wait": json.loads(fill_wait)},
    )
    cache.init_app(app)
    # Of connections waitress takes 100 at a time, as it comes.
    serve(app, host="127.0.0.1", port=int(port), threads=THREADS, connection_limit=400)
