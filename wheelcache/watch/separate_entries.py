"""Find the problems that workers have because each has its own entries, and that a ``HostCache`` prevents.

- State of the site that workers must share, such as sessions, is in a cache that they do not share. The settings show
  it: see ``ObservedCache.shared_state``.
- Workers miss values that another worker has. Their samples of keys show it: see ``key_samples``. All workers sample
  the keys with the smallest hashes, so each key below all limits is either in the sample of a worker, or not in its
  cache.

A miss was avoidable if another worker holds the key. If that worker has never missed the key itself, as a session that
it created, all misses were. Otherwise the worker with most misses of the key stands for the times at which a value was
needed anew, and only those of the others were avoidable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.watch.key_samples import ALL, KeySample, samples_of

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
    samples = samples_of(site.files)
    for figures in site.caches:
        if figures.workers < 2 or figures.is_shared or figures.stats.store is not None:
            continue
        known = own.get(figures.name)
        remedy = f"Set {(known and known.setting) or 'its backend'} to HostCache."
        worst = next(iter(avoidable(samples.get(figures.name, ()))), None)
        if known is not None and known.shared_state:
            user, loss = known.shared_state[0]
            text = f"{user} it, and its {figures.workers} workers do not share it: {loss}. {remedy}"
            yield figures.name, text, "workers"
        elif worst is not None:
            group = f"look-ups of {worst.group!r}" if worst.group else "look-ups"
            text = f"{worst.share:.0%} of the {group} miss a value that another worker has. {remedy}"
            yield figures.name, text, "misses"


def avoidable(samples: Sequence[KeySample]) -> list[Avoidable]:
    """Return the groups of keys with too many avoidable misses, the worst first.

    Args:
        samples: the samples of the workers of a cache.
    """
    limit = min((min(each.limit, each.missed_limit) for each in samples), default=0)
    if len(samples) < 2 or limit == 0:
        return []
    misses: Counter[str] = Counter()
    for key in {key for each in samples for key in each.missed if key < limit}:
        holders = [each for each in samples if key in each.held]
        if holders:
            misses[holders[0].held[key]] += _avoidable_of(key, samples, holders)
    lookups: Counter[str] = Counter()
    for each in samples:
        lookups.update(each.lookups)
    found = [
        Avoidable(group, min(1.0, number * ALL / limit / lookups[group]))
        for group, number in misses.items()
        if number >= LEAST_AVOIDABLE and lookups[group]
    ]
    return sorted((each for each in found if each.share >= LEAST_SHARE), key=lambda each: -each.share)


def _avoidable_of(key: int, samples: Iterable[KeySample], holders: Iterable[KeySample]) -> int:
    misses = [each.missed.get(key, 0) for each in samples]
    if any(key not in each.missed for each in holders):
        return sum(misses)
    return sum(misses) - max(misses)
