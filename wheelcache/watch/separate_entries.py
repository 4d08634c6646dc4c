"""Find the problems that workers have because each has its own entries, and that a ``HostCache`` prevents.

- State of the site that workers must share, such as sessions, is in a cache that they do not share. The settings show
  it: see ``ObservedCache.shared_state``.
- Workers miss values that another worker has: see ``key_samples``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.watch.key_samples import NONE, Misses, misses_of

if TYPE_CHECKING:
    from wheelcache.watch.site import Site

LEAST_AVOIDABLE: Final = 20
"""The number of sampled misses of a group that were avoidable before they are a problem."""

LEAST_SHARE: Final = 0.1
"""The share of the look-ups of a group that were avoidable misses, above which they are a problem."""


class Avoidable(NamedTuple):
    """The avoidable misses of a group of keys.

    Attributes:
        group: the name of the group.
        share: their share of the look-ups of the group.
    """

    group: str
    share: float


def found(site: Site) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of a site: the name of the cache, the text, and the part of the page that shows it."""
    own = {each.name: each.engine.observed for each in site.own}
    misses = misses_of(site.files)
    for figures in site.caches:
        if figures.workers < 2 or figures.is_shared or figures.stats.store is not None:
            continue
        known = own.get(figures.name)
        remedy = f"Set {(known and known.setting) or 'its backend'} to HostCache."
        worst = worst_of(misses.get(figures.name, NONE))
        if known is not None and known.shared_state:
            user, loss = known.shared_state[0]
            text = f"{user} it, and its {figures.workers} workers do not share it: {loss}. {remedy}"
            yield figures.name, text, "workers"
        elif worst is not None:
            group = f"look-ups of {worst.group!r}" if worst.group else "look-ups"
            text = f"{worst.share:.0%} of the {group} miss a value that another worker has. {remedy}"
            yield figures.name, text, "misses"


def worst_of(misses: Misses) -> Avoidable | None:
    """Return the group of keys of a cache with the greatest share of avoidable misses, if it is a problem."""
    # Not the share of the hashes: a few keys may have most misses.
    share_of_misses = misses.sampled / max(misses.sampled, misses.misses, 1)
    found = [
        Avoidable(group, min(1.0, number / share_of_misses / misses.lookups[group]))
        for group, number in misses.avoidable.items()
        if number >= LEAST_AVOIDABLE and misses.lookups[group]
    ]
    worst = max(found, key=lambda each: each.share, default=None)
    return worst if worst is not None and worst.share >= LEAST_SHARE else None
