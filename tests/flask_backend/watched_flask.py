"""A small Flask app for gunicorn and the ``flask`` command, made by a factory; and others that are no use to it."""

import os

import flask
import flask_caching


def create_app(backend="wheelcache.flask_backend.WheelCache"):
    app = flask.Flask("watched")
    app.config.from_mapping(CACHE_TYPE=backend)
    if "wheelcache" in backend:
        app.config["CACHE_OPTIONS"] = {"log_interval": None, "figures_dir": os.environ["WATCHED_FIGURES"]}
    cache = flask_caching.Cache(app)

    @app.get("/")
    def home():
        return str(os.getpid())

    @app.get("/ask")
    def ask():
        cache.set("there", 1)
        for _ in range(int(flask.request.args["hits"])):
            cache.get("there")
        for _ in range(int(flask.request.args["misses"])):
            cache.get("not there")
        return str(os.getpid())

    return app


def without_ours():
    return create_app("SimpleCache")


def without_any():
    return flask.Flask("bare")
