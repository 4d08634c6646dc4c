"""A Flask site for several workers: a cache that publishes its figures, and the dashboard.

Environment: ``SITE_FIGURES``, where to publish.
"""

import os
from contextlib import suppress

import flask
import flask_caching

from tests.watch.often import publish_often
from wheelcache.watch.flask_dashboard import dashboard

publish_often()
application = flask.Flask("pages")
options = {"figures_dir": os.environ["SITE_FIGURES"]}
application.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=options)
extension = flask_caching.Cache(application)
cache = application.extensions["cache"][extension].engine
application.register_blueprint(dashboard(lambda: {"operate"}))


@application.get("/use/<key>/<int:hits>/<int:misses>")
def use(key, hits, misses):
    cache.get_or_load(key, lambda: key)
    for _ in range(hits):
        cache.get(key)
    for _ in range(misses):
        cache.get("never set")
    return state()


@application.get("/fail")
def fail():
    with suppress(ZeroDivisionError):
        cache.get_or_load("failing", lambda: 1 / 0)
    return state()


@application.get("/")
def state():
    return {"pid": os.getpid(), "entries": len(cache)}
