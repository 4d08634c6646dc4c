"""A value that a loader returns and that is not to be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unstored:
    """Returned by a loader: the leader and every waiter get ``value``, it counts as a load, and nothing is stored."""

    value: Any
