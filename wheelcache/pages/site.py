"""What an HTTP cache knows of its site apart from the options: its framework, and the clocks of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from wheelcache.pages.blanks import Tokens
from wheelcache.runtime.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Site:
    """The site behind an HTTP cache.

    Attributes:
        has_companion: whether the framework has a companion, which reports the cookies and headers on which a page
            depends: see ``notes``. Pages without such a report are not stored.
        tokens: fills the blanks of pages that have tokens of their visitors: see ``blanks``. None if no page has any.
        value_cookies: cookies that say nothing about the visitor, such as the one of the language: see
            ``page_rules.ttl``.
        clock, wall_clock: return seconds: a steady clock, and the time since 1970.
    """

    has_companion: bool = False
    tokens: Tokens | None = None
    value_cookies: frozenset[bytes] = frozenset()
    clock: Clock = SystemClock.steady
    wall_clock: Clock = SystemClock.travelling_time
