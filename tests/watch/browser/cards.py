"""A cache that has every part of the details."""

from tests.watch.browser.canned import MISSES

NAMES = ("shop:product", "catalogue:category-detail", "user:session-profile", "")

CAUSES = ("deleted", "expired", "new or long gone", "evicted", "another process", "unknown")


def group(name, load_seconds=0.0, requests=None, **figures):
    """Return the figures of a group of keys, whose misses are given by cause."""
    misses = {cause: figures.pop(cause, 0) for cause in MISSES}
    total = sum(misses.values())
    counts = dict.fromkeys(("hits", "stale_hits", "puts", "loads", "load_failures", "refused"), 0)
    given = {"requests": requests or total, "misses": total, "misses_by_cause": misses, "hit_ratio": None}
    return {"name": name, "load_seconds": load_seconds, **counts, **given, **figures}


def full_card(site, name="pages"):
    """Return the figures of three workers: groups with long names, six causes of misses, two releases and a store."""
    at, number = site.figures["at"], 30
    card = site.card(
        name,
        figures={"requests": 1000, "requests_per_second": 16.6, "load_failures": 3, "store_errors": 8},
        now={"entries": 5, "max_entries": 10, "bytes": 2048, "max_bytes": 4096, "in_workers": 3},
        total={
            "hits": 900,
            "stale_hits": 40,
            "misses": 60,
            "puts": 60,
            "loads": 7,
            "load_failures": 3,
            "load_seconds": 7.5,
        },
        sentence={"state": "bad", "text": "The hit ratio fell from 93% to 81%.", "place": "misses", "group": None},
    )
    card["figures"] |= {"hit_ratio": 0.9, "answered_ratio": 0.93, "stale_ratio": 0.04, "evictions_per_second": 1.5}
    card["total"] |= {
        "misses_by_cause": dict.fromkeys(MISSES, 10),
        "removals": dict.fromkeys(("expired", "evicted"), 9),
    }
    times = {"loads": site.percentiles(0, 50, 90), "store_reads": site.percentiles(0, 50, 90)}
    side = {
        "hit_ratio": 0.9,
        "requests_per_second": 16.6,
        "load_p50_ms": 0.02,
        "load_p90_ms": 0.024,
        "computing_per_minute": 7.5,
    }
    groups = [{"name": each, "before": 0.1, "after": 0.4, "cause": "deleted"} for each in NAMES]
    card |= {
        "history": site.history(
            stale_ratio=0.04,
            misses={cause: [0.1] * number for cause in CAUSES},
            computing=[{"group": each or None, "seconds": [0.5] * number} for each in NAMES],
            removals={"evicted": [0.1] * number, "expired": [0.2] * number},
            store_read_ms=1.5,
            store_errors_per_second=0.1,
        ),
        "marks": [
            {"at": at - 240, "kind": "release", "text": "release 41ab"},
            {"at": at - 120, "kind": "release", "text": "release 7f3c"},
            {"at": at - 119, "kind": "started", "text": "3 workers started"},
            {"at": at - 60, "kind": "cleared", "text": "Cleared by ann"},
            {"at": at - 30, "kind": "killed", "text": "Ended abruptly: worker 7"},
        ],
        "comparison": {
            "at": at - 120,
            "release": "7f3c",
            "seconds": 120,
            "before": side,
            "after": {**side, "hit_ratio": 0.814},
            "groups": groups,
            "sentence": "90.0% hits before, 81.4% after.",
        },
        "groups": [
            group(each, 4567.0, 123_456, hits=123_000, hit_ratio=0.947, evicted=456, loads=456, load_failures=7)
            for each in NAMES
        ],
        "times": times,
        "store": {
            "hits": 50,
            "misses": 46,
            "reads": 100,
            "writes": 100,
            "write_ms": 5.0,
            "errors": 8,
            "refused": 6,
            "breakers": 2,
            "open_breakers": 1,
            "trackers": 2,
            "trusted": 1,
        },
        "pages": {
            **dict.fromkeys(("fresh", "stale", "revalidated", "collapsed", "bytes_sent", "stored"), 5),
            "variants_removed": 9,
            "not_stored": {"set-cookie": 30, "private": 3},
            "not_stored_paths": {"set-cookie": {"/basket": 25, "/login": 5}},
            "full_variants": {"user-agent": {"/news": 9}},
        },
        "settings": [["MAX_ENTRIES", "10"]],
        "workers": [site.worker(card, pid) for pid in (7, 8, 9)],
        "worker_count": 3,
    }
    card["workers"][0]["breaker_open"] = True
    return card
