"""The dashboard: a page that shows the figures of a site's caches, and its buttons, independent of the framework.

``responses`` checks the requests, and calls the methods of ``Dashboard``.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from operator import attrgetter
from string import Template
from typing import Any, Final

from wheelcache.core import HOW_TO_CHANGE, REPORT
from wheelcache.observability import documents
from wheelcache.observability.advice import advise, curve
from wheelcache.observability.dashboard.inspection import Target, answers, ask
from wheelcache.observability.dashboard.permissions import Permission, Permissions
from wheelcache.observability.dashboard.refusals import (
    InquiryOver,
    NoPages,
    NotInspectable,
    NotPublished,
    UnknownCache,
)
from wheelcache.observability.event_log import CLEARED, MAX_EVENTS, RESET, Event
from wheelcache.observability.figures import CacheFigures, WorkerFigures
from wheelcache.observability.inquiries import inquiry_of
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.problems import headline, problems_of
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.purge_targets import check_purgeable
from wheelcache.observability.recorder import MINUTE
from wheelcache.observability.rehearsal_results import COUNTED, findings, result_of
from wheelcache.observability.site import RECENTLY, OverviewStep, Own, Site, Step
from wheelcache.observability.tables import LEVELS, STEP
from wheelcache.readable import CLEAR, PURGE
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import NOTHING, REASONS, Stats

_SCRIPTS: Final = ("dashboard", "caches", "charts", "details", "inspection", "nodes", "words")

ASSETS: Final = {
    "dashboard.css": "text/css",
    "icon.svg": "image/svg+xml",
    **{f"{name}.js": "text/javascript" for name in _SCRIPTS},
}
"""The files that the page loads, and their media types. Texts are encoded in UTF-8."""

LATEST_EVENTS: Final = 30
"""Number of events that the page shows. All stored events would take 25 KB, every three seconds."""

WITHIN: Final = 2 * INTERVAL
"""Seconds within which another process clears its cache: twice the interval at which it looks for requests."""

MOST_VIEWS: Final = 100
MOST_FINDINGS: Final = 100
"""Of a rehearsal, beginning with the views that have wrong pages. The command shows all."""

_FOLDER: Final = files("wheelcache.observability.dashboard")


@dataclass(eq=False)
class Dashboard:
    """Provides the content of the page, and runs its actions.

    Args:
        title: the title of the page.
        caches: returns the caches of the site in this process.
        settings: returns the settings of the cache with a given name: name, value, whether it is the default, and
            meaning.
        may_be_inspected: returns whether the cache with a given name has the option ``inspect``.
    """

    _title: str
    _caches: Callable[[], Iterable[ObservedCache]]
    _settings: Callable[[str], Sequence[tuple[str, str, bool, str]]]
    _may_be_inspected: Callable[[str], bool] = lambda name: False

    def page(self, granted: Permissions, home: str = "/") -> str:
        """Return the page in HTML.

        Args:
            granted: the permissions of the user, which decide on the buttons.
            home: the address of the site's home page.
        """
        config = {
            "may_operate": Permission.OPERATE in granted,
            "may_inspect": Permission.INSPECT in granted,
            "reasons": {name: f"{reason.cause} {reason.advice}" for name, reason in REASONS.items()},
        }
        # In a script element, only "<" can begin markup.
        encoded = json.dumps(config).replace("<", "\\u003c")
        return Template(asset("page.html").decode()).safe_substitute(
            title=html.escape(self._title),
            home=html.escape(home),
            config=encoded,
            core=html.escape(f"{REPORT}. {HOW_TO_CHANGE}"),
        )

    def figures(
        self, details: Collection[str] | None = None, span: str = "hour", *, shows_texts: bool = False
    ) -> dict[str, Any]:
        """Return the content of the page, as a JSON document.

        Args:
            details: the names of the caches whose workers and history are wanted; None for the first one.
            span: the period of the history: "day"; any other value selects an hour.
            shows_texts: whether the user may see the texts of pages that differed in a rehearsal.
        """
        site = Site(self._caches())
        recent, events = site.recent(), site.events(MAX_EVENTS)
        found = problems_of(site, recent, events)
        order = {each.cache: place for place, each in reversed(list(enumerate(found)))}
        # Caches with problems come first, beginning with the worst.
        figures = sorted(site.caches, key=lambda each: order.get(each.name, len(found)))
        if details is None:
            details = [each.name for each in figures[:1]]
        steps = _latest_steps(recent)
        return {
            "title": self._title,
            "at": SystemClock.time(),
            "refresh": INTERVAL,
            "this_worker": os.getpid(),
            "since": site.reset_at,
            "can_reset": bool(site.files),
            "headline": headline(found, [each.name for each in figures]),
            "problems": [{"cache": each.cache, "text": each.text, "sentence": str(each)} for each in found],
            "advice": [str(each) for each in advise(site.caches)],
            "events": [_event(each) for each in events[:LATEST_EVENTS]],
            "caches": [
                _card(each, site)
                | {"can_inspect": self._can_inspect(each.name, site)}
                | {"recent": _sparklines([recent.get(each.name, {}).get(start) for start in steps])}
                | (
                    _details(each, site, span == "day")
                    | {"settings": self._settings(each.name)}
                    | {"rehearsal": _rehearsal(each.name, site, shows_texts=shows_texts)}
                    if each.name in details
                    else {}
                )
                for each in figures
            ],
        }

    def clear(self, name: str, by: str) -> str:
        """Clear a cache in all processes, and return a message for the user.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            UnknownCache: if no process has the cache.
            FileUnusable, OSError: if the other processes cannot be asked.
        """

        def clear(cache: ObservedCache) -> None:
            cache.observer.run(CLEAR)
            if cache.observer.publication is not None:
                # Publish, so that the page shows the effect immediately.
                cache.observer.publication.run_now()

        return f"Cleared {name}. {self._run_everywhere(CLEAR, name, clear, CLEARED, by)}"

    def purge(self, name: str, target: str, by: str) -> str:
        """Remove the pages of a URL or a host in all processes, and return a message for the user.

        It has the number of removed pages if this process has the cache. The others act later.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            NotPurgeable: if ``target`` is neither a URL nor a host.
            UnknownCache: if no process has the cache.
            NoPages: if the cache does not belong to an HTTP cache.
            FileUnusable, OSError: if the other processes cannot be asked.
        """
        target = target.strip()
        check_purgeable(target)
        if _named(name, Site(self._caches())).counted.pages is None:
            raise NoPages(name)

        removed: list[int] = []

        def purge(cache: ObservedCache) -> None:
            removed.append(cache.observer.run(PURGE, target))

        effect = self._run_everywhere(PURGE, name, purge, PURGE, f"{by}: {target}", target=target)
        known = f" ({sum(removed):,} pages in this process)" if removed else ""
        return f"Purged {target}{known}. {effect}"

    def reset(self, by: str) -> str:
        """Reset the figures to zero on all pages, and return a message for the user.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            NotPublished: if the caches do not publish their figures.
            FileUnusable, OSError: if the reset cannot be stored.
        """
        site = Site(self._caches())
        if not site.files:
            raise NotPublished
        publications = [each.observer.publication for each in site.own]
        for publication in {each.publisher: each for each in publications if each is not None}.values():
            publication.run_now()
        site.reset()
        site.note(RESET, by)
        return "The figures start from zero."

    def inspect(self, name: str, target: Target, by: str) -> dict[str, Any]:
        """Ask the workers about the entries of a cache, or to delete some. Return ``token``, for ``answers``.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            NotInspectable: if there is no such cache with the option ``inspect``, or it is not published.
            BadTarget: if ``target`` is invalid.
            FileUnusable, OSError: if the workers cannot be asked.
        """
        site = Site(self._caches(), Own.NONE)
        self._check_inspectable(name, site)
        for cache in site.own:
            if cache.name == name and cache.observer.publication is not None:
                # This process answers as well, even if its cache is new.
                cache.observer.publication.run_now()
        return {"token": ask(site, name, target, by)}

    def answers(self, token: str) -> dict[str, Any]:
        """Return the present answers to an inquiry: see ``inspection.answers``.

        Raises:
            InquiryOver: if there is no such inquiry.
            NotInspectable: as for ``inspect``.
            FileUnusable, OSError: if the answers cannot be read.
        """
        site = Site(self._caches(), Own.NONE)
        found = inquiry_of(site, token)
        if found is None:
            raise InquiryOver
        name, inquiry, at = found
        self._check_inspectable(name, site)
        return answers(site, token, inquiry, at)

    def _can_inspect(self, name: str, site: Site) -> bool:
        return self._may_be_inspected(name) and site.is_shared(name)

    def _check_inspectable(self, name: str, site: Site) -> None:
        if not self._can_inspect(name, site):
            raise NotInspectable(name)

    def _run_everywhere(
        self, action: str, name: str, act: Callable[[ObservedCache], object], event: str, by: str, **arguments: str
    ) -> str:
        """Ask all processes for ``action`` on a cache, and call ``act`` in this process.

        Returns:
            A sentence that says where the action takes effect.
        """
        site = Site(self._caches())
        figures = _named(name, site)
        effect = _effect(figures, site)
        token = site.ask(action, name, **arguments)
        for cache in site.own:
            if cache.name == name:
                publication = cache.observer.publication
                if publication is not None:
                    publication.inquiries.note_done(token)
                act(cache)
        site.note(event, by, name)
        return effect


def asset(name: str) -> bytes:
    """Return the content of a file that the page loads."""
    return _FOLDER.joinpath(name).read_bytes()


def _named(name: str, site: Site) -> CacheFigures:
    """Return the figures of the cache ``name``.

    Raises:
        UnknownCache: if no process has the cache.
    """
    for each in site.caches:
        if each.name == name:
            return each
    raise UnknownCache(name)


def _effect(figures: CacheFigures, site: Site) -> str:
    """Return a sentence that says in which processes an action takes effect."""
    if not site.is_shared(figures.name):
        return (
            f"Takes effect in worker {os.getpid()} only: the workers of this site do not share figures, so other "
            "workers are not notified."
        )
    pids = [pid for pid in figures.pids if pid != os.getpid()]
    if not pids:
        return f"Takes effect in worker {os.getpid()}, the only one."
    if len(pids) > 8:
        return f"Takes effect in all {len(pids) + 1} workers of this machine, within {WITHIN:g} seconds."
    return (
        f"Takes effect in worker {os.getpid()} immediately, and in {' and '.join(map(str, pids))} within "
        f"{WITHIN:g} seconds."
    )


def _card(figures: CacheFigures, site: Site) -> dict[str, Any]:
    return {
        "name": figures.name,
        "is_shared": site.is_shared(figures.name),
        "is_used": any(figures.counted.counts()) or figures.stats.size > 0,
        "clear_effect": _effect(figures, site),
        "since": figures.since,
        "reset_at": figures.reset_at,
        "now": documents.last_minute(figures.minute),
        "total": documents.totals(figures.stats, figures),
        "store": documents.store(figures.stats.store),
        "pages": documents.pages(figures.stats.pages),
        "worker_count": figures.workers,
    }


def _latest_steps(recent: Mapping[str, Mapping[int, OverviewStep]]) -> range:
    """Return the starts of the steps in the sparklines, which are the same for all caches."""
    last = max((start for steps in recent.values() for start in steps), default=0)
    return range(last - RECENTLY + STEP, last + STEP, STEP)


def _sparklines(steps: Sequence[Any]) -> dict[str, Any]:
    """Return the values of the sparklines (None for a step without the cache) and the sums over the last minute."""
    last_minute = [each for each in steps[-MINUTE:] if each is not None]
    answered_ratio, stale_ratio, requests_per_second = zip(*map(_ratios, steps), strict=True)
    return {
        "answered_ratio": answered_ratio,
        "stale_ratio": stale_ratio,
        "requests_per_second": requests_per_second,
        "evictions_per_second": sum(each.evictions for each in last_minute) / (MINUTE * STEP),
        "failures": sum(each.load_failures for each in last_minute),
        "store_errors": sum(each.store_errors for each in last_minute),
    }


def _ratios(step: Any) -> tuple[float | None, float | None, float | None]:
    if step is None:
        return None, None, None
    hits, stale_hits, misses, store_hits, *_ = step
    requests = hits + stale_hits + misses
    if not requests:
        return None, None, 0.0
    return round((hits + store_hits) / requests, 3), round(stale_hits / requests, 3), requests / STEP


def _details(figures: CacheFigures, site: Site, day: bool) -> dict[str, Any]:
    name, since = figures.name, figures.reset_at or 0.0
    seconds, hour = site.steps(name, since=since)
    recent = list(hour.values())
    if day:
        seconds, shown = site.steps(name, day=True, since=since)
    else:
        shown = hour
    return {
        "saved": site.saved_at(name),
        "workers": [_worker(each) for each in site.workers(name)],
        "cores": list(figures.cores),
        "curve": curve(figures.stats.sample),
        "groups": documents.groups(figures),
        "history": {
            "step": seconds,
            "at": [start + seconds for start in shown],
            **{name: [read(step, seconds) for step in shown.values()] for name, read in HISTORY.items()},
        },
        "times": {
            "minute": _times(recent[-MINUTE:]),
            "hour": _times(recent),
        },
    }


def _rehearsal(name: str, site: Site, *, shows_texts: bool) -> dict[str, Any] | None:
    outcomes, mode = site.rehearsed().get(name), site.modes().get(name)
    if outcomes is None:
        return None
    result = result_of(name, outcomes, mode)
    found = [{"sentence": each, "details": details} for each, details in findings(result, shows_texts=shows_texts)]
    views = [{kind: row[kind] for kind in ("view", *COUNTED)} for row in result["views"][:MOST_VIEWS]]
    return {"sentence": result["sentence"], "mode": mode, "views": views, "findings": found[:MOST_FINDINGS]}


def _of_store(kind: str) -> Callable[[Any, int], float | None]:
    names = [f"{kind}_{place}" for place in range(len(Stats().load_buckets))]
    calls = attrgetter(*names)
    seconds = attrgetter(f"{kind}_seconds")
    return lambda step, _: documents.mean_ms(seconds(step), sum(calls(step)))


HISTORY: Final[dict[str, Callable[[Any, int], float | None]]] = {
    "hit_ratio": lambda step, _: _share(step.hits, step),
    "store_ratio": lambda step, _: _share(step.store_hits, step),
    "stale_ratio": lambda step, _: _share(step.stale_hits, step),
    "requests_per_second": lambda step, seconds: (step.hits + step.stale_hits + step.misses) / seconds,
    "misses_per_second": lambda step, seconds: step.misses / seconds,
    "stale_per_second": lambda step, seconds: step.stale_hits / seconds,
    "entries": lambda step, _: step.entries,
    "bytes": lambda step, _: step.memory or (None if step.entries else 0.0),
    "evictions_per_second": lambda step, seconds: step.evictions / seconds,
    "expirations_per_second": lambda step, seconds: step.expirations / seconds,
    "load_ms": lambda step, _: documents.mean_ms(step.load_seconds, step.loads + step.load_failures),
    "store_read_ms": _of_store("read"),
    "store_write_ms": _of_store("write"),
    "store_errors_per_second": lambda step, seconds: (step.read_errors + step.write_errors) / seconds,
    "store_refused_per_second": lambda step, seconds: (step.read_refused + step.write_refused) / seconds,
    "started": lambda step, _: step.started,
}
"""The lines of the charts: functions of a step and its length in seconds. None leaves a gap."""


def _share(count: float, step: Any) -> float | None:
    requests = step.hits + step.stale_hits + step.misses
    return count / requests if requests else None


def _times(steps: Iterable[Step]) -> dict[str, Any]:
    """Return the durations of loads and of reads of the store, as buckets."""
    sums = tuple(map(sum, zip(*steps, strict=True)))
    stats = Stats.of(sums[len(LEVELS) :] if sums else NOTHING)
    return {
        "loads": documents.buckets(stats.load_buckets),
        "store_reads": documents.buckets(() if stats.store is None else stats.store.reads.buckets),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "since": event.since,
        "kind": event.kind,
        "cache": event.cache,
        "text": event.sentence(),
    }


def _worker(figures: WorkerFigures) -> dict[str, Any]:
    stats = figures.stats
    return {
        **documents.worker(figures),
        "is_this": figures.pid == os.getpid(),
        "now": documents.last_minute(figures.minute),
        "total": documents.totals(stats, figures),
        "breaker_open": stats.store is not None and stats.store.open_breakers > 0,
    }
