"""The options of ``HTTPCache``: documented, and refused by name if they are wrong."""

import inspect
import pydoc
import re
from pathlib import Path

import pytest

from wheelcache.flask_backend import HTTPCache as FlaskHTTPCache
from wheelcache.pages import HTTPCache
from wheelcache.pages.django_pages import page_cache
from wheelcache.pages.options import Options

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http-cache.md"
FOR_TESTS = {"self", "clock", "wall_clock", "tokens"}
ENTRY_POINTS = [HTTPCache.__init__, FlaskHTTPCache.__init__, page_cache]


def test_the_page_lists_every_option():
    table = PAGE.read_text().partition("| Option |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == inspect.signature(HTTPCache.__init__).parameters.keys() - FOR_TESTS


def test_help_shows_the_type_the_default_and_the_meaning_of_every_option():
    options = inspect.signature(Options).parameters
    for function in ENTRY_POINTS:
        assert options.keys() <= inspect.signature(function).parameters.keys()
        assert "wait: float = 10" in pydoc.plain(pydoc.render_doc(function))
    assert all(re.search(rf"^ +[\w, ]*\b{name}\b[\w, ]*: ", Options.__doc__, re.MULTILINE) for name in options)


def test_a_framework_shows_its_own_defaults():
    options = inspect.signature(FlaskHTTPCache).parameters
    assert (options["companion"].default, options["session_cookies"].default) == (True, ("session",))
    assert inspect.signature(page_cache).parameters["csrf_tokens"].default is True


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_bytes", 0),
        ("max_body", "1"),
        ("stale_while_revalidate", -1),
        ("stale_if_error", float("inf")),
        ("wait", 0),
        ("cookies", "theme"),
        ("languages", [1]),
        ("session_cookies", "sessionid"),
        ("companion", 1),
        ("authorized", None),
        ("rehearse", 0),
        ("rehearse", 1.5),
    ],
)
def test_a_wrong_option_is_named(option, value):
    with pytest.raises((TypeError, ValueError), match=f"^{option} must be "):
        HTTPCache(**{option: value})
