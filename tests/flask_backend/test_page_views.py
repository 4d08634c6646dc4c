"""The figures by view of a Flask app with a client, for Flask-Caching's ``Cache`` and for ours."""

from collections import Counter

import flask
import flask_caching
import pytest
from werkzeug.exceptions import NotFound

from wheelcache import flask_backend
from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

KINDS = {"ours": flask_backend.Cache, "theirs": flask_caching.Cache}


class Site:
    def __init__(self, kind, backend="wheelcache.flask_backend.WheelCache"):
        app = flask.Flask("views")
        app.config.update(CACHE_TYPE=backend)
        self.cache = KINDS[kind]()
        self.cache.init_app(app)
        self.app = app
        self.client = app.test_client()
        self.runs = Counter()

    def add(self, name, answer=lambda: "page", path=None, **options):
        def view():
            self.runs[name] += 1
            return answer()

        self.app.add_url_rule(path or f"/{name}", name, self.cache.cached(60, **options)(view))

    def get(self, *targets):
        for target in targets:
            self.client.get(target)

    def rows(self):
        """Return hits, misses, puts and loads by view, after a check of the sums."""
        stats = self.app.extensions["cache"][self.cache].engine.stats()
        groups = stats.groups
        assert sum(each.hits for each in groups.values()) == stats.hits
        assert sum(each.misses for each in groups.values()) == stats.misses
        assert sum(each.puts for each in groups.values()) == stats.puts
        assert sum(each.loads for each in groups.values()) == stats.loads + stats.load_failures
        return {name: (each.hits, each.misses, each.puts, each.loads) for name, each in groups.items() if name}


@pytest.fixture(params=KINDS)
def site(request):
    return Site(request.param)


def fail():
    raise ValueError("broken")


def missing():
    raise NotFound


def test_pages_are_counted_for_their_endpoint(site):
    site.add("news")
    site.add("broken", fail)
    site.add("private", response_filter=lambda response: False)
    site.get("/news", "/news", "/news", "/private", "/private", "/unknown", "/broken")
    assert site.runs == {"news": 1, "private": 2, "broken": 1}
    found = {name: row[:3] for name, row in site.rows().items()}
    assert found == {"news": (2, 1, 1), "private": (0, 2, 0), "broken": (0, 1, 0)}
    assert site.rows()["news"][3] == 1


def test_a_page_that_is_an_exception_belongs_to_its_view(site):
    site.add("gone", missing)
    site.get("/gone", "/gone")
    assert site.rows() == {"gone": (1, 1, 1, 1)}


def test_without_a_request_there_is_no_view(site):
    site.add("news")
    site.get("/news")
    with site.app.app_context():
        assert site.cache.get("view//other") is None
        site.cache.set("view//other", "page")
        site.cache.set("other", 1)
    assert site.rows() == {"news": (0, 1, 1, 1), NO_VIEW: (0, 1, 1, 1)}


def test_a_request_within_a_request_leaves_the_outer_view(site):
    def outer():
        site.app.test_client().get("/inner")
        return "page"

    site.add("outer", outer)
    site.add("inner")
    site.get("/outer", "/outer")
    assert site.rows() == {"outer": (1, 1, 1, 1), "inner": (0, 1, 1, 1)}


@pytest.mark.parametrize("options", [{"query_string": True}, {"key_prefix": "all"}])
def test_our_cache_knows_views_by_any_key(options):
    site = Site("ours")
    site.add("news", **options)
    site.get("/news?page=1", "/news?page=1")
    assert site.rows() == {"news": (1, 1, 1, 1)}


def test_a_cached_function_that_is_no_view_is_counted_by_its_key():
    site = Site("ours")

    @site.cache.cached(60, key_prefix="menu:all")
    def menu():
        return "menu"

    site.add("news", menu)
    site.get("/news", "/news")
    assert site.rows() == {"news": (1, 1, 1, 1), "menu": (0, 1, 1, 1)}
