"""``@cached`` of ``wheelcache.flask_backend.Cache``: its behavior beyond Flask-Caching's own.

Flask-Caching's own tests run on it in ``tests/conformance``.
"""

import flask
import flask_caching
from werkzeug.exceptions import NotFound
from werkzeug.routing import RequestRedirect

from tests.caches import is_leased
from tests.engines import engine
from tests.flask_backend.slow import Slow
from tests.guests import needs
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache.flask_backend import Cache


def test_a_view_runs_once_for_all_visitors_who_miss_it_together(any_site, in_thread):
    app, cache, _ = any_site
    slow = Slow()
    app.add_url_rule("/<name>", "page", cache.cached(60)(lambda name: slow()))
    leader = in_thread(lambda: app.test_client().get("/a").text)
    assert until(lambda: slow.count == 1)
    waiters = [in_thread(lambda: app.test_client().get("/a").text) for _ in range(7)]
    until_waiting(7)
    slow.may_return.set()
    assert [each.result(PATIENCE) for each in (leader, *waiters)] == ["value 1"] * 8
    assert [app.test_client().get(path).text for path in ("/a", "/b")] == ["value 1", "value 2"]


def test_an_http_exception_reaches_the_visitors_who_waited(any_site, in_thread):
    app, cache, _ = any_site
    slow = Slow(lambda number: NotFound(f"gone {number}"))
    app.add_url_rule("/a", "page", cache.cached(60)(lambda: slow()))
    leader = in_thread(lambda: app.test_client().get("/a"))
    assert until(lambda: slow.count == 1)
    waiter = in_thread(lambda: app.test_client().get("/a"))
    until_waiting()
    slow.may_return.set()
    answers = [leader.result(PATIENCE), waiter.result(PATIENCE), app.test_client().get("/a")]
    assert {(answer.status_code, "gone 1" in answer.text) for answer in answers} == {(404, True)}


def test_a_response_may_have_a_timeout_of_its_own(make_app, clock):
    app, cache = make_app(Cache())
    runs = []

    def page():
        runs.append(1)
        return flask_caching.CachedResponse(flask.make_response(str(len(runs))), timeout=10)

    app.add_url_rule("/", "page", cache.cached(60)(page))
    read = lambda: app.test_client().get("/").text  # noqa: E731
    assert [read(), read()] == ["1", "1"]
    clock.advance(10)
    assert read() == "2"


def test_a_response_filter_receives_the_response_of_an_http_exception(site):
    app, cache, _ = site
    runs = []

    @app.route("/<int:status>")
    @cache.cached(60, response_filter=lambda response: response.status_code == 404)
    def page(status):
        runs.append(status)
        flask.abort(status)

    assert [app.test_client().get(f"/{status}").status_code for status in (404, 404, 403, 403)] == [404, 404, 403, 403]
    assert runs == [404, 403, 403]


def test_a_hit_is_shown_if_asked_for(site):
    app, cache, _ = site
    app.add_url_rule("/", "page", cache.cached(60, response_hit_indication=True)(lambda: "page"))
    assert [app.test_client().get("/").headers.get("hit_cache") for _ in range(3)] == [None, "True", "True"]


@needs("fill_waits")
def test_a_lease_is_neither_needed_nor_taken(make_app):
    app, cache = make_app(Cache(), CACHE_OPTIONS={"fill_wait": 1000})
    app.add_url_rule("/", "page", cache.cached(60, response_filter=lambda page: False)(lambda: "page"))
    with app.app_context():
        assert app.test_client().get("/").text == "page"
        load = cache.memoize(60)(lambda: None)
        load()
        keys = ["flask_cache_view//", f"flask_cache_{load.make_cache_key(load.uncached)}"]
        assert not any(is_leased(engine(cache.cache), key) for key in keys)


def test_visitors_who_wait_for_what_cannot_be_unpickled_get_what_they_would_get_without_the_cache(any_site, in_thread):
    """A ``RequestRedirect`` of werkzeug can be pickled, and raises a TypeError when it is unpickled."""
    app, cache, _ = any_site
    slow = Slow(lambda number: RequestRedirect("/new"))
    app.add_url_rule("/", "page", cache.cached(60)(lambda: slow()))
    visits = [in_thread(lambda: app.test_client().get("/"))]
    assert until(lambda: slow.count == 1)
    visits += [in_thread(lambda: app.test_client().get("/")) for _ in range(3)]
    until_waiting(3)
    slow.may_return.set()
    answers = [*(each.result(PATIENCE) for each in visits), app.test_client().get("/")]
    assert [(answer.status_code, answer.headers.get("Location")) for answer in answers] == [(308, "/new")] * 5
    assert slow.count == 5
