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
    def __init__(self, kind):
        self.app = flask.Flask("views")
        self.app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache")
        self.cache = KINDS[kind](self.app)
        self.runs = Counter()

    def add(self, name, answer=lambda: "page", **options):
        def view():
            self.runs[name] += 1
            return answer()

        self.app.add_url_rule(f"/{name}", name, self.cache.cached(60, **options)(view))

    def get(self, *targets):
        for target in targets:
            self.app.test_client().get(target)

    def rows(self):
        """Return hits, misses, puts and loads by view, after a check of the sums."""
        stats = self.app.extensions["cache"][self.cache].engine.stats()
        rows = {name: (each.hits, each.misses, each.puts, each.loads) for name, each in stats.groups.items()}
        sums = (stats.hits, stats.misses, stats.puts, stats.loads + stats.load_failures)
        assert tuple(map(sum, zip(*rows.values(), strict=True))) == sums
        return {name: row for name, row in rows.items() if name}


@pytest.fixture(params=KINDS)
def site(request):
    return Site(request.param)


def fail(error):
    raise error


def test_pages_are_counted_for_their_endpoint_and_so_are_exceptions_that_are_pages(site):
    site.add("news")
    site.add("broken", lambda: fail(ValueError("broken")))
    site.add("private", response_filter=lambda response: False)
    site.add("gone", lambda: fail(NotFound()))
    site.get("/news", "/news", "/news", "/private", "/private", "/unknown", "/broken", "/gone", "/gone")
    assert site.runs == {"news": 1, "private": 2, "broken": 1, "gone": 1}
    found = site.rows()
    assert {name: row[:3] for name, row in found.items()} == {
        "news": (2, 1, 1),
        "private": (0, 2, 0),
        "broken": (0, 1, 0),
        "gone": (1, 1, 1),
    }
    assert (found["news"][3], found["gone"][3]) == (1, 1)


def test_after_a_request_within_a_request_the_pages_count_for_the_outer_view(site):
    site.add("inner")
    site.add("outer", lambda: site.get("/inner") or f"{site.cache.get('view//another')}")
    site.get("/outer")
    assert {name: row[:3] for name, row in site.rows().items()} == {"inner": (0, 1, 1), "outer": (0, 2, 1)}


def test_without_a_request_there_is_no_view(site):
    site.add("news")
    site.get("/news")
    with site.app.app_context():
        assert site.cache.get("view//other") is None
        site.cache.set("view//other", "page")
        site.cache.set("other", 1)
    assert site.rows() == {"news": (0, 1, 1, 1), NO_VIEW: (0, 1, 1, 1)}
