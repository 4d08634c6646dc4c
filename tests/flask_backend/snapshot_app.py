"""A Flask app whose cache survives: for gunicorn, waitress (``python -m``) and the ``flask`` command."""

import json
import os
import sys

import flask
import flask_caching

app = flask.Flask("survivor")
app.config.from_mapping(
    CACHE_TYPE="wheelcache.flask_backend.WheelCache",
    CACHE_OPTIONS={"log_interval": None, **json.loads(os.environ.get("SNAPSHOT_OPTIONS", "{}"))},
)
cache = flask_caching.Cache(app)


@app.get("/pid")
def pid():
    return {"pid": os.getpid()}


@app.get("/set/<key>")
def set_one(key):
    cache.set(key, [flask.request.args["value"]])
    return {"pid": os.getpid()}


@app.get("/get/<key>")
def get(key):
    return {"value": cache.get(key)}


@app.get("/cached")
@cache.cached(timeout=600)
def cached():
    return {"computed by": os.getpid()}


@cache.memoize(timeout=600)
def square(number):
    return [number * number, os.getpid()]


@app.get("/memoized/<int:number>")
def memoized(number):
    return {"value": square(number)}


if __name__ == "__main__":
    from waitress import serve

    serve(app, host="127.0.0.1", port=int(sys.argv[1]))
