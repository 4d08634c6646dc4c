"""The pattern of a rule for a view matches the paths of the view."""

import pytest

from wheelcache.pages.patterns import covers, pattern_of

ROUTES = [
    ("", "/", "/"),
    ("blog/<int:year>/", "/blog/2020/", "/blog/*/"),
    ("catalogue/<slug:name>_<int:pk>/", "/catalogue/chair_1/", "/catalogue/*_*/"),
    ("/users/<path:rest>", "/users/a/b", "/users/*"),
    (r"^feed\.xml$", "/feed.xml", "/feed.xml"),
    (r"^(?P<slug>[0-9A-Za-z-_.//]+)/$", "/a/b/", "/*/"),
    (r"^((?:[\w\-]+/)*)$", "/a/b/", "/*"),
    (r"en/^$", "/en/", "/en/"),
    (r"blog/^(?P<year>\d{4})/(?P<month>[0-9]+)/$", "/blog/2020/12/", "/blog/*/*/"),
    (r"t/<slug>/^page-(?P<page>\d+)/$", "/t/a/page-2/", "/t/*/page-*/"),
    (r"^a/?$", "/a", "/a*"),
    # An unusual route.
    (r"^(?i:About)$", "/about-us", "/*"),
    (r"^About$", "/about", "/about"),
]


@pytest.mark.parametrize(("route", "path", "pattern"), ROUTES)
def test_a_route_becomes_a_pattern_that_matches_its_paths(route, path, pattern):
    assert pattern_of(route, "", path) == pattern
    assert pattern_of(route, "/shop", f"/shop{path}") == f"/shop{pattern}"


def test_a_general_pattern_covers_a_narrower_one():
    assert covers("/en/*", "/en/blog/*/")
    assert not covers("/*/", "/a/*")
    assert covers("/a*b", "/a*b")
