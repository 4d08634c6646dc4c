"""The statistics of the pages of an HTTP cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


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
        refused_by_view: the number of these responses by the name of the view. Beyond 64 views, those of the others are
            under an empty name. The figures of a site have them in the groups of keys.
        not_stored_paths: the paths with most of these responses, by reason, each with a number: the path has at least
            so many. ``cache.stats()``, and the figures of a single worker, have none.
        full_variants: by header, or ``"cookie <name>"``, the paths that have the most variants removed because of it,
            each with a number as above.
    """

    fresh: int = 0
    stale: int = 0
    revalidated: int = 0
    collapsed: int = 0
    bytes_sent: int = 0
    stored: int = 0
    variants_removed: int = 0
    not_stored: Mapping[str, int] = field(default_factory=dict)
    refused_by_view: Mapping[str, int] = field(default_factory=dict)
    not_stored_paths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    full_variants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    answered: ClassVar[None] = None

    @property
    def uses(self) -> int:
        """The number of responses."""
        return self.fresh + self.stale + self.stored + sum(self.not_stored.values())
