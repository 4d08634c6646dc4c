"""The statistics of the pages of an HTTP cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Final

from wheelcache.engine.stats import Row, counter, counters_of
from wheelcache.pages.reasons import REASONS


@dataclass(frozen=True, slots=True)
class PageStats:
    """The statistics of the pages of an HTTP cache, since it was made, or since the fork in a child process.

    Attributes:
        fresh: responses from a fresh page, including validated and collapsed ones.
        stale: responses from a stale page, while it was renewed or because the application failed.
        revalidated: pages that the application confirmed with a 304, also in the background.
        collapsed: requests that waited for the run of another request and got its page.
        bytes_sent: the bytes of the bodies of all responses from pages.
        stored: pages that were stored.
        variants_removed: variants that were removed because their page had too many.
        not_stored: responses that were not stored, by reason. The figures of a site have only ``REASONS``; "other"
            includes the reasons that applications make up.
        not_stored_paths: the paths with most of these responses, by reason, each with a number: the path has at least
            so many. ``cache.stats()``, and the figures of a single worker, have none.
        full_variants: by header, or ``"cookie <name>"``, the paths that have the most variants removed because of it,
            each with a number as above.
    """

    fresh: int = counter()
    stale: int = counter()
    revalidated: int = counter("Pages that the application confirmed with a 304.", "page", "pages_revalidated")
    collapsed: int = counter(
        "Requests that waited for the run of another request and got its page.", "request", "page_requests_collapsed"
    )
    bytes_sent: int = counter("Bytes of the bodies that were sent from stored pages.", "bytes", "pages_sent")
    stored: int = counter("Pages that were stored.", "page", "pages_stored")
    variants_removed: int = counter(
        "Variants that were removed because their page had too many.", "variant", "page_variants_removed"
    )
    not_stored: Mapping[str, int] = field(default_factory=dict)
    not_stored_paths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    full_variants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    answered: ClassVar[None] = None

    @property
    def uses(self) -> int:
        """The number of responses."""
        return self.fresh + self.stale + self.stored + sum(self.not_stored.values())

    def counts(self) -> Row:
        """Return the numbers, all of which only grow."""
        by_reason = dict.fromkeys(REASONS, 0)
        for reason, number in self.not_stored.items():
            by_reason[reason if reason in by_reason else "other"] += number
        return (*_counters(self), *by_reason.values())

    @classmethod
    def of(cls, counts: Sequence[Any]) -> PageStats:
        """Return the statistics of pages that have these ``counts()``."""
        counters = dict(zip(COUNTERS, counts, strict=False))
        reasons = zip(REASONS, counts[len(counters) :], strict=True)
        return cls(**counters, not_stored={reason: number for reason, number in reasons if number})


COUNTERS: Final = counters_of(PageStats)
COUNTS: Final = (
    *(f"pages_{name}" for name in COUNTERS),
    *(f"not_stored_{reason}".replace(" ", "_").replace("-", "_") for reason in REASONS),
)
"""The names of ``PageStats.counts``."""

_counters: Final = attrgetter(*COUNTERS)
