"""Convert figures to JSON documents, for the dashboard's page and the terminal.

Times are in seconds since 1970. A value that is unknown, or a bound that is not set, is null. More keys may be added.
``wheelcache --json`` prints this document:

- ``at``: when the document was made.
- ``looked_in``: the directories where the workers of the site publish.
- ``problems``: a list of sentences, the worst problem first.
- ``caches``: a list with an object for each cache:

  - ``name``.
  - ``total``: the figures of all its workers together, including workers that have exited.
  - ``workers``: its living workers, oldest first. Each has figures, and also ``pid``, ``started``, ``published``,
    ``thread`` (the state of the wheel thread), ``lag`` (of that thread, in seconds) and ``core`` ("compiled" or
    "python").

``total`` and each worker have these figures:

- Over the last minute: ``answered_ratio_now`` (the share of look-ups that a near cache or the store behind it
  answered), ``hit_ratio_now``, ``stale_ratio_now`` (stale answers are neither hits nor misses) and
  ``requests_per_second``.
- Since the start of the first worker: ``answered_ratio``, ``hit_ratio``, ``stale_ratio``, ``requests``, ``hits``,
  ``stale_hits``, ``misses``, ``puts``, ``evictions``, ``evicted_bytes``, ``expirations``, ``loads``,
  ``load_failures``, ``load_ms`` (the average load), ``stampedes_prevented`` and ``misses_by_cause`` (an object; the
  causes of keys that left long ago are estimates). The command ``misses`` also shows the groups of keys.
- At present: ``entries``, ``max_entries``, ``bytes`` and ``max_bytes`` (both null if the cache has no bound in bytes).
- ``store``: the store behind a near cache, or null. It has ``hits`` and ``misses`` (look-ups without a copy for which
  the store had a value, or had none), ``reads``, ``read_ms`` (the average read), ``writes``, ``write_ms``, ``errors``,
  ``refused`` (calls that were not made) and ``open_breakers`` (processes that do not call the store now).
- ``pages``: the pages of an HTTP cache, or null. It has ``fresh`` and ``stale`` (responses from stored pages),
  ``revalidated`` (pages that the application confirmed), ``collapsed`` (requests that received the page of another
  request's run), ``bytes_sent``, ``stored``, ``variants_removed`` (because their page had too many), and
  ``not_stored`` (responses that were not stored, by reason). The total also has ``not_stored_paths`` (by reason, the
  paths with most of these responses, and how many each has at least) and ``full_variants`` (by header, or "cookie
  <name>", the paths with most variants that were removed because of it).

``wheelcache misses --json`` prints a list with an object for each cache:

- ``cache``: its name.
- ``requests``, ``misses``: its look-ups, and those that found no value.
- ``misses_by_cause``: an object with the number of misses for each cause.
- ``groups``: the groups of keys, those that took most time to compute first. Each has ``name`` (a view, for pages;
  empty for all other keys), ``requests``, ``hits``, ``stale_hits``, ``misses``, ``hit_ratio``, ``misses_by_cause``,
  ``puts`` (stored values), ``loads``, ``load_failures`` (those of the loads that failed), ``load_seconds`` and
  ``refused`` (pages of the view that were not stored).
- ``advice``: a list of sentences about keys: see ``key_advice``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from wheelcache.engine.stats import COUNTERS, LOAD_BOUNDS, MISSES, Stats
from wheelcache.near_cache.store_stats import STORE_GAUGES, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.watch.figures import CacheFigures, Rate, WorkerFigures
from wheelcache.watch.key_advice import on_keys

# Evicted weights are reported as ``evicted_bytes``, if weights are bytes, and misses by cause as an object.
SHOWN: Final = tuple(name for name in COUNTERS if name not in ("evicted_weight", *MISSES.values()))


PRESENT: Final = ("entries", "max_entries", "bytes", "max_bytes")


def totals(stats: Stats, figures: CacheFigures | WorkerFigures) -> dict[str, Any]:
    """Return all counters of ``stats`` by name, the ratios derived from them, and the present size of the cache."""
    loads = stats.loads + stats.load_failures
    weighs_bytes = figures.weighs_bytes
    return {
        **_values(stats, *SHOWN),
        "requests": stats.requests,
        "answered_ratio": stats.answered_ratio,
        "hit_ratio": stats.hit_ratio if stats.requests else None,
        "stale_ratio": stats.stale_ratio if stats.requests else None,
        "load_ms": mean_ms(stats.load_seconds, loads),
        "removals": stats.removals,
        "misses_by_cause": stats.misses_by_cause,
        "evicted_bytes": stats.evicted_weight if weighs_bytes else None,
        "entries": stats.size,
        "max_entries": figures.max_entries,
        "bytes": figures.memory,
        "max_bytes": figures.max_weight if weighs_bytes else None,
    }


def cache(figures: CacheFigures, workers: Sequence[WorkerFigures]) -> dict[str, Any]:
    """Return the figures of all workers together, and those of each worker."""
    return {
        "name": figures.name,
        "total": _figures(figures),
        "workers": [{**worker(each), **_figures(each)} for each in workers],
    }


def _figures(figures: CacheFigures | WorkerFigures) -> dict[str, Any]:
    stats = figures.stats
    total = totals(stats, figures)
    rates = last_minute(figures.minute)
    return {
        **{name if name == "requests_per_second" else f"{name}_now": rate for name, rate in rates.items()},
        **{name: value for name, value in total.items() if name not in ("removals", "coalesced", "load_seconds")},
        "stampedes_prevented": total["coalesced"],
        "store": store(stats.store),
        "pages": pages(stats.pages),
    }


def misses(figures: CacheFigures) -> dict[str, Any]:
    """Return the misses by cause, the groups of keys, and the advice about keys."""
    return {
        "cache": figures.name,
        **_values(figures.stats, "requests", "misses", "misses_by_cause"),
        "groups": groups(figures.stats),
        "advice": list(on_keys(figures)),
    }


def groups(stats: Stats) -> list[dict[str, Any]]:
    """Return the groups of keys that were used, those that took most time to compute first. The group of all other keys
    has an empty name."""
    loads = ("loads", "load_failures", "load_seconds")
    names = ("requests", "hits", "stale_hits", "misses", "puts", *loads, "misses_by_cause")
    refused = {} if stats.pages is None else stats.pages.refused_by_view
    found = [
        {
            "name": name,
            **_values(each, *names),
            "hit_ratio": each.hit_ratio if each.requests else None,
            "refused": refused.get(name, 0),
        }
        for name, each in stats.groups.items()
        if each.requests or each.puts or each.loads or name in refused
    ]
    return sorted(found, key=lambda each: (-each["load_seconds"], -each["misses"], each["name"]))


def last_minute(rate: Rate) -> dict[str, float | None]:
    return _values(rate, "answered_ratio", "hit_ratio", "stale_ratio", "requests_per_second")


def store(stats: StoreStats | None) -> dict[str, Any] | None:
    """Return the figures of the store behind a near cache; None for any other cache."""
    if stats is None:
        return None
    reads, writes = stats.reads, stats.writes
    return {
        **_values(stats, "hits", "misses", *STORE_GAUGES),
        "reads": reads.calls,
        "read_ms": mean_ms(reads.seconds, reads.calls),
        "writes": writes.calls,
        "write_ms": mean_ms(writes.seconds, writes.calls),
        "errors": reads.errors + writes.errors,
        "refused": reads.refused + writes.refused,
    }


def pages(stats: PageStats | None) -> dict[str, Any] | None:
    """Return the figures of the pages of an HTTP cache; None for any other cache."""
    if stats is None:
        return None
    document = asdict(stats)
    # The table of groups has them.
    del document["refused_by_view"]
    return document


def percentiles_ms(buckets: Sequence[int]) -> dict[str, float | None]:
    """Return the milliseconds within which 50, 90 and 99% of the calls of a histogram ended; None without calls."""
    found = {f"p{share}": _percentile(buckets, share / 100) for share in (50, 90, 99)}
    return {name: None if seconds is None else 1000 * seconds for name, seconds in found.items()}


def _percentile(buckets: Sequence[int], share: float) -> float | None:
    """Return the seconds within which a share of the calls ended, 0.0 to 1.0; None without calls.

    As with Prometheus' ``histogram_quantile``, calls are assumed to be spread evenly within a bucket, and those in the
    last one took as long as its lower bound.
    """
    left = sum(buckets) * share
    for low, high, number in zip((0.0, *LOAD_BOUNDS), LOAD_BOUNDS, buckets, strict=False):
        if number and left <= number:
            return low + (high - low) * left / number
        left -= number
    return LOAD_BOUNDS[-1] if any(buckets) else None


def present(figures: CacheFigures) -> dict[str, Any]:
    """Return the present size of a cache, and the number of workers whose limits are added up; None if there is one
    limit."""
    total = totals(figures.stats, figures)
    in_workers = figures.workers if figures.workers > 1 and not figures.is_shared else None
    return {**{name: total[name] for name in PRESENT}, "in_workers": in_workers}


def worker(figures: WorkerFigures) -> dict[str, Any]:
    """Return the process of a worker, and the state of its wheel thread."""
    return _values(figures, "pid", "started", "published", "thread", "core", "lag")


def mean_ms(seconds: float, count: float) -> float | None:
    """Return the average duration of a call in milliseconds; None if there were no calls."""
    return 1000 * seconds / count if count else None


def _values(figures: object, *names: str) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in names}
