"""A site with figures that the test chooses, in the form of ``figures.json``."""

import json
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import start
from wheelcache.engine.stats import LOAD_BOUNDS, MISSES
from wheelcache.watch.dashboard.dashboard import ASSETS, Dashboard, asset
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import HEADERS
from wheelcache.watch.documents import percentiles_ms

AT = 1_700_000_000.0
"""The time of all figures: in UTC, 22:13:20."""

COUNTS = (
    *("hits", "misses", "puts", "stale_hits", "coalesced", "loads", "load_failures", "load_timeouts", "refreshes"),
    *("refreshes_dropped", "load_seconds"),
)
REMOVALS = ("expired", "evicted", "replaced", "deleted", "cleared")
SERIES = ("hit_ratio", "requests_per_second", "entries", "bytes", "load_ms")
ZEROS = ("store_ratio", "stale_ratio")
OF_STORE = ("store_read_ms", "store_write_ms", "store_errors_per_second", "store_refused_per_second")


class CannedSite:
    """A site that answers with ``figures``, or with ``status``. ``posted`` has the requests for actions, which are
    answered with the next of ``answers`` while there are any. An answer with a token is for a request without one."""

    def __init__(self):
        self.status = 200
        self.posted = []
        self.answers = []
        self.granted = frozenset(Permission)
        self.asked = []
        self.dashboard = Dashboard("a site", list, lambda name: [])
        self.figures = {
            "title": "a site",
            "at": AT,
            "refresh": 3.0,
            "this_worker": 4242,
            "headline": "Cache 'pages' is healthy",
            "problems": [],
            "advice": [],
            "events": [],
            "caches": [],
            "span": {"from": AT - 3600, "until": AT, "step": 10.0, "is_now": True, "earliest": AT - 7200},
        }
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.split("?")[0].removeprefix("/wheelcache/")
                if name == "/other":
                    self.answer("text/html", b"a page of another site", policy={})
                elif name == "":
                    page = site.dashboard.page(site.granted)
                    self.answer("text/html; charset=utf-8", page.encode())
                elif name in ASSETS:
                    self.answer(ASSETS[name], asset(name))
                else:
                    site.asked.append(self.path)
                    self.answer("application/json", json.dumps(site.figures).encode(), site.status)

            def do_POST(self):
                posted = self.rfile.read(int(self.headers["Content-Length"])).decode()
                site.posted.append(posted)
                # An earlier search may still ask with its token when the test has chosen the answers to the next one.
                is_of_another = bool(site.answers) and "token" in site.answers[0] and posted.startswith("token=")
                answer = site.answers.pop(0) if site.answers and not is_of_another else {"message": "Done."}
                self.answer("application/json", json.dumps(answer).encode(), 400 if "error" in answer else 200)

            def answer(self, kind, body, status=200, policy=HEADERS):
                self.send_response(status)
                for name, value in {**policy, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = start(self._server.serve_forever, 0.01)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def card(self, name="pages", **parts):
        """Return figures of a cache that was used. Values that are not given are not changed."""
        card = {**self._card(), "name": name}
        for part, values in parts.items():
            card[part] = {**card[part], **values} if isinstance(values, dict) and card[part] else values
        return _with_sums(card)

    def _card(self):
        """Return the figures of a new cache, with all details."""
        total = self._total()
        card = {
            "is_shared": True,
            "is_used": True,
            "since": AT - 7200,
            "clear_effect": "Takes effect immediately.",
            "worker_count": 1,
            "figures": {
                **dict.fromkeys(("requests", "requests_per_second", "evictions_per_second", "load_failures"), 0),
                "hit_ratio": None,
                "answered_ratio": None,
                "stale_ratio": None,
                "store_errors": 0,
            },
            "now": {"entries": 0, "max_entries": 1000, "bytes": None, "max_bytes": None},
            "recent": dict.fromkeys(("answered_ratio", "stale_ratio", "requests_per_second"), [None] * 60),
            "sentence": {"state": "good", "text": "Healthy.", "place": None, "group": None},
            "marks": [],
            "comparison": None,
            "history": self.history(),
            "times": self.times(),
            "total": total,
            "groups": [],
            "store": None,
            "pages": None,
            "settings": [],
            "rehearsal": None,
        }
        card["workers"] = [
            {
                "pid": 4242,
                "started": AT - 7200,
                "published": AT - 1,
                "thread": "running",
                "core": "compiled",
                "lag": 0.0,
                "is_this": True,
                "breaker_open": False,
                "total": deepcopy(total),
                "now": {"hit_ratio": None, "answered_ratio": None, "stale_ratio": None, "requests_per_second": 0.0},
            }
        ]
        return card

    def _total(self):
        ratios = {"hit_ratio": None, "answered_ratio": None, "stale_ratio": None, "load_ms": None}
        causes = {"removals": dict.fromkeys(REMOVALS, 0), "misses_by_cause": dict.fromkeys(MISSES, 0)}
        size = {"entries": 0, "max_entries": 1000, "bytes": None, "max_bytes": None}
        return {**dict.fromkeys(COUNTS, 0), "requests": 0, "evicted_bytes": None, **ratios, **causes, **size}

    def percentiles(self, *counts):
        """Return the percentiles of a histogram whose first buckets have these counts."""
        return percentiles_ms((*counts, *[0] * (len(LOAD_BOUNDS) + 1 - len(counts))))

    def times(self, counts=(), of="loads"):
        """Return the percentiles of the durations of loads, or of reads of the store."""
        return {"loads": self.percentiles(), "store_reads": self.percentiles(), of: self.percentiles(*counts)}

    def history(self, step=10.0, number=30, **series):
        """Return a history whose newest step has just ended. Figures that are not given are 1.0, or not there."""
        return {
            "step": step,
            "at": [AT // step * step - step * each for each in reversed(range(number))],
            **dict.fromkeys(SERIES, [1.0] * number),
            **dict.fromkeys(ZEROS, [0.0] * number),
            **dict.fromkeys(OF_STORE, [None] * number),
            "misses": {},
            "computing": [],
            "removals": {},
        } | {name: [values] * number if isinstance(values, float) else values for name, values in series.items()}

    def problem(self, cache, text="its store is down"):
        """Return a problem of a cache, or of the site for None."""
        return {"cache": cache, "text": text, "sentence": f"Cache '{cache}': {text}" if cache else text}

    def worker(self, card, pid, **total):
        (worker, *_) = self._card()["workers"]
        return _with_sums({**worker, "pid": pid, "total": {**card["total"], **total}})

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _with_sums(figures):
    """Return ``figures`` with look-ups that match the hits, stale hits and misses."""
    total = figures["total"]
    total["requests"] = total["hits"] + total["stale_hits"] + total["misses"]
    return figures
