"""The groups of keys by the rules of a backend, as the compiled core decides: see ``key_groups.pxi``.

The entries of the compiled core remember their groups. This is for entries that are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from wheelcache.core.contract import GroupRule

LOOKED_AT: Final = 128
"""Characters of a key that a rule sees."""

NAME_SIZE: Final = 96
"""The most characters of a name."""


def group_by_rules(rules: Iterable[GroupRule], key: Any) -> str:
    """Return the name of the group of a key. It is empty for a key of no group, and for pages, since only the code that
    stores a page knows its view."""
    is_call = type(key) is tuple and len(key) > 1
    text = key[0] if type(key) is tuple and key else key
    if type(text) is not str:
        return ""
    shown = text[:LOOKED_AT]
    if not shown.isascii():
        shown = shown[: next(place for place, each in enumerate(shown) if not each.isascii())]
        is_call = False
    for rule in rules:
        part, stop, _ = shown.removeprefix(rule.prefix).partition(rule.stop) if rule.stop else ("", "", "")
        if shown.startswith(rule.prefix) and (stop or not rule.stop or is_call):
            name = rule.name + part
            return name if len(name) <= NAME_SIZE else ""
    return ""
