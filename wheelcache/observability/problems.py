"""Find the caches of a site that have a problem at present, and describe it in a sentence.

A problem is a state that an operator should look into. The limits are those of ``docs/prometheus-alerts.yml``, applied
to the last minute. All figures that are used here are shared, so every process finds the same problems.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wheelcache.observability.event_log import KILLED, Event
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.recorder import MINUTE
from wheelcache.observability.site import RECENTLY, Glance
from wheelcache.observability.tables import DAY
from wheelcache.stats import StoreStats

MIN_FAILURES: Final = 3
"""The number of failures in the last minute that counts as a problem, if their share is above ``MAX_SHARE``."""

MAX_SHARE: Final = 0.05
"""The share of loads, or of calls of the store, that may fail."""

MIN_EVENTS: Final = 6
"""The number of timeouts, or of dropped refreshes, in the last minute that counts as a problem."""

LATE: Final = 10.0
"""Seconds that a timing wheel may be late."""

FULL: Final = 0.95
"""The share of its limit from which on a cache counts as full."""

KILLED_RECENTLY: Final = 300.0
"""Seconds for which the abrupt end of a worker is a problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a cache or of the site.

    Attributes:
        cache: the name of the cache; None for a problem of the whole site.
        text: the part of the sentence that follows the name.
    """

    cache: str | None
    text: str

    def __str__(self) -> str:
        return self.text if self.cache is None else f"Cache {self.cache!r}: {self.text}"


@dataclass(frozen=True, slots=True)
class Recently:
    """The figures of one cache, and its steps in the last ten minutes by their start, oldest first."""

    figures: CacheFigures
    steps: Mapping[int, Glance]
    time: float
    is_configured: bool

    @property
    def store(self) -> StoreStats:
        return self.figures.stats.store or StoreStats()

    def minute(self, *names: str) -> int:
        """Return the sum of these counts over the last six steps."""
        return sum(getattr(step, name) for step in list(self.steps.values())[-MINUTE:] for name in names)

    def lasts(self, bad: Iterable[str], calls: Iterable[str]) -> str:
        """Return a phrase for the duration of a problem: the time for which all steps with ``calls`` have had ``bad``.

        Args:
            bad: the names of the counts that are a problem.
            calls: the names of the counts that show that the cache was used.

        Returns:
            For instance " for 3 min"; empty if there are no ``bad`` counts yet.
        """
        bad, calls, since = list(bad), list(calls), None
        for start, step in reversed(list(self.steps.items())):
            if any(getattr(step, name) for name in bad):
                since = start
            elif any(getattr(step, name) for name in calls):
                break
        if since is None:
            return ""
        seconds = self.time - since
        return f" for more than {in_words(RECENTLY)}" if seconds >= RECENTLY else f" for {in_words(seconds)}"


def problems(
    caches: Iterable[CacheFigures],
    recent: Mapping[str, Mapping[int, Glance]],
    events: Iterable[Event],
    configured: Collection[str],
    time: float,
) -> list[Problem]:
    """Return the problems of a site, the worst first.

    Args:
        caches, recent, events: the results of the members of ``Site``.
        configured: the names of the caches that this process has.
        time: the time of the site, in seconds since 1970.
    """
    seen = [Recently(each, recent.get(each.name, {}), time, each.name in configured) for each in caches]
    found = [Problem(each.figures.name, text) for check in CHECKS for each in seen if (text := check(each))]
    killed = [each for each in events if each.kind == KILLED and each.at > time - KILLED_RECENTLY]
    return found + [Problem(None, f"{in_words(time - each.at)} ago, {each.sentence()}") for each in killed]


def headline(found: Iterable[Problem], caches: Collection[str]) -> str:
    """Return the first line of a report.

    Args:
        found: the problems, the worst first.
        caches: the names of all caches.
    """
    sentences = list(map(str, found))
    if sentences:
        more = len(sentences) - 1
        return sentences[0] + (f", and {more} more problem{'s' if more > 1 else ''}" if more else "")
    if len(caches) == 1:
        return f"Cache {next(iter(caches))!r} is healthy"
    return f"All {len(caches)} caches are healthy" if caches else "There is no cache"


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


_STORE_FAILS: Final = ("read_errors", "read_refused", "write_errors", "write_refused")


def _store_is_down(cache: Recently) -> str:
    store = cache.store
    if not store.open_breakers:
        return ""
    lasts = cache.lasts(_STORE_FAILS, ("misses", "puts"))
    return f"its store is down{lasts}: {store.open_breakers} of {store.breakers} workers do not call it"


def _store_fails(cache: Recently) -> str:
    errors, calls = cache.minute("read_errors", "write_errors"), cache.minute("misses", "puts")
    if cache.store.open_breakers or errors < MIN_FAILURES or errors <= MAX_SHARE * calls:
        return ""
    return f"{errors:,} calls of its store failed in the last minute"


def _has_no_worker(cache: Recently) -> str:
    published = cache.figures.published
    if cache.figures.workers or cache.is_configured or published is None or published < cache.time - DAY:
        return ""
    return f"no worker has had it for {in_words(cache.time - published)}"


def _loads_fail(cache: Recently) -> str:
    failures, loads = cache.minute("load_failures"), cache.minute("loads", "load_failures")
    if failures < MIN_FAILURES or failures <= MAX_SHARE * loads:
        return ""
    return f"{failures / loads:.0%} of its loads fail{cache.lasts(('load_failures',), ('loads',))}"


def _loads_time_out(cache: Recently) -> str:
    number = cache.minute("load_timeouts")
    return f"{number:,} callers gave up waiting for its loads in the last minute" if number >= MIN_EVENTS else ""


def _refreshes_are_dropped(cache: Recently) -> str:
    number = cache.minute("refreshes_dropped")
    return (
        f"{number:,} refreshes in the last minute were dropped: its loads take too long" if number >= MIN_EVENTS else ""
    )


def _is_not_notified(cache: Recently) -> str:
    lost = cache.store.trackers - cache.store.trusted
    # If the store is down, only that problem is reported.
    if lost <= 0 or cache.store.open_breakers:
        return ""
    return f"{lost} of {cache.store.trackers} workers receive no invalidations and read through to its store"


def _has_no_thread(cache: Recently) -> str:
    refused = cache.figures.refused
    return f"the system refused {refused} of its {cache.figures.workers} workers a wheel thread" if refused else ""


def _is_late(cache: Recently) -> str:
    lag = cache.figures.lag
    return f"its timing wheel is {in_words(lag)} late" if lag is not None and lag > LATE else ""


def _is_too_small(cache: Recently) -> str:
    figures, evictions, misses = cache.figures, cache.minute("evictions"), cache.minute("misses")
    limits = (figures.stats.size, figures.max_entries), (figures.stats.weight, figures.max_weight)
    is_full = any(most and now >= FULL * most for now, most in limits)
    ratio = figures.minute.hit_ratio
    if not is_full or ratio is None or ratio >= 0.5 or evictions < 60 or evictions <= 0.5 * misses:
        return ""
    return f"it is too small: it evicts {evictions / 60:,.0f} entries a second, and {ratio:.0%} of look-ups hit"


CHECKS: Final[tuple[Callable[[Recently], str], ...]] = (
    _store_is_down,
    _has_no_worker,
    _loads_fail,
    _store_fails,
    _is_late,
    _has_no_thread,
    _loads_time_out,
    _refreshes_are_dropped,
    _is_not_notified,
    _is_too_small,
)
"""The checks, from the worst problem to the least. Each returns the text of its problem, or an empty string."""
