"""Turns the route of a view into the pattern of a rule: ``blog/<int:year>/`` becomes ``/blog/*/``.

A route is text with parts in angle brackets (Django's ``path`` and Flask), a regular expression (Django's ``re_path``),
or both after each other, where one URLconf includes another.
"""

from __future__ import annotations

import re
from typing import Final

from wheelcache.pages.page_rules import matches

_NAMED: Final = re.compile(r"<[^<>]*>")
_ENDS: Final = re.compile(r"\\[AZbB]|[\^$]")
_GROUP: Final = re.compile(r"\((?:\\.|\[(?:\\.|[^\]\\])*\]|[^()\\\[])*\)")
"""A group without a group in it."""
_SET: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsS]|\.(?=[*+?{])")
_REPEATED: Final = re.compile(r"[^\\](?:[*+?]|\{\d*,?\d*\})[?+]?")
_ESCAPED: Final = re.compile(r"\\(.)")
_ANY: Final = "\0"
_STARS: Final = re.compile(r"\0+")


def pattern_of(route: str, root: str, path: str) -> str:
    """Return the pattern of a rule that matches the paths of a view; the path itself if the route is unusual.

    Args:
        route: with or without a slash at the beginning.
        root: the script name.
        path: the path of a request to the view, one character for each byte, with the script name.
    """
    exact = path.encode("latin-1").decode(errors="replace")
    pattern = f"{root}/{_text_of(route).removeprefix('/')}"
    return pattern if "?" not in pattern and matches(pattern, path) else exact


def covers(general: str, pattern: str) -> bool:
    """Return whether a pattern matches all paths that another pattern matches."""
    return matches(general, pattern.encode().decode("latin-1"))


def _text_of(route: str) -> str:
    text, grouped = "", route
    while grouped != text:
        # From the inner groups to the outer ones.
        text, grouped = grouped, _GROUP.sub(_ANY, grouped)
    text = _NAMED.sub(_ANY, text)
    if any(each in route for each in "(^$\\["):
        text = _SET.sub(_ANY, _ENDS.sub("", text))
        text = _ESCAPED.sub(r"\1", _REPEATED.sub(_ANY, text))
    return _STARS.sub("*", text)
