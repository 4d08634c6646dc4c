"""A Flask site for real servers and the ``flask`` command.

Environment: SITE_OPTIONS, those of the cache, as JSON.
"""

import json
import os

import flask
import flask_caching

from tests.backends.on_flask import OnFlask
from tests.engines import noted
from tests.servers.views import Views
from tests.watch.often import publish_often

GIVEN = json.loads(os.environ.get("SITE_OPTIONS", "{}"))

publish_often()
application = flask.Flask("site")
options = {"threshold" if option == "max_entries" else option: value for option, value in GIVEN.items()}
application.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_OPTIONS=options, CACHE_KEY_PREFIX="")
cache = flask_caching.Cache(application)
views = Views(OnFlask(noted(application.extensions["cache"][cache]), "site"))


@application.get("/page/<name>")
@cache.cached(timeout=600)
def page(name):
    return views.compute(name)


@application.get("/async/<name>")
@cache.cached(timeout=600)
async def async_page(name):
    return views.compute(name)


@cache.memoize(timeout=600)
def memoized(name):
    return views.compute(name)


@application.get("/memoized/<name>")
def calls_a_memoized_function(name):
    return memoized(name)


@application.get("/fails/<how>/<name>")
@cache.cached(timeout=600, response_filter=lambda response: isinstance(response, dict))
def fails(how, name):
    answer = views.fail(how, name)
    return ("not cached", 404) if answer is None else answer


@application.route("/<path:path>", methods=["GET", "POST"])
def answer(path):
    return views.answer(path, flask.request.args.to_dict())
