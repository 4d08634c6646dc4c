"""The rules and options that a page needs to be stored, as a rehearsal counts them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

TTL, WITHOUT_COOKIES, IGNORE_READS_BY, IGNORE_QUERY, MAX_BODY = (
    *("ttl", "without_cookies", "ignore_reads_by", "ignore_query", "max_body"),
)
"""The kinds of ``Need``."""


class Need(NamedTuple):
    """A rule or an option.

    Attributes:
        kind: one of the kinds above.
        value: the name of the cookie or of the code, or the number of bytes; "" for the others.
    """

    kind: str
    value: str = ""


class Obstacle(NamedTuple):
    """A reason that no rule removes, and the code that causes it; "" if that is unknown."""

    reason: str
    detail: str
    where: str


class Obstacles(NamedTuple):
    """The obstacles of a page.

    Attributes:
        pattern: the pattern of a rule for the view; "" if the framework found no view.
        needs: the rules and options that the page needs.
        stuck: the first obstacle that no rule removes; None if the page would be stored with the ``needs``.
        fields: the request headers and cookies on which the page would depend.
        lost: the cookies that it would lose.
    """

    pattern: str
    needs: tuple[Need, ...]
    stuck: Obstacle | None
    fields: frozenset[bytes]
    lost: frozenset[bytes]

    @property
    def row(self) -> str:
        """The text by which the figures count visits with these obstacles: see ``parsed``."""
        return json.dumps([self.pattern, self.needs, self.stuck], separators=(",", ":"))


def parsed(row: str) -> tuple[str, tuple[Need, ...], Obstacle | None]:
    """Return the pattern, the needs and the obstacle in a ``row``."""
    found: list[Any] = json.loads(row)
    pattern, needs, stuck = found
    return pattern, tuple(Need(*each) for each in needs), None if stuck is None else Obstacle(*stuck)
