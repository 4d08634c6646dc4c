"""The options of ``HTTPCache``: documented, and refused by name if they are wrong."""

import inspect
import pydoc
import re
from pathlib import Path

import pytest
from django.test import override_settings

from wheelcache.flask_backend import HTTPCache as FlaskHTTPCache
from wheelcache.pages import HTTPCache
from wheelcache.pages.django_pages import COMPANION, page_cache
from wheelcache.pages.needs import MAX_BODY, Need
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.obstacles import _needs
from wheelcache.pages.options import Options
from wheelcache.pages.rules import Response
from wheelcache.pages.storing import TOO_LONG

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http-cache.md"


def make_django_cache(**options):
    with override_settings(MIDDLEWARE=[COMPANION]):
        return page_cache(**options)


def test_the_reference_and_help_show_every_option():
    table = PAGE.read_text().partition("| Option |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == inspect.signature(HTTPCache).parameters.keys()
    options = inspect.signature(Options).parameters
    assert all(re.search(rf"^ +[\w, ]*\b{name}\b[\w, ]*: ", Options.__doc__, re.MULTILINE) for name in options)
    for function in (HTTPCache.__init__, FlaskHTTPCache.__init__, page_cache):
        assert options.keys() <= inspect.signature(function).parameters.keys()
        assert "wait: float = 10" in pydoc.plain(pydoc.render_doc(function))


def test_the_defaults_are_those_of_the_reference_and_a_framework_shows_its_own():
    defaults = Options()
    assert (defaults.max_bytes, defaults.max_body, defaults.wait) == (64 << 20, 1 << 20, 10)
    assert (defaults.grace, defaults.fail_safe, defaults.serve_stale_after, defaults.cache_status) == (0, 0, None, True)
    assert inspect.signature(FlaskHTTPCache).parameters["session_cookies"].default == ("session",)
    assert inspect.signature(page_cache).parameters["csrf_tokens"].default is True


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_bytes", 0),
        ("max_body", "1"),
        ("grace", -1),
        ("fail_safe", float("inf")),
        ("wait", 0),
        ("serve_stale_after", 0),
        ("cookies", "theme"),
        ("session_cookies", "sessionid"),
        *(("rehearse", share) for share in (0, 1.5)),
        ("cache_status", "long"),
        ("shared_purges", 1),
    ],
)
def test_a_wrong_option_is_named(option, value):
    with pytest.raises((TypeError, ValueError), match=f"^{option} must be "):
        HTTPCache(**{option: value})


@pytest.mark.parametrize("make", [HTTPCache, FlaskHTTPCache, make_django_cache])
@pytest.mark.parametrize(
    ("option", "more"),
    [("max_byte", "did you mean max_bytes?"), ("MAX_BYTES", "did you mean max_bytes?"), ("clock", "it takes name, ")],
)
def test_an_unknown_option_is_named_with_the_most_similar_one(make, option, more):
    with pytest.raises(TypeError, match=rf"^unknown option '{option}' of the HTTP cache 'pages'; {re.escape(more)}"):
        make(**{option: 1})


@pytest.mark.parametrize(("length", "needs"), [(b"33554431", [Need(MAX_BODY, "33554432")]), (b"33554432", [])])
def test_a_rehearsal_recommends_no_max_body_above_32_mib(length, needs):
    response = Response(200, [(b"content-length", length)])
    assert _needs(TOO_LONG, PageNotes(), response, frozenset(), "/") == needs
