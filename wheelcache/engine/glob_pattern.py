"""Redis's glob patterns, as regular expressions: ``*``, ``?``, ``[abc]``, ``[^a-z]``, and a backslash before a literal.

They match in the same way as in ``KEYS`` and ``SCAN`` of Redis, even if they are malformed: a class without its end
includes the rest of the pattern, ``[]`` matches nothing, and ``[^]`` matches any character. Unlike in Redis, ``?`` and
a class match a character and not a byte.

A match takes time in proportion to the lengths of pattern and text, whatever the number of stars. The first match of
the part between two stars is as good as any later one, so it is found once, in an atomic group.
"""

from __future__ import annotations

import re
from collections.abc import Callable


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that returns a true value for every string that matches the whole of ``pattern``.

    Raises:
        TypeError: if ``pattern`` is not a string.
    """
    if not isinstance(pattern, str):
        raise TypeError(f"pattern must be a string, not {pattern!r}")
    first, *others = _between_stars(pattern)
    expression = first
    if others:
        expression += "".join(f"(?>.*?{part})" for part in others[:-1] if part) + f".*{others[-1]}"
    return re.compile(expression, re.DOTALL).fullmatch


def escaped(literal: str) -> str:
    """Return a pattern that matches only ``literal``."""
    return re.sub(r"([*?[\\])", r"\\\1", literal)


def _between_stars(pattern: str) -> list[str]:
    """Return the regular expressions of the parts of ``pattern`` between its stars."""
    parts, index = [""], 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == "*":
            parts.append("")
        elif character == "?":
            parts[-1] += "."
        elif character == "[":
            expression, index = _class_at(pattern, index)
            parts[-1] += expression
        else:
            if character == "\\" and index < len(pattern):
                character = pattern[index]
                index += 1
            parts[-1] += re.escape(character)
    return parts


def _class_at(pattern: str, index: int) -> tuple[str, int]:
    """Return the regular expression of the class whose "[" precedes ``index``, and the index after the class."""
    is_negated = pattern.startswith("^", index)
    index += is_negated
    ranges = ""
    while index < len(pattern) and pattern[index] != "]":
        first = last = pattern[index]
        if first == "\\" and index + 1 < len(pattern):
            index += 1
            first = last = pattern[index]
        elif pattern.startswith("-", index + 1) and index + 2 < len(pattern):
            index += 2
            first, last = sorted((first, pattern[index]))
        ranges += f"{re.escape(first)}-{re.escape(last)}"
        index += 1
    if not ranges:
        return ("." if is_negated else "(?!)"), index + 1
    return f"[{'^' if is_negated else ''}{ranges}]", index + 1
