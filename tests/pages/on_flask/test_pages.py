"""A Flask app behind an HTTP cache: the rules that no companion of another framework has."""

import flask
import pytest
from flask_wtf import CSRFProtect
from werkzeug.exceptions import NotFound

from tests.pages.site import is_stored
from wheelcache.flask_backend import HTTPCache
from wheelcache.flask_backend.app_contexts import figures_directory
from wheelcache.pages import ttl


async def asynchronous(request):
    return "page"


def by_hand(request):
    response = flask.make_response("page")
    response.cache_control.max_age = 60
    return response


@pytest.mark.parametrize("view", [lambda request: "page", asynchronous])
def test_a_page_with_a_lifetime_is_made_once(site, clock, view):
    site.add("/cached", view)
    page = site.get("/cached")
    assert page["cache-control"] == "max-age=60"
    clock.advance(59)
    assert site.get("/cached").body == page.body
    clock.advance(1)
    assert site.get("/cached").body != page.body


def test_a_response_with_a_cache_control_of_its_own_keeps_it(site):
    site.add("/by-hand", by_hand, 600)
    site.add("/own", lambda request: flask.Response("page", headers={"Cache-Control": "no-store"}))
    assert [site.get("/by-hand")["cache-control"] for _ in range(2)] == ["max-age=60"] * 2
    assert site.get("/own")["cache-control"] == "no-store"
    assert not site.get("/own").detail.startswith("hit")


@pytest.mark.parametrize("seconds", [0, -1, "60", None])
def test_the_lifetime_must_be_a_number_of_seconds(site, seconds):
    with pytest.raises((TypeError, ValueError), match="seconds must be"):
        site.cache.cached(seconds)


def test_the_figures_of_a_cache_are_in_the_directory_of_its_app(closed):
    cache, app = HTTPCache(), flask.Flask(__name__)
    cache.init_app(app)
    closed(cache.cache)
    assert cache.pages.options.figures_dir == figures_directory(app)


def test_a_second_app_has_the_same_cache_and_the_functions_around_its_views_may_add_tags(site):
    site.add("/first", lambda request: "page")
    assert [site.get("/first").detail[:3] for _ in range(2)] == ["fwd", "hit"]
    second = flask.Flask(__name__)
    second.before_request(lambda: flask.g.cache_tags.add("before"))
    second.after_request(lambda response: setattr(flask.g, "cache_tags", flask.g.cache_tags | {"after"}) or response)
    second.get("/second")(site.cache.cached(60)(lambda: "page"))
    site.cache.init_app(second)
    site.cache.purge_all()
    assert site.get("/first").detail.startswith("fwd")
    site.app = second
    for tag in ("before", "after"):
        assert [site.get("/second").detail[:3] for _ in range(2)] == ["fwd", "hit"]
        site.cache.delete_tags(tag)
    assert site.get("/second").detail.startswith("fwd")


# Errors, for which Werkzeug passes on the environ.


class Strange(NotFound):
    """An error that shows a part of the request."""

    def get_body(self, environ=None, scope=None):
        return environ.get("HTTP_X_FLAVOR", "none")


def fail(error):
    raise error


def shows_flavor(environ, start_response):
    start_response("404 Not Found", [])
    return [environ.get("HTTP_X_FLAVOR", "none").encode()]


ERRORS = {
    "strange": lambda: fail(Strange()),
    "given": lambda: fail(NotFound(response=shows_flavor)),
    "application": lambda: shows_flavor,
}


def test_errors_of_werkzeug_are_stored_and_those_of_the_app_reach_nobody_else(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.flask.add_url_rule("/error/<how>", "error", lambda how: ERRORS[how]())
    site.flask.add_url_rule("/slash/", "slash", lambda: "page")
    for target in ("/missing", "/slash"):
        assert [site.get(target, {"X-Flavor": str(number)}).detail[:3] for number in range(2)] == ["fwd", "hit"]
    for how in ERRORS:
        assert b"evil" in site.get(f"/error/{how}", {"X-Flavor": "evil"}).body
        assert b"none" in site.get(f"/error/{how}").body


def test_a_token_of_flask_wtf_is_named_as_the_reason_for_its_cookie(site):
    CSRFProtect(site.flask)
    site.add("/form", lambda request: flask.render_template_string("{{ csrf_token() }}"))
    assert site.get("/form").detail == 'fwd=miss; detail="CSRF token of Flask-WTF in the session"'


def test_code_whose_reads_do_not_count_leaves_no_address_in_the_request(make_site):
    """Werkzeug caches it. A view would not read what the code has read before."""
    site = make_site(ignore_reads_by=[f"{__name__}.log"])
    site.flask.before_request(log)
    site.add("/agent", lambda request: request.user_agent.string)
    site.add("/route", lambda request: request.access_route)
    for browser in ("a", "b") * 2:
        assert site.get("/agent", {"User-Agent": browser}).body.startswith(browser.encode())
    assert not is_stored(site, "/route")


def log():
    assert flask.request.user_agent.string is not None
    assert flask.request.access_route
