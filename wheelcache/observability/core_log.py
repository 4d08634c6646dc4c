"""The line on the log that reports which core a process runs."""

from __future__ import annotations

import logging
from typing import Final

from wheelcache.core import HOW_TO_CHANGE, REPORT

logger = logging.getLogger("wheelcache")

_UNLOGGED: Final = iter((f"{REPORT}. {HOW_TO_CHANGE}",))
"""Has one item. The interpreter gives it to one thread only."""


def log_core() -> None:
    """Log which core runs and how to change it, unless this process or its parent has logged it."""
    for line in _UNLOGGED:
        logger.info("%s", line)
