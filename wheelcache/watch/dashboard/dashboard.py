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
from string import Template
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core import HOW_TO_CHANGE, IMPLEMENTATION, REPORT
from wheelcache.pages.keys import check_purgeable
from wheelcache.pages.reasons import REASONS
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch import documents
from wheelcache.watch.causes import NAMES as CAUSES
from wheelcache.watch.dashboard.inspection import Target, answers, ask
from wheelcache.watch.dashboard.one_cache import Wanted, details, rehearsal
from wheelcache.watch.dashboard.permissions import Permission, Permissions
from wheelcache.watch.dashboard.refusals import Refused
from wheelcache.watch.event_log import CLEARED, MAX_EVENTS, Event
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.inquiries import CLEAR, PURGE, inquiry_of
from wheelcache.watch.key_advice import on_keys
from wheelcache.watch.observers import observer_of
from wheelcache.watch.problems import headline, problems_of
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.rows import reading_of
from wheelcache.watch.site import OVERVIEW, OverviewStep, Own, Site
from wheelcache.watch.spans import Span

_SCRIPTS: Final = (
    "dashboard",
    "caches",
    "chosen",
    "charts",
    "details",
    "groups",
    "inspection",
    "nodes",
    "words",
    "workers",
)

ASSETS: Final = {
    "dashboard.css": "text/css",
    "uPlot.min.css": "text/css",
    "uPlot.iife.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    **{f"{name}.js": "text/javascript" for name in _SCRIPTS},
}
"""The files that the page loads, and their media types. Texts are encoded in UTF-8."""

LATEST_EVENTS: Final = 30
"""Number of events that the page shows. All stored events would take 25 KB, every three seconds."""

WITHIN: Final = 2 * INTERVAL
"""Seconds within which another process clears its cache: twice the interval at which it looks for requests."""

SPARKS: Final = 60
"""The number of steps in a sparkline."""

SPARKLINES: Final = ("answered_ratio", "stale_ratio", "requests_per_second")

NO_STEP: Final = OverviewStep(*[0] * len(OVERVIEW))

LAST_HOUR: Final = Wanted()

_FOLDER: Final = files("wheelcache.watch.dashboard")


@dataclass(eq=False)
class Dashboard:
    """Provides the content of the page, and runs its actions.

    Args:
        title: the title of the page.
        caches: returns the caches of the site in this process.
        settings: returns the settings of the cache with a given name: name, value, whether it is the default, and
            meaning.
    """

    _title: str
    _caches: Callable[[], Iterable[Cache]]
    _settings: Callable[[str], Sequence[tuple[str, str, bool]]]

    def page(self, granted: Permissions, home: str = "/") -> str:
        """Return the page in HTML.

        Args:
            granted: the permissions of the user, which decide on the buttons.
            home: the address of the site's home page.
        """
        config = {
            "may_operate": Permission.OPERATE in granted,
            "may_inspect": Permission.INSPECT in granted,
            "causes": CAUSES,
            "reasons": {name: f"{reason.cause} {reason.advice}" for name, reason in REASONS.items()},
        }
        # In a script element, only "<" can begin markup.
        encoded = json.dumps(config).replace("<", "\\u003c")
        return Template(asset("page.html").decode()).safe_substitute(
            title=html.escape(self._title),
            home=html.escape(home),
            config=encoded,
            core=html.escape(f"{REPORT}. {HOW_TO_CHANGE}") if IMPLEMENTATION == "python" else "",
        )

    def figures(
        self, named: Collection[str] | None = None, wanted: Wanted = LAST_HOUR, *, shows_texts: bool = False
    ) -> dict[str, Any]:
        """Return the content of the page, as a JSON document. All figures are of the wanted span, except ``now``,
        problems, advice and workers.

        Args:
            named: the names of the caches whose details are wanted; None for the first one.
            shows_texts: whether the user may see the texts of pages that differed in a rehearsal.
        """
        site = Site(self._caches())
        events = site.events(MAX_EVENTS)
        found = problems_of(site, events)
        order = {each.cache: place for place, each in reversed(list(enumerate(found)))}
        # Caches with problems come first, beginning with the worst.
        figures = sorted(site.caches, key=lambda each: order.get(each.name, len(found)))
        if named is None:
            named = [each.name for each in figures[:1]]
        span = wanted.span(site)
        lines = span.with_at_most(SPARKS)
        whole = wanted.whole(site, lines)
        overview = site.overview(whole)
        return {
            "title": self._title,
            "at": SystemClock.time(),
            "refresh": INTERVAL,
            "this_worker": os.getpid(),
            "headline": headline(found, [each.name for each in figures]),
            "problems": [
                {"cache": each.cache, "group": each.group, "text": each.alone, "sentence": str(each)} for each in found
            ],
            "advice": [f"Cache {each.name!r}: {text}" for each in site.caches for text in on_keys(each)],
            "events": [_event(each) for each in events[:LATEST_EVENTS]],
            "span": {
                "from": span.since,
                "until": span.until,
                "step": span.step,
                "is_now": span.until == site.edge,
                "earliest": min((each.since for each in figures if each.since is not None), default=span.since),
            },
            "caches": [
                _card(each, site)
                | _overview(
                    each,
                    overview.get(each.name, {}),
                    lines,
                    min(site.time, whole.until),
                )
                | (
                    details(each, site, span, wanted, found, events)
                    | {"settings": [setting[:2] for setting in self._settings(each.name) if not setting[2]]}
                    | {"rehearsal": rehearsal(each.name, site, shows_texts=shows_texts)}
                    if each.name in named
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
            Refused: if no process has the cache.
            FileUnusable, OSError: if the other processes cannot be asked.
        """

        def clear(cache: Cache) -> None:
            observer_of(cache).run(CLEAR)
            publication = observer_of(cache).publication
            if publication is not None:
                # Publish, so that the page shows the effect immediately.
                publication.run_now()

        return f"Cleared {name}. {self._run_everywhere(CLEAR, name, clear, CLEARED, by)}"

    def purge(self, name: str, target: str, by: str) -> str:
        """Remove the pages of a URL or a host in all processes, and return a message for the user.

        It has the number of removed pages if this process has the cache. The others act later.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            NotPurgeable: if ``target`` is neither a URL nor a host.
            Refused: if no process has the cache, or it does not belong to an HTTP cache.
            FileUnusable, OSError: if the other processes cannot be asked.
        """
        target = target.strip()
        check_purgeable(target)
        if _named(name, Site(self._caches())).stats.pages is None:
            raise Refused(f"The cache {name!r} has no pages to purge")

        removed: list[int] = []

        def purge(cache: Cache) -> None:
            removed.append(observer_of(cache).run(PURGE, target))

        effect = self._run_everywhere(PURGE, name, purge, PURGE, f"{by}: {target}", target=target)
        known = f" ({sum(removed):,} pages in this process)" if removed else ""
        return f"Purged {target}{known}. {effect}"

    def inspect(self, name: str, target: Target, by: str) -> dict[str, Any]:
        """Ask the workers about the entries of a cache, or to delete some. Return ``token``, for ``answers``.

        Args:
            by: the name of the operator, for the recent events.

        Raises:
            Refused: if ``target`` is invalid, or no worker publishes the figures of such a cache, so that none can
                be asked.
            FileUnusable, OSError: if the workers cannot be asked.
        """
        site = Site(self._caches(), Own.NONE)
        _check_inspectable(name, site)
        for publication in [observer_of(each).publication for each in site.own if each.name == name]:
            if publication is not None:
                # This process answers as well, even if its cache is new.
                publication.run_now()
        return {"token": ask(site, name, target, by)}

    def answers(self, token: str) -> dict[str, Any]:
        """Return the present answers to an inquiry: see ``inspection.answers``.

        Raises:
            Refused: if there is no such inquiry, or its answers were read, or as for ``inspect``.
            FileUnusable, OSError: if the answers cannot be read.
        """
        site = Site(self._caches(), Own.NONE)
        found = inquiry_of(site, token)
        if found is None:
            raise Refused("This search is over: repeat it", 404)
        name, inquiry, at = found
        _check_inspectable(name, site)
        return answers(site, token, inquiry, at)

    def _run_everywhere(
        self, action: str, name: str, act: Callable[[Cache], object], event: str, by: str, **arguments: str
    ) -> str:
        """Ask all processes for ``action`` on a cache, and call ``act`` in this process.

        Returns:
            A sentence that says where the action takes effect.
        """
        site = Site(self._caches())
        figures = _named(name, site)
        effect = _effect(figures, site)
        # Entries that processes share are removed here, for all of them.
        is_done_here = action == CLEAR and site.shared(name) is not None
        token = None if is_done_here else site.ask(action, name, **arguments)
        for cache in site.own:
            if cache.name == name:
                publication = observer_of(cache).publication
                if publication is not None and token is not None:
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
        Refused: if no process has the cache.
    """
    for each in site.caches:
        if each.name == name:
            return each
    raise Refused(f"There is no cache {name!r}", 404)


def _check_inspectable(name: str, site: Site) -> None:
    if name not in {*(each.name for each in site.own), *(each.name for each in site.caches)}:
        raise Refused(f"There is no cache {name!r}", 404)
    if not site.is_shared(name):
        raise Refused(f"The cache {name!r} cannot be inspected: set FIGURES_DIR to a directory", 404)


def _effect(figures: CacheFigures, site: Site) -> str:
    """Return a sentence that says in which processes an action takes effect."""
    if site.shared(figures.name) is not None:
        return "Takes effect in all workers of this machine immediately."
    if not site.is_shared(figures.name):
        return (
            f"Takes effect in worker {os.getpid()} only: the workers of this site do not share figures, so other "
            "workers are not notified."
        )
    pids = sorted({each.pid for each in figures.processes} - {os.getpid()})
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
        "is_used": any(reading_of(figures.stats).counts) or figures.stats.size > 0,
        "clear_effect": _effect(figures, site),
        "since": figures.since,
        "now": documents.present(figures),
        "worker_count": figures.workers,
    }


def _overview(figures: CacheFigures, steps: Mapping[int, OverviewStep], span: Span, time: float) -> dict[str, Any]:
    """Return the figures of a cache in a span, and the values of its sparklines, None for a step without the cache.

    Args:
        time: the end of the counts, in seconds since 1970.
    """
    total: Any = OverviewStep._make(map(sum, zip(*steps.values(), strict=True))) if steps else NO_STEP
    # A younger cache has had no look-ups before its first worker was started.
    seconds = max(time - max(span.since, figures.since or 0.0), 1.0)
    requests = total.hits + total.stale_hits + total.misses
    starts = [start for start in range(*span) if start + span.step <= span.until]
    lines = [_ratios(steps.get(start), span.step) for start in starts]
    return {
        "figures": {
            "requests": requests,
            "requests_per_second": requests / seconds,
            "hit_ratio": total.hits / requests if requests else None,
            "answered_ratio": (total.hits + total.store_hits) / requests if requests else None,
            "stale_ratio": total.stale_hits / requests if requests else None,
            "evictions_per_second": total.evictions / seconds,
            "load_failures": total.load_failures,
            "store_errors": total.store_errors,
        },
        "recent": {name: [line[name] for line in lines] for name in SPARKLINES},
    }


def _ratios(step: Any, seconds: int) -> dict[str, float | None]:
    if step is None:
        return dict.fromkeys(SPARKLINES)
    requests = step.hits + step.stale_hits + step.misses
    if not requests:
        return {**dict.fromkeys(SPARKLINES), "requests_per_second": 0.0}
    return {
        "answered_ratio": round((step.hits + step.store_hits) / requests, 3),
        "stale_ratio": round(step.stale_hits / requests, 3),
        "requests_per_second": requests / seconds,
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "since": event.since,
        "kind": event.kind,
        "cache": event.cache,
        "groups": event.groups,
        "text": event.sentence(),
    }
