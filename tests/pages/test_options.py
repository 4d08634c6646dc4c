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
from wheelcache.pages.options import Options

PAGE = Path(__file__).parents[2] / "docs" / "http-cache.md"


def make_django_cache(**options):
    with override_settings(MIDDLEWARE=[COMPANION]):
        return page_cache(**options)


ENTRY_POINTS = [HTTPCache.__init__, FlaskHTTPCache.__init__, page_cache]


def test_the_page_lists_every_option():
    table = PAGE.read_text().partition("| Option |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == inspect.signature(HTTPCache).parameters.keys()


def test_help_shows_the_type_the_default_and_the_meaning_of_every_option():
    options = inspect.signature(Options).parameters
    for function in ENTRY_POINTS:
        assert options.keys() <= inspect.signature(function).parameters.keys()
        assert "wait: float = 10" in pydoc.plain(pydoc.render_doc(function))
    assert all(re.search(rf"^ +[\w, ]*\b{name}\b[\w, ]*: ", Options.__doc__, re.MULTILINE) for name in options)


def test_a_framework_shows_its_own_defaults():
    options = inspect.signature(FlaskHTTPCache).parameters
    assert options["session_cookies"].default == ("session",)
    assert inspect.signature(page_cache).parameters["csrf_tokens"].default is True


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_bytes", 0),
        ("max_body", "1"),
        ("grace", -1),
        ("fail_safe", float("inf")),
        ("wait", 0),
        ("cookies", "theme"),
        ("session_cookies", "sessionid"),
        ("rehearse", 0),
        ("rehearse", 1.5),
    ],
)
def test_a_wrong_option_is_named(option, value):
    with pytest.raises((TypeError, ValueError), match=f"^{option} must be "):
        HTTPCache(**{option: value})


@pytest.mark.parametrize("make", [HTTPCache, FlaskHTTPCache, make_django_cache])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("max_byte", "unknown option 'max_byte' of the HTTP cache 'pages'; did you mean max_bytes?"),
        ("MAX_BYTES", "unknown option 'MAX_BYTES' of the HTTP cache 'pages'; did you mean max_bytes?"),
        ("sort_query", "unknown option 'sort_query' of the HTTP cache 'pages'; it takes name, "),
        ("clock", "unknown option 'clock' of the HTTP cache 'pages'; it takes name, "),
    ],
)
def test_an_unknown_option_is_named_with_the_most_similar_one(make, option, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        make(**{option: 1})
