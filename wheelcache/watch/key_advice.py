"""Advice about the keys of a cache, from all counts: why look-ups miss, and for which groups.

The sentences promise no hit ratio. The counts show why a look-up missed, but not whether a value that had lived longer
would have been right, or how long another store would have kept it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wheelcache.core.contract import MissCause
from wheelcache.engine.stats import GroupStats, Stats
from wheelcache.watch.figures import CacheFigures

LEAST_LOOKUPS: Final = 1_000
"""The look-ups of a cache or a group before there is advice."""

LEAST_POINTS: Final = 0.03
"""The misses of one cause per look-up of the cache from which they matter."""

LEAST_SHARE_OF_MISSES: Final = 0.1
"""The share of the cache's misses that the expired values of a group must cause, so that their lifetime matters."""

MOSTLY_EXPIRED: Final = 0.5
"""The share of a group's misses that expired values must cause."""

LEAST_INVALIDATED: Final = 0.2
"""The share of the misses that dropped tags, deletes and clears must cause."""

LEAST_UNREAD: Final = 3_000
"""The stored values of a group without a hit before it is called unread."""

MOST_FAILURES: Final = 0.05
"""The share of a group's loads that may fail if a longer lifetime is to help."""

USED_ONCE: Final = 0.95
"""The share of a group's look-ups that must miss, and of these misses that must be for unknown keys."""

LEAST_TURNOVER: Final = 2
"""The misses of a group, per entry that the workers have held, before its keys are said to be used once."""

_INVALIDATIONS: Final = {
    MissCause.TAG: "dropped tags",
    MissCause.DELETED: "deletes",
    MissCause.CLEARED: "clears",
}


_REMEDIES: Final = {
    MissCause.TAG: "Use narrower tags for {}",
    MissCause.DELETED: "Delete fewer {}",
    MissCause.CLEARED: "Clear the cache less often",
}


def on_keys(figures: CacheFigures) -> Iterable[str]:
    """Yield the sentences that follow the name of the cache. There are none about the copies of a near cache: the
    store behind them may answer their misses, and other machines may read the stored values."""
    if figures.stats.store is not None:
        return
    yield from _on_invalidations(figures.stats)
    # The core in Python has one group, and what is true of the whole cache would be said of "all other keys".
    for name, group in sorted(figures.stats.groups.items()) if figures.cores != ["python"] else ():
        yield from _on_group(figures, f"the group {name!r}" if name else "the group of all other keys", group)


def _on_invalidations(stats: Stats) -> Iterable[str]:
    by_cause = {cause: stats.misses_by_cause[cause.value] for cause in _INVALIDATIONS}
    if not _matters(sum(by_cause.values()), stats) or sum(by_cause.values()) < LEAST_INVALIDATED * stats.misses:
        return
    parts = [
        f"{words} cause {by_cause[cause] / stats.misses:.0%}"
        for cause, words in _INVALIDATIONS.items()
        if by_cause[cause] >= 0.01 * stats.misses
    ]
    most = max(by_cause, key=by_cause.__getitem__)
    yield f"{_listed(parts)} of its misses. {_REMEDIES[most].format(_keys_lost_by(most, stats))}."


def _keys_lost_by(cause: MissCause, stats: Stats) -> str:
    """Return a phrase for the keys that most of the misses of a cause are for."""
    misses = {name: group.misses_by_cause[cause.value] for name, group in stats.groups.items() if name}
    most = max(misses, key=misses.__getitem__, default="")
    is_most = bool(most) and misses[most] >= 0.5 * stats.misses_by_cause[cause.value]
    return f"{most!r} keys" if is_most else "keys"


def _on_group(figures: CacheFigures, name: str, group: GroupStats) -> Iterable[str]:
    stats, misses = figures.stats, group.misses
    expired = group.misses_by_cause[MissCause.EXPIRED.value]
    new = group.misses_by_cause[MissCause.NEW.value]
    if (
        group.requests >= LEAST_LOOKUPS
        and _matters(expired, stats)
        and expired >= LEAST_SHARE_OF_MISSES * stats.misses
        and expired >= MOSTLY_EXPIRED * misses
        # If the load after an expiry fails, the next look-ups miss for the same reason.
        and group.load_failures <= MOST_FAILURES * (group.loads + group.load_failures)
    ):
        yield (
            f"a longer lifetime for {name} would avoid misses: {expired / misses:.0%} of its misses, and "
            f"{expired / stats.misses:.0%} of all misses, are for values that had expired."
        )
    # Locks and counters are unread as well, but they are deleted or replaced, and evict nothing.
    if (
        group.puts >= LEAST_UNREAD
        and not (group.hits or group.stale_hits)
        and misses < group.puts / 2 <= stats.evictions
    ):
        yield (
            f"{name} is stored and never read: {group.puts:,} values were stored, and there was no hit. "
            "Unless these are locks or counters, they only evict other values."
        )
    elif (
        misses >= max(LEAST_LOOKUPS, LEAST_TURNOVER * figures.peak * figures.workers)
        and misses >= USED_ONCE * group.requests
        and new >= USED_ONCE * misses
    ):
        yield (
            f"caching {name} hardly helps at this size: {misses / group.requests:.0%} of its {group.requests:,} "
            "look-ups missed, nearly all of them for keys that were never stored, or left long ago."
        )


def _matters(misses: int, stats: Stats) -> bool:
    return stats.requests >= LEAST_LOOKUPS and misses >= LEAST_POINTS * stats.requests


def _listed(parts: list[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
