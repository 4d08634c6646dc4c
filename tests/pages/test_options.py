"""The options of ``HTTPCache``: documented, and refused by name if they are wrong."""

import inspect
import re
from pathlib import Path

import pytest

from wheelcache.pages import HTTPCache

PAGE = Path(__file__).parents[2] / "docs" / "http-cache.md"
FOR_TESTS = {"self", "clock", "wall_clock", "tokens"}


def test_the_page_lists_every_option():
    table = PAGE.read_text().partition("| Option |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == inspect.signature(HTTPCache.__init__).parameters.keys() - FOR_TESTS


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
