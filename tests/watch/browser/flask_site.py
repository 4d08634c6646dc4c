"""A Flask app whose visitors log in with a key, for a browser. Environment: ``BROWSER_TEST_DIRECTORY``."""

import os
from contextlib import suppress
from pathlib import Path

import flask
import flask_caching

from tests.engines import engine, noted
from tests.watch.browser import traffic
from tests.watch.often import publish_often
from wheelcache.watch.flask_dashboard import dashboard

LOGIN = """<title>Log in</title><form method="post"><input name="username"><input name="password"><button>Go</button>"""

publish_often()
application = flask.Flask(__name__)
application.config.from_mapping(
    SECRET_KEY="not secret",
    CACHE_TYPE="wheelcache.flask_backend.WheelCache",
    CACHE_OPTIONS={
        "name": "atlas",
        "figures_dir": Path(os.environ["BROWSER_TEST_DIRECTORY"]) / "figures",
    },
)
cache = flask_caching.Cache(application)
backend = noted(application.extensions["cache"][cache])


def guard():
    by_user = {"inspector": {"inspect", "operate"}, "operator": {"operate"}, "viewer": {"view_figures"}}
    return by_user.get(flask.session.get("user")) or flask.redirect(flask.url_for("login"))


application.register_blueprint(dashboard(guard, user=lambda: flask.session["user"]))


@application.route("/login", methods=["GET", "POST"])
def login():
    if flask.request.form.get("password") != "secret":
        return LOGIN
    flask.session["user"] = flask.request.form["username"]
    return flask.redirect(flask.url_for("wheelcache.page"))


@application.get("/visit")
def visit():
    traffic.visit(lambda key, load: backend.get_or_load(key, load, 120))
    return state()


@application.get("/fail")
def fail():
    with suppress(ZeroDivisionError):
        backend.get_or_load("failing", lambda: 1 / 0)
    return state()


@application.get("/state")
def state():
    return {"pid": os.getpid(), "entries": len(engine(backend))}
