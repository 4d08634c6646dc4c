"""Why a response is not stored: a reason for the figures, and a detail for Cache-Status."""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST_DETAIL: Final = 120
"""Characters. Visitors may choose a part of it, and it is kept with each mark."""


class Refusal(NamedTuple):
    """Why a response is not stored.

    Attributes:
        reason: the reason under which the figures count the response. There are few different ones.
        detail: what the visitor's developer tools show, such as "sets cookie x"; the reason if there is no more to say.
        leaves_mark: whether it holds for the next request for the page, too. A reason that holds only for requests such
            as this one leaves no mark: a stranger could otherwise keep a page from being stored for all.
        cookie: the name of a cookie; the mark is only for requests that have it. None if it is for all.
    """

    reason: str
    detail: str
    leaves_mark: bool = True
    cookie: bytes | None = None


def refusal(
    reason: str, detail: str | None = None, *, leaves_mark: bool = True, cookie: bytes | None = None
) -> Refusal:
    return Refusal(reason, (reason if detail is None else detail)[:LONGEST_DETAIL], leaves_mark, cookie)
