"""A site with figures that the test chooses, in the form of ``figures.json``."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import start
from wheelcache import Cache, ManualClock
from wheelcache.engine.stats import MISSES
from wheelcache.watch.dashboard.dashboard import ASSETS, Dashboard, asset
from wheelcache.watch.dashboard.one_cache import HISTORY
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import HEADERS

AT = 1_700_000_000.0
"""The time of all figures: in UTC, 22:13:20."""

STEPS = 30

NAMES = ("shop:product", "catalogue:category-detail", "user:session-profile", "")


class CannedSite:
    """A site that answers with ``figures``, or with ``status``. ``posted`` has the requests for actions, which are
    answered with the next of ``answers`` while there are any. An answer with a token is for a request without one."""

    def __init__(self):
        self.status = 200
        self.posted, self.answers, self.asked = [], [], []
        self.granted = frozenset(Permission)
        self.dashboard = Dashboard("a site", lambda: [Cache("pages", clock=ManualClock())], lambda name: [])
        span = {"from": AT - 3600, "until": AT, "step": 10.0, "is_now": True, "earliest": AT - 7200}
        self.figures = {**self.dashboard.figures(), "at": AT, "caches": [], "span": span}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.partition("?")[0].removeprefix("/wheelcache/")
                if name in ASSETS:
                    self.answer(ASSETS[name], asset(name))
                elif name:
                    site.asked.append(self.path)
                    self.answer("application/json", json.dumps(site.figures).encode(), site.status)
                else:
                    self.answer("text/html; charset=utf-8", site.dashboard.page(site.granted).encode())

            def do_POST(self):
                posted = self.rfile.read(int(self.headers["Content-Length"])).decode()
                site.posted.append(posted)
                # An earlier search may still ask with its token when the test has chosen the answers to the next one.
                is_of_another = bool(site.answers) and "token" in site.answers[0] and posted.startswith("token=")
                answer = site.answers.pop(0) if site.answers and not is_of_another else {"message": "Done."}
                self.answer("application/json", json.dumps(answer).encode())

            def answer(self, kind, body, status=200):
                self.send_response(status)
                for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = start(self._server.serve_forever, 0.01)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def card(self, name="pages", **parts):
        """Return figures of a cache that was used. Values that are not given are those of a new cache."""
        (card,) = self.dashboard.figures()["caches"]
        card |= {"name": name, "is_shared": True, "is_used": True, "since": AT - 7200, "history": self.history()}
        for part, values in parts.items():
            card[part] = {**card[part], **values} if isinstance(values, dict) and card[part] else values
        return card

    def history(self, **series):
        """Return steps of which the newest has just ended. Lines that are not given are 1.0."""
        lines = dict.fromkeys(HISTORY, [1.0] * STEPS)
        at = [AT - 10 * each for each in reversed(range(STEPS))]
        return {"step": 10.0, "at": at, **lines, "misses": {}, "computing": [], "removals": {}, **series}

    def problem(self, cache, text="its store is down"):
        """Return a problem of a cache, or of the site for None."""
        sentence = f"Cache '{cache}': {text}" if cache else text
        return {"cache": cache, "group": None, "text": text, "sentence": sentence}

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def group(name, load_seconds=0.0, **figures):
    """Return the figures of a group of keys, whose misses are given by cause."""
    misses = {cause: figures.pop(cause, 0) for cause in MISSES}
    counts = dict.fromkeys(("requests", "hits", "stale_hits", "puts", "loads", "load_failures", "refused"), 0)
    given = {"misses": sum(misses.values()), "misses_by_cause": misses, "hit_ratio": None}
    return {"name": name, "load_seconds": load_seconds, **counts, **given, **figures}


def full_card(site, name="pages"):
    """Return figures that have every part of the details: groups with long names, causes of misses, a store, pages."""
    times = {"p50": 0.031, "p90": 0.05, "p99": None}
    side = {"hit_ratio": 0.9, "requests_per_second": 16.6, "load_p50_ms": 0.02, "load_p90_ms": 0.024}
    side["computing_per_minute"] = 7.5
    busy = {"requests": 123_456, "hits": 123_000, "hit_ratio": 0.947, "evicted": 456, "loads": 456, "load_failures": 7}
    store = {"hits": 50, "misses": 46, "reads": 100, "writes": 100, "write_ms": 5.0, "errors": 8, "refused": 6}
    responses = dict.fromkeys(("fresh", "stale", "revalidated", "collapsed", "bytes_sent", "stored"), 5)
    card = site.card(
        name,
        figures={
            "requests": 1000,
            "requests_per_second": 16.6,
            "load_failures": 3,
            "store_errors": 8,
            "hit_ratio": 0.9,
            "answered_ratio": 0.93,
            "stale_ratio": 0.04,
            "evictions_per_second": 1.5,
        },
        now={"entries": 5, "max_entries": 10, "bytes": 2048, "max_bytes": 4096, "in_workers": 3},
        total={
            "requests": 1000,
            "hits": 900,
            "stale_hits": 40,
            "misses": 60,
            "loads": 7,
            "load_seconds": 7.5,
            "misses_by_cause": dict.fromkeys(MISSES, 10),
            "removals": {"expired": 9, "evicted": 9},
        },
        sentence={"state": "bad", "text": "The hit ratio fell from 93% to 81%.", "place": "misses"},
        history=site.history(
            misses={cause: [0.1] * STEPS for cause in MISSES},
            computing=[{"group": each or None, "seconds": [0.5] * STEPS} for each in NAMES],
            removals={"evicted": [0.1] * STEPS, "expired": [0.2] * STEPS},
        ),
        marks=[
            {"at": AT - 120, "kind": "release", "text": "release 7f3c"},
            {"at": AT - 119, "kind": "started", "text": "3 workers started"},
        ],
        comparison={
            "at": AT - 120,
            "release": "7f3c",
            "seconds": 120,
            "before": side,
            "after": {**side, "hit_ratio": 0.8},
            "groups": [{"name": each, "before": 0.1, "after": 0.4, "cause": "deleted"} for each in NAMES],
            "sentence": "90.0% hits before, 81.4% after.",
        },
        groups=[group(each, 4567.0, **busy) for each in NAMES],
        times={"loads": times, "store_reads": times},
        store={**store, "breakers": 2, "open_breakers": 1, "trackers": 2, "trusted": 1},
        pages={
            **responses,
            "variants_removed": 9,
            "not_stored": {"set-cookie": 30, "private": 3},
            "not_stored_paths": {"set-cookie": {"/basket": 25, "/login": 5}},
            "full_variants": {"user-agent": {"/news": 9}},
        },
        settings=[["MAX_ENTRIES", "10"]],
        worker_count=3,
    )
    (worker,) = card["workers"]
    card["workers"] = [{**worker, "pid": pid, "breaker_open": pid == 7} for pid in (7, 8, 9)]
    return card
