"""Code that reads a part of a request past its methods makes no page for other visitors, under WSGI and ASGI."""

import flask
import pytest
from asgiref.wsgi import WsgiToAsgi

from tests.pages.c_readers import READERS, assert_that_each_visitor_gets_the_own_theme, shown
from tests.pages.on_flask.test_pages import cache_on
from tests.pages.site import AsgiSite, WsgiSite, answer_of


def app_with(cache):
    app = flask.Flask(__name__)
    cache.init_app(app)

    @app.get("/shown/<part>/<how>")
    @cache.cached(60)
    def shown_part(part, how):
        return shown(part, how, lambda: flask.request.cookies if part == "cookies" else flask.request.environ)

    return app


class FlaskOnWsgi(WsgiSite):
    def __init__(self, cache):
        self.app = app_with(cache)

    def ask(self, *parts):
        return answer_of(self.app, self.environ(*parts))


class FlaskOnAsgi(AsgiSite):
    def __init__(self, cache):
        self.app = WsgiToAsgi(app_with(cache))


@pytest.mark.parametrize("site_class", [FlaskOnWsgi, FlaskOnAsgi])
@pytest.mark.parametrize(("part", "how"), READERS)
def test_code_that_reads_a_part_as_a_whole_makes_no_page_for_another_visitor(clock, closed, site_class, part, how):
    cache = cache_on(clock, figures_dir=None)
    site = site_class(cache)
    closed(cache.cache)
    assert_that_each_visitor_gets_the_own_theme(site, part, how)
