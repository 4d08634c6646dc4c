"""A Flask app whose pages are stored or not, for reasons that ``flask wheelcache why`` explains."""

import os
from pathlib import Path

import flask

from wheelcache.flask_backend import HTTPCache

pages = HTTPCache(figures_dir=Path(os.environ["WHY_FIGURES"]), cache_status=False, fail_safe=5)


def create_app(is_wrapped=True):
    app = flask.Flask(__name__)
    app.secret_key = "not secret"

    @app.before_request
    def log_access():
        if "logged" in flask.request.path:
            flask.request.headers.get("User-Agent")

    @app.get("/address")
    @pages.cached(60)
    def address():
        return flask.request.remote_addr

    @app.get("/themed")
    @pages.cached(60)
    def themed():
        return flask.render_template_string("<p>\n{{ request.cookies.theme }}</p>")

    @app.get("/plain")
    @app.get("/logged")
    @pages.cached(60)
    def plain():
        return flask.request.args.get("page", "1")

    @app.get("/counted")
    @pages.cached(60)
    def counted():
        flask.session["visits"] = 1
        response = flask.make_response("1")
        response.set_cookie("seen", "1")
        return response

    @app.get("/hidden")
    @pages.cached(60)
    def hidden():
        """A read that no companion can notice."""
        environ = vars(flask.request._get_current_object())["environ"]
        return f"<p>Hello</p>\n<p>{dict.get(environ, 'HTTP_COOKIE', 'you')}</p>"

    @app.get("/now")
    def now():
        return "now"

    @app.get("/broken")
    def broken():
        raise ZeroDivisionError("in a view")

    @app.get("/broken-stream")
    def broken_stream():
        def body():
            yield "a"
            raise ZeroDivisionError("in a stream")

        return flask.Response(body())

    if is_wrapped:
        pages.init_app(app)
    return app


def unwrapped():
    return create_app(is_wrapped=False)
