"""The causes of misses and removals in words, for the page and the terminal."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    "tag": "Tag dropped",
    "another process": "Changed or deleted by another worker",
    "new or long gone": "First request, or forgotten",
}
"""The names of the causes whose values are not their names already, beginning with a capital letter."""


def name_of(cause: str) -> str:
    """Return the name of a cause as it begins a line."""
    return NAMES.get(cause, cause.capitalize())
