"""Why a response is not stored: a reason for the figures, and a detail for Cache-Status."""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST_DETAIL: Final = 100
"""Characters. Visitors may choose a part of it, and it is kept with each mark."""


class Refusal(NamedTuple):
    """Why a response is not stored.

    Attributes:
        reason: the reason under which the figures count the response. There are few different ones.
        detail: what the visitor's developer tools show, such as "sets cookie x"; the reason if there is no more to say.
    """

    reason: str
    detail: str


def refusal(reason: str, detail: str | None = None) -> Refusal:
    return Refusal(reason, (reason if detail is None else detail)[:LONGEST_DETAIL])
