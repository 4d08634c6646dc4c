"""The problems of a site's caches, in one table: for the page, for the terminal and for the alerts of Prometheus.

A problem is a state that an operator should look into. A row of ``RULES`` has the conditions, a sentence for the page
and the terminal, and the rest of an alert. Each condition compares figures that exist twice: as the workers publish
them, for the last minute, and as a query of their metrics. All of them are shared, so every process finds the same
problems. ``prometheus_alerts`` makes the alerts.

Some rules judge each group of keys by itself: in the sums over all groups, a group that does well hides one that fails.
Each condition on a share comes with one on a number, so that a few look-ups are no problem.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from wheelcache.near_cache.store_stats import StoreStats
from wheelcache.pages.variants import MOST_VARIANTS
from wheelcache.watch import separate_entries
from wheelcache.watch.comparison import Change, worse_groups
from wheelcache.watch.event_log import KILLED, Event
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.group_tables import LoadStep
from wheelcache.watch.recorder import MINUTE
from wheelcache.watch.site import RECENTLY, OverviewStep, Site
from wheelcache.watch.tables import DAY, STEP

FULL_RECENTLY: Final = 120.0
"""Seconds for which a page that lost variants is named. The counts of the last minute are published later."""

KILLED_RECENTLY: Final = 300.0
"""Seconds for which the abrupt end of a worker is a problem."""

NO_PROBLEM: Final = "No problem in the last minute"

NAMED_GROUPS: Final = 5
"""The most groups of a cache that have the same problem, the worst ones."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a cache or of the site.

    Attributes:
        cache: the name of the cache; None for a problem of the whole site.
        text: the part of the sentence that follows the names. If it begins with "is", no colon precedes it.
        place: the part of the page of the cache that shows it; None for a problem of the site.
        group: the name of the group of keys; None for a problem of the whole cache.
    """

    cache: str | None
    text: str
    place: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        if self.cache is None:
            return self.text
        names = f"Cache {self.cache!r}" + ("" if self.group is None else f", {self.group}")
        return f"{names}{' ' if self.text.startswith('is ') else ': '}{self.text}"

    @property
    def alone(self) -> str:
        """The sentence without the name of the cache."""
        if self.group is not None:
            return f"{self.group}: {self.text}"
        text = self.text.removeprefix("is ")
        return f"{text[0].upper()}{text[1:]}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The recent figures of a site from which problems follow.

    Attributes:
        time: the time of the site, in seconds since 1970.
        edge: the end of the last complete step.
        steps: the steps of the last ten minutes of each cache by their start, oldest first.
        loads: the loads of the last ten minutes by cache and by group of keys, in the same steps.
        worse: the groups of keys of each cache that miss more often since the last release, the worst first.
        events: the recent events.
        configured: the names of the caches that this process has.
    """

    time: float
    edge: float
    steps: Mapping[str, Mapping[int, OverviewStep]]
    loads: Mapping[str, Mapping[str, Mapping[int, LoadStep]]] = field(default_factory=dict)
    worse: Mapping[str, Sequence[Change]] = field(default_factory=dict)
    events: Iterable[Event] = ()
    configured: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Recently:
    """The figures of one cache, or of one of its groups of keys.

    Attributes:
        steps: the steps of the last ten minutes by their start, oldest first: for a group, those with loads.
        time, edge: see ``Evidence``.
        is_configured: whether this process has the cache.
        group: the name of the group; None for the whole cache.
        change: the change of the misses of the group, if it is worse since the last release.
    """

    figures: CacheFigures
    steps: Mapping[int, Any]
    time: float
    edge: float
    is_configured: bool
    group: str | None = None
    change: Change | None = None

    @property
    def store(self) -> StoreStats:
        return self.figures.stats.store or StoreStats()

    def minute(self, *names: str) -> int:
        """Return the sum of these counts over the last complete minute."""
        since = self.edge - MINUTE * STEP
        return sum(getattr(step, name) for start, step in self.steps.items() if start >= since for name in names)

    def lasts(self, bad: Collection[str], calls: Collection[str]) -> str | None:
        """Return a phrase for the duration of a problem: the time for which all steps with ``calls`` have had ``bad``.

        Args:
            bad: the names of the counts that are a problem.
            calls: the names of the counts that show that the cache was used.

        Returns:
            For instance " for 3 min"; empty if there are no ``bad`` counts yet; None if the problem is over, since the
            last step with ``calls`` has none.
        """
        since = None
        for start, step in reversed(list(self.steps.items())):
            if any(getattr(step, name) for name in bad):
                since = start
            elif any(getattr(step, name) for name in calls):
                if since is None:
                    return None
                break
        if since is None:
            return ""
        seconds = self.time - since
        return f" for more than {in_words(RECENTLY)}" if seconds >= RECENTLY else f" for {in_words(seconds)}"


class End(NamedTuple):
    """The abrupt end of a worker, or of several at the same time."""

    event: Event
    seconds_ago: float


class Figure(NamedTuple):
    """A figure for conditions.

    Attributes:
        read: returns the present figure of a cache. Counts are those of the last minute, per second.
        query: returns the query of the metrics for it. Counts are rates over the given window, such as "5m".
    """

    read: Callable[[Any], float]
    query: Callable[[str], str]


def _rate(metric: str, *counts: str) -> Figure:
    return Figure(
        lambda cache: cache.minute(*counts) / (MINUTE * STEP),
        lambda window: f"sum by (job, cache) (rate(wheelcache_{metric}[{window}]))",
    )


def _group_rate(metric: str, *counts: str) -> Figure:
    """Return a figure of one group of keys."""
    return Figure(
        _rate(metric, *counts).read,
        lambda window: f"sum by (job, cache, group) (rate(wheelcache_group_{metric}[{window}]))",
    )


def _level(metric: str, read: Callable[[Recently], float], combine: str = "sum") -> Figure:
    return Figure(read, lambda window: f"{combine} by (job, cache) (wheelcache_{metric})")


_COMPARISONS: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt}


class Condition(NamedTuple):
    """A condition: ``figure``, or its share of another figure, compared with a limit."""

    figure: Figure
    comparison: str
    limit: float
    whole: Figure | None = None

    def holds(self, seen: Any) -> bool:
        whole = 1.0 if self.whole is None else self.whole.read(seen)
        return bool(_COMPARISONS[self.comparison](self.figure.read(seen), self.limit * whole))

    def query(self, window: str) -> str:
        share = "" if self.whole is None else f" / {self.whole.query(window)}"
        return f"{self.figure.query(window)}{share} {self.comparison} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of the table.

    Attributes:
        text: returns the text of the problem, from the argument of the conditions.
        conditions: all of them must hold.
        by_group: whether the conditions judge each group of keys.
        unless: if this condition holds, there is a worse problem with the same cause.
        place: the part of the page of the cache that shows the problem.
        alert, severity, summary: the name of the alert, its label, and its annotation. The value is that of the first
            condition.
        window: the window of the rates in the alert.
        duration: the time for which the conditions must hold until the alert fires.
    """

    text: Callable[[Any], str]
    conditions: tuple[Condition, ...]
    by_group: bool = False
    unless: Condition | None = None
    place: str = ""
    alert: str
    severity: str
    summary: str
    window: str = "5m"
    duration: str = "5m"

    def holds(self, seen: Any) -> bool:
        return all(each.holds(seen) for each in self.conditions) and not (self.unless and self.unless.holds(seen))

    def query(self) -> str:
        """Return the expression of the alert."""
        query = "\nand ".join(each.query(self.window) for each in self.conditions)
        return query if self.unless is None else f"{query}\nunless {self.unless.query(self.window)}"


def problems_of(site: Site, events: Sequence[Event]) -> list[Problem]:
    """Return the problems of ``site`` that follow from its recent figures and events, the worst first."""
    worse = {each.name: worse_groups(site, each) for each in site.caches}
    configured = {each.name for each in site.own}
    evidence = Evidence(site.time, site.edge, site.recent(), site.recent_loads(), worse, events, configured)
    return problems(site.caches, evidence) + [Problem(*each) for each in separate_entries.found(site)]


def problems(caches: Iterable[CacheFigures], evidence: Evidence) -> list[Problem]:
    """Return the problems of a site, the worst first."""
    seen = [_recently(each, evidence) for each in caches]
    found = [
        Problem(each.figures.name, rule.text(each), rule.place, each.group or None)
        for rule in RULES
        for cache in seen
        for each in (_worst_groups(rule, cache, evidence) if rule.by_group else [cache] if rule.holds(cache) else [])
    ]
    ends = [End(each, evidence.time - each.at) for each in evidence.events if each.kind == KILLED]
    return found + [Problem(None, WORKER_KILLED.text(each)) for each in ends if WORKER_KILLED.holds(each)]


def _recently(figures: CacheFigures, evidence: Evidence) -> Recently:
    steps, is_configured = evidence.steps.get(figures.name, {}), figures.name in evidence.configured
    return Recently(figures, steps, evidence.time, evidence.edge, is_configured)


def _worst_groups(rule: Rule, cache: Recently, evidence: Evidence) -> list[Recently]:
    """Return the groups of a cache with a problem, the worst first."""
    found = [each for each in _groups(cache, evidence) if rule.holds(each)]
    return sorted(found, key=rule.conditions[0].figure.read, reverse=True)[:NAMED_GROUPS]


def _groups(cache: Recently, evidence: Evidence) -> Iterator[Recently]:
    name = cache.figures.name
    loads = evidence.loads.get(name, {})
    changes = {each.name: each for each in evidence.worse.get(name, ())}
    for group in {**loads, **changes}:
        yield replace(cache, steps=loads.get(group, {}), group=group, change=changes.get(group))


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
    return NO_PROBLEM if caches else "There is no cache"


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


# The sentences.

_STORE_FAILS: Final = ("store_errors", "store_refused")


def _store_is_down(cache: Recently) -> str:
    store, lasts = cache.store, cache.lasts(_STORE_FAILS, ("store_calls",)) or ""
    return f"its store is down{lasts}: {store.open_breakers} of {store.breakers} workers do not call it"


def _store_fails(cache: Recently) -> str:
    text = f"{cache.minute('store_errors'):,} calls of its store failed in the last minute"
    return text if cache.lasts(_STORE_FAILS, ("store_calls",)) is not None else f"{text}; now it answers"


def _loads_fail(group: Recently) -> str:
    share = group.minute("load_failures") / group.minute("loads", "load_failures")
    lasts = group.lasts(("load_failures",), ("loads",))
    if lasts is None:
        return f"{share:.0%} of loads failed in the last minute; now they succeed"
    return f"{share:.0%} of loads have failed{lasts}" if lasts else f"{share:.0%} of loads fail"


def _refreshes_are_dropped(cache: Recently) -> str:
    number = cache.minute("refreshes_dropped")
    return f"{number:,} refreshes in the last minute were dropped: its loads take too long"


def _is_not_notified(cache: Recently) -> str:
    lost, workers = cache.store.lost_trackers, cache.store.trackers
    return f"{lost} of {workers} workers receive no invalidations and read through to its store"


def _is_refused(cache: Recently) -> str:
    refused, workers = cache.store.refused_trackers, cache.store.trackers
    return (
        f"its store refuses CLIENT TRACKING to {refused} of {workers} workers, which use no copies; their log has the "
        "reason"
    )


def _is_too_small(cache: Recently) -> str:
    ratio, evictions = HITS.read(cache) / LOOKUPS.read(cache), EVICTIONS.read(cache)
    figures, limit = cache.figures, "MAX_ENTRIES"
    if figures.max_weight and figures.stats.weight / figures.max_weight == figures.fullness:
        limit = "MAX_SIZE" if figures.is_shared else "MAX_BYTES"
    number = f"{evictions:,.0f}" if evictions >= 9.95 else f"{evictions:.2g}"
    return f"is too small: {ratio:.0%} hits, {number} evictions per second; try doubling {limit}"


def _has_full_page(cache: Recently) -> str:
    removed = f"{cache.minute('pages_variants_removed'):,} variants were removed in the last minute"
    pages = [each for each in cache.figures.full_pages if each.at > cache.time - FULL_RECENTLY]
    if not pages:
        return f"a page has more than {MOST_VARIANTS} variants: {removed}"
    kind, _, name = pages[0].field.rpartition(" ")
    cause = f"the cookie {name!r}" if kind else f"Vary: {name}"
    return (
        f"{cause} on {pages[0].path} has more than {MOST_VARIANTS} values: {removed}; make the page depend on fewer "
        "values, or if the page does not show it, name the code that reads it in ignore_reads_by"
    )


# The figures.

OPEN_BREAKERS: Final = _level("store_breaker_open", lambda cache: cache.store.open_breakers)
STORE_ERRORS: Final = _rate("store_errors_total", "store_errors")
STORE_CALLS: Final = _rate("store_seconds_count", "store_calls")
LOST_TRACKERS: Final = _level("store_tracking_lost", lambda cache: cache.store.lost_trackers)
REFUSED_TRACKERS: Final = _level("store_tracking_refused", lambda cache: cache.store.refused_trackers)
LOAD_FAILURES: Final = _group_rate("load_failures_total", "load_failures")
LOADS: Final = _group_rate("loads_total", "loads", "load_failures")
MISS_RISE: Final = Figure(
    lambda group: 0.0 if group.change is None else group.change.rise,
    lambda window: "max by (job, cache, group) (wheelcache_group_miss_rise_ratio)",
)
LOAD_TIMEOUTS: Final = _rate("load_timeouts_total", "load_timeouts")
REFRESHES_DROPPED: Final = _rate("refreshes_dropped_total", "refreshes_dropped")
LAG: Final = _level("wheel_lag_seconds", lambda cache: cache.figures.lag or 0.0, "max")
WITHOUT_THREAD: Final = _level("workers_without_thread", lambda cache: cache.figures.refused)
HITS: Final = _rate('requests_total{result="hit"}', "hits")
MISSES: Final = _rate('requests_total{result="miss"}', "misses")
LOOKUPS: Final = _rate("requests_total", "hits", "stale_hits", "misses")
LOST: Final = _rate('misses_total{cause=~"evicted|unknown"}', "misses_lost")
EVICTIONS: Final = _rate('removals_total{cause="evicted"}', "evictions")
VARIANTS_REMOVED: Final = _rate("page_variants_removed_total", "pages_variants_removed")
WORKERS: Final = _level("workers", lambda cache: max(cache.figures.workers, cache.is_configured), "max")
WORKERS_OF_A_DAY: Final = Figure(
    lambda cache: float(cache.figures.published is not None and cache.figures.published > cache.time - DAY),
    lambda window: f"max by (job, cache) (max_over_time(wheelcache_workers[{window}]))",
)
KILLED_WORKERS: Final = Figure(
    lambda end: end.event.count if end.seconds_ago < KILLED_RECENTLY else 0,
    lambda window: f"max by (job) (increase(wheelcache_workers_killed_total[{window}]))",
)

RULES: Final = (
    Rule(
        text=_store_is_down,
        conditions=(Condition(OPEN_BREAKERS, ">", 0),),
        place="store",
        alert="StoreDown",
        severity="critical",
        summary="{{ $value }} processes do not call the store behind the cache {{ $labels.cache }}, because it fails",
        duration="1m",
    ),
    Rule(
        text=lambda cache: f"no worker has had it for {in_words(cache.time - (cache.figures.published or 0.0))}",
        conditions=(Condition(WORKERS_OF_A_DAY, ">", 0),),
        unless=Condition(WORKERS, ">", 0),
        place="workers",
        alert="CacheGone",
        severity="warning",
        summary="No process has the cache {{ $labels.cache }}, which some had during the last day",
        window="1d",
        duration="10m",
    ),
    Rule(
        text=_loads_fail,
        conditions=(Condition(LOAD_FAILURES, ">", 0.05, LOADS), Condition(LOAD_FAILURES, ">=", 0.05)),
        by_group=True,
        place="loads",
        alert="LoadsFail",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the loads of {{ $labels.group }} in the cache "
        "{{ $labels.cache }} raise an exception",
    ),
    Rule(
        text=_store_fails,
        conditions=(Condition(STORE_ERRORS, ">", 0.05, STORE_CALLS), Condition(STORE_ERRORS, ">=", 0.05)),
        unless=Condition(OPEN_BREAKERS, ">", 0),
        place="store",
        alert="StoreFails",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the calls of the store behind the cache {{ $labels.cache }} fail",
    ),
    Rule(
        text=lambda cache: f"its timing wheel is {in_words(cache.figures.lag or 0.0)} late",
        conditions=(Condition(LAG, ">", 10),),
        place="workers",
        alert="WheelLate",
        severity="warning",
        summary="The timing wheel of the cache {{ $labels.cache }} is {{ $value | humanizeDuration }} late: expired "
        "entries are never returned, but stay in memory",
        duration="2m",
    ),
    Rule(
        text=lambda cache: (
            f"the system refused {cache.figures.refused} of its {cache.figures.workers} workers a wheel thread"
        ),
        conditions=(Condition(WITHOUT_THREAD, ">", 0),),
        place="workers",
        alert="NoWheelThread",
        severity="warning",
        summary="The system refused {{ $value }} processes with the cache {{ $labels.cache }} a wheel thread",
    ),
    Rule(
        text=lambda cache: (
            f"{cache.minute('load_timeouts'):,} callers gave up waiting for its loads in the last minute"
        ),
        conditions=(Condition(LOAD_TIMEOUTS, ">=", 0.1),),
        place="loads",
        alert="LoadTimeouts",
        severity="warning",
        summary="Callers of the cache {{ $labels.cache }} do not wait for the end of its loads",
    ),
    Rule(
        text=_refreshes_are_dropped,
        conditions=(Condition(REFRESHES_DROPPED, ">=", 0.1),),
        place="loads",
        alert="RefreshesDropped",
        severity="warning",
        summary="Too many loads of the cache {{ $labels.cache }} are under way to refresh its values",
        duration="10m",
    ),
    Rule(
        text=_is_refused,
        conditions=(Condition(REFUSED_TRACKERS, ">", 0),),
        place="store",
        alert="TrackingRefused",
        severity="warning",
        summary="The store behind the cache {{ $labels.cache }} refuses CLIENT TRACKING to {{ $value }} processes: "
        "they read every value from it, until the service, its version or the user's rights change",
    ),
    Rule(
        text=_is_not_notified,
        conditions=(Condition(LOST_TRACKERS, ">", 0),),
        unless=Condition(OPEN_BREAKERS, ">", 0),
        place="store",
        alert="TrackingLost",
        severity="warning",
        summary="The store behind the cache {{ $labels.cache }} does not notify {{ $value }} processes of writes: they "
        "read every value from it",
    ),
    Rule(
        text=lambda group: group.change.text(),
        conditions=(Condition(MISS_RISE, ">", 0),),
        by_group=True,
        place="comparison",
        alert="MissesRose",
        severity="warning",
        summary="Since the last release, {{ $labels.group }} in the cache {{ $labels.cache }} misses more often, by "
        "{{ $value | humanizePercentage }} of its look-ups",
    ),
    Rule(
        text=_is_too_small,
        conditions=(
            Condition(HITS, "<", 0.8, LOOKUPS),
            Condition(LOST, ">=", 0.1, LOOKUPS),
            # In the core in Python, the causes of most misses are unknown.
            Condition(EVICTIONS, ">", 0.25, MISSES),
            Condition(EVICTIONS, ">=", 0.1),
        ),
        place="misses",
        alert="TooSmall",
        severity="warning",
        summary="The cache {{ $labels.cache }} is too small: only {{ $value | humanizePercentage }} of its look-ups "
        "hit, and many of the others are for evicted entries: try doubling MAX_ENTRIES or MAX_BYTES",
        duration="10m",
    ),
    Rule(
        text=_has_full_page,
        conditions=(Condition(VARIANTS_REMOVED, ">=", 0.1),),
        place="pages",
        alert="TooManyVariants",
        severity="warning",
        summary="Pages of the cache {{ $labels.cache }} depend on a header or a cookie with too many values: the "
        "dashboard names both",
        duration="10m",
    ),
)
"""The problems of caches, from the worst to the least."""

WORKER_KILLED: Final = Rule(
    text=lambda end: f"{in_words(end.seconds_ago)} ago, {end.event.sentence()}",
    conditions=(Condition(KILLED_WORKERS, ">", 0),),
    alert="WorkerKilled",
    severity="warning",
    summary="Workers ended abruptly: they were killed, crashed, or left by os._exit",
    duration="0s",
)
"""The problem of a whole site. The argument of its conditions is an ``End``."""
