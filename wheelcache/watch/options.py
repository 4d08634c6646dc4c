"""The option of caches whose entries operators may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option, Setting

OPTIONS: Final = (
    Option("inspect", options.flag, False, "the dashboard finds, lists and deletes entries for inspectors"),
)


def is_inspectable(settings: Iterable[Setting]) -> bool:
    """Return whether a cache with these settings has the option ``inspect``."""
    return any(each.name.casefold() == "inspect" and not each.is_default for each in settings)
