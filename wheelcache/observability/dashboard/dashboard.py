"""The page that shows the figures of a site's caches, and its buttons; a framework only carries it.

The framework answers ``GET`` of the page itself, of ``figures.json`` and of the names in ``ASSETS``, and ``POST`` of
``clear``, ``save`` and ``reset``, all under one prefix that ends with a slash. It checks the ``Permission`` of the user
for each request, and for a ``POST`` also the token that the page was made with.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.resources import files
from string import Template
from typing import Any, Final

from wheelcache.core import HOW_TO_CHANGE, REPORT
from wheelcache.errors import FileUnusable
from wheelcache.observability.collect import (
    collect,
    directories_of,
    is_shared,
    note_event,
    note_reset,
    recent_events,
    saved_at,
    since_reset,
    time_series,
)
from wheelcache.observability.event_log import CLEARED, RESET, Event
from wheelcache.observability.history import DAY, HOUR, Ring
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.worker_requests import CLEAR, SAVE, RequestBox
from wheelcache.observability.worker_stats import CacheStats
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import LOAD_BOUNDS, CallStats, Stats, StoreStats

ASSETS: Final = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The files beside the page, and their types. They are in UTF-8."""

HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer."""

FEW: Final = 3
"""Caches that are shown with all their details at first: of more, the page shows a line each."""

LATEST_EVENTS: Final = 30
"""Those that the page shows. All that are kept would be 25 KB, every three seconds."""

WITHIN: Final = 2 * INTERVAL
"""Seconds to a clear in another process: it looks for one every ``INTERVAL``, up to a tick late, which is no longer."""

_FOLDER: Final = files("wheelcache.observability.dashboard")


class UnknownCache(LookupError):
    """No process of the site has a cache of that name."""

    def __str__(self) -> str:
        return f"There is no cache {self.args[0]!r}"


class NotKept(RuntimeError):
    """No snapshots of the cache are configured."""

    def __str__(self) -> str:
        return f"The cache {self.args[0]!r} has no snapshots: set SNAPSHOT to a directory"


class NotPublished(RuntimeError):
    """The caches do not publish their figures, so nothing can be noted for all pages."""

    def __str__(self) -> str:
        return "These caches do not publish their figures, so a reset cannot be noted for all who look at them"


class Dashboard:
    """What the page shows and does.

    Args:
        title: of the page.
        caches: tells the caches of the site in this process.
        settings: tells those of the cache of a name, each as name, value, whether that is the default, and meaning.
    """

    def __init__(
        self,
        title: str,
        caches: Callable[[], Iterable[ObservedCache]],
        settings: Callable[[str], Sequence[tuple[str, str, bool, str]]],
    ) -> None:
        self._title = title
        self._caches = caches
        self._settings = settings

    def page(self, token_header: str, token: str, home: str = "/", *, may_operate: bool) -> str:
        """Return the page, in HTML.

        Args:
            token_header, token: the header that its ``POST`` requests must have, and its value.
            home: the address of the site's first page.
            may_operate: whether the page shows its buttons.
        """
        config = {
            "may_operate": may_operate,
            "figures": "figures.json",
            "clear": "clear",
            "save": "save",
            "reset": "reset",
            "token_header": token_header,
            "token": token,
        }
        # In a script element nothing is markup but what begins with this.
        encoded = json.dumps(config).replace("<", "\\u003c")
        return Template(asset("page.html").decode()).safe_substitute(
            title=html.escape(self._title),
            home=html.escape(home),
            config=encoded,
            core=html.escape(f"{REPORT}. {HOW_TO_CHANGE}"),
        )

    def figures(self, details: Collection[str] | None = None, span: str = "hour") -> dict[str, Any]:
        """What the page shows, to be sent as JSON.

        Args:
            details: the names of the caches whose workers and history are wanted; None for all, unless there are more
                than ``FEW``. Of 25 caches in 40 workers, the rest takes 50 ms.
            span: of the history: "day", or what is taken for "hour".
        """
        own = list(self._caches())
        found = collect(own)
        # A reset does not make it one that was never used.
        used = {
            each.name
            for each in found
            if each.exited_workers.is_used or any(worker.stats.is_used for worker in each.workers)
        }
        at, figures = since_reset(found, own)
        ring = DAY if span == "day" else HOUR
        if details is None:
            details = [each.name for each in figures] if len(figures) <= FEW else ()
        return {
            "title": self._title,
            "at": SystemClock.time(),
            "refresh": INTERVAL,
            "this_worker": os.getpid(),
            "since": at,
            "can_reset": bool(directories_of(own)),
            "events": [_event(each) for each in recent_events(own, LATEST_EVENTS)],
            "caches": [
                _card(each, is_shared(each.name, own))
                | {"is_used": each.name in used}
                | (
                    {
                        **_details(each, own, ring, at),
                        "settings": self._settings(each.name),
                    }
                    if each.name in details
                    else {}
                )
                for each in figures
            ],
        }

    def clear(self, name: str, by: str) -> str:
        """Clear a cache in all processes. What was done, in a sentence.

        Args:
            by: who did it, for the recent events.

        Raises:
            UnknownCache: no process has it.
            FileUnusable, OSError: the other processes cannot be told.
        """

        def clear(cache: ObservedCache) -> None:
            cache.clear_for(None)
            if cache.publisher is not None:
                # The page shows it at once.
                cache.publisher.run_now()

        return f"Cleared {name}. {self._have_done(CLEAR, name, clear, CLEARED, by)}"

    def save(self, name: str, by: str) -> str:
        """Have all processes save a cache, which takes them seconds. What was done, in a sentence.

        Args:
            by: who asked, for the recent events.

        Raises:
            UnknownCache: no process has it.
            NotKept: it has no snapshots.
            FileUnusable, OSError: the other processes cannot be told.
        """
        own = list(self._caches())
        if not _is_kept(name, own):
            # Which of the two it is takes a look at the files of all workers.
            _named(name, own)
            raise NotKept(name)

        def save(cache: ObservedCache) -> None:
            if cache.keeper is not None:
                cache.keeper.run()

        return f"{name} is being saved. {self._have_done(SAVE, name, save, SAVE, by)}"

    def reset(self, by: str) -> str:
        """Have the figures start from zero, on all pages. What was done, in a sentence.

        Args:
            by: who did it, for the recent events.

        Raises:
            NotPublished: there is nowhere to note it.
            FileUnusable, OSError: it cannot be noted.
        """
        own = list(self._caches())
        if not directories_of(own):
            raise NotPublished
        for cache in own:
            if cache.publisher is not None:
                cache.publisher.run_now()
        note_reset(own)
        note_event(own, RESET, by)
        return "The figures start from zero."

    def _have_done(self, action: str, name: str, act: Callable[[ObservedCache], object], event: str, by: str) -> str:
        """Ask all processes for ``action`` on a cache, and call ``act`` for those here. Where it takes effect."""
        own = list(self._caches())
        figures = _named(name, own)
        here = [each for each in own if each.name == name]
        tokens = {each.path: RequestBox(each.path).ask(action, name) for each in directories_of(here or own)}
        for cache in here:
            if cache.requests is not None and cache.publisher is not None:
                cache.requests.note_done(action, tokens[cache.publisher.directory.path])
            act(cache)
        note_event(here or own, event, by, name)
        return _effect(figures, is_shared(name, own))


def answer(figures_or_message: Callable[[], Any]) -> tuple[int, dict[str, Any]]:
    """The status and the JSON that answer a request for the figures, or for one of the actions.

    Args:
        figures_or_message: calls the method of ``Dashboard``.
    """
    try:
        found = figures_or_message()
    except UnknownCache as error:
        return 404, {"error": str(error)}
    except (NotKept, NotPublished) as error:
        return 409, {"error": str(error)}
    except (FileUnusable, OSError) as error:
        return 503, {"error": str(error)}
    return 200, {"message": found} if isinstance(found, str) else found


def asset(name: str) -> bytes:
    """A file of the page."""
    return _FOLDER.joinpath(name).read_bytes()


def _named(name: str, own: Iterable[ObservedCache]) -> CacheStats:
    """
    Raises:
        UnknownCache: no process has it.
    """
    for each in collect(own):
        if each.name == name:
            return each
    raise UnknownCache(name)


def _is_kept(name: str, own: Iterable[ObservedCache]) -> bool:
    """Whether there are snapshots of a cache."""
    return any(each.keeper is not None for each in own if each.name == name)


def _effect(figures: CacheStats, shared: bool) -> str:
    """In which processes a clear takes effect."""
    if not shared:
        return (
            f"Takes effect in worker {os.getpid()} only: the workers of this site do not share figures, so other "
            "workers are not told."
        )
    others = sorted({each.pid for each in figures.workers} - {os.getpid()})
    if not others:
        return f"Takes effect in worker {os.getpid()}, the only one."
    if len(others) > 8:
        return f"Takes effect in all {len(others) + 1} workers of this machine, within {WITHIN:g} seconds."
    return (
        f"Takes effect in worker {os.getpid()} at once, and in {' and '.join(map(str, others))} within "
        f"{WITHIN:g} seconds."
    )


def _card(figures: CacheStats, shared: bool) -> dict[str, Any]:
    total = figures.total
    return {
        "name": figures.name,
        "is_shared": shared,
        "clear_effect": _effect(figures, shared),
        "since": figures.counted_since,
        "reset_at": figures.reset_at,
        "now": _now(figures),
        "total": _total(figures, total),
        "store": _store(total.store),
        "worker_count": len({each.pid for each in figures.workers}),
    }


def _store(stats: StoreStats | None) -> dict[str, Any] | None:
    """Of the store behind a near cache; None of any other."""
    if stats is None:
        return None
    return {
        "reads": _calls(stats.reads),
        "writes": _calls(stats.writes),
        "breakers": stats.breakers,
        "open_breakers": stats.open_breakers,
        "trackers": stats.trackers,
        "trusted": stats.trusted,
    }


def _calls(calls: CallStats) -> dict[str, Any]:
    return {
        "calls": calls.calls,
        "errors": calls.errors,
        "refused": calls.refused,
        "seconds": calls.seconds,
        "buckets": {"bounds": LOAD_BOUNDS, "counts": calls.buckets},
    }


def _details(figures: CacheStats, own: Iterable[ObservedCache], ring: Ring, reset_at: float | None) -> dict[str, Any]:
    series = time_series(figures, own, ring, since=figures.reset_at or reset_at)
    return {
        "saved": saved_at(figures.name, own),
        "can_save": _is_kept(figures.name, own),
        "workers": [_worker(each) for each in figures.by_process()],
        "cores": sorted({each.core for each in figures.workers}),
        "history": {
            "step": series.step,
            "at": series.at,
            "hit_ratio": series.hit_ratio,
            "requests_per_second": series.requests,
            "misses_per_second": series.misses,
            "entries": series.entries,
            "bytes": series.memory,
            "evictions_per_second": series.evictions,
            "expirations_per_second": series.expirations,
            "load_ms": [None if each is None else 1000 * each for each in series.load_seconds],
            "started": series.started,
        },
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "since": event.since,
        "kind": event.kind,
        "cache": event.cache,
        "text": event.sentence(),
    }


def _worker(figures: CacheStats) -> dict[str, Any]:
    process, stats = figures.process(), figures.stats
    return {
        **process,
        "is_this": process["pid"] == os.getpid(),
        "now": _now(figures),
        "total": _total(figures, stats),
        "breaker_open": stats.store is not None and stats.store.open_breakers > 0,
    }


def _now(figures: CacheStats) -> dict[str, float | None]:
    rate = figures.last_minute()
    return {"hit_ratio": rate.hit_ratio, "requests_per_second": rate.requests_per_second}


def _total(figures: CacheStats, stats: Stats) -> dict[str, Any]:
    shown = ("hits", "misses", "loads", "load_failures", "load_timeouts", "load_seconds", "coalesced", "stale_hits")
    return {
        **{name: getattr(stats, name) for name in (*shown, "puts", "refreshes", "refreshes_dropped")},
        "hit_ratio": stats.hit_ratio,
        "removals": stats.removals,
        "evicted_bytes": stats.evicted_weight if figures.weighs_bytes else None,
        "entries": stats.size,
        "max_entries": figures.max_entries,
        "bytes": figures.memory,
        "bytes_are_estimated": not figures.weighs_bytes,
        "max_bytes": figures.max_weight if figures.weighs_bytes else None,
        "load_buckets": {"bounds": LOAD_BOUNDS, "counts": stats.load_buckets},
    }
