"""Show the progress of a command in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], text: str, number: int) -> Iterable[T]:
    """Iterate over ``number`` items with a progress bar on stderr, if that is a terminal and rich is installed."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, text, number, console=Console(stderr=True), transient=True)
