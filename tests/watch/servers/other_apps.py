"""Flask apps that the ``wheelcache`` command is no use to."""

import flask


def without_any():
    return flask.Flask("bare")


def without_ours():
    import flask_caching

    app = flask.Flask("theirs")
    flask_caching.Cache(app, config={"CACHE_TYPE": "SimpleCache"})
    return app
