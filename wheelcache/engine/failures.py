"""The failures of one type, as guests record them for an observer that asks every few seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_LENGTH: Final = 200
"""The number of characters of a message to keep."""


@dataclass(slots=True)
class Failure:
    """The failures of one type.

    Attributes:
        kind: the name of the type.
        message: the message of one of them.
        first, last: the times of the first and the last one, in seconds since 1970.
        groups: the names of the groups of keys whose loads failed, in the order of their first failure.
    """

    kind: str
    message: str
    count: int
    first: float
    last: float
    groups: list[str] = field(default_factory=list)


def message_of(error: Exception) -> str:
    """Return the message on one line, shortened, in characters that UTF-8 can encode: file names may have others."""
    try:
        message = " ".join(str(error)[: 2 * MAX_LENGTH].split())
        return message.encode("utf-8", "backslashreplace").decode()[:MAX_LENGTH]
    except Exception:
        return ""
