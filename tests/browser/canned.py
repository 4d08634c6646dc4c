"""A site with the figures of a real cache, which the test changes."""

import json
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import start
from wheelcache import Cache
from wheelcache.observability.dashboard.dashboard import ASSETS, Dashboard, asset
from wheelcache.observability.dashboard.permissions import Permission
from wheelcache.observability.dashboard.responses import HEADERS


class CannedSite:
    """A site that answers with ``figures``, or with ``status``. ``posted`` has the requests for actions, which are
    answered with the next of ``answers`` while there are any. An answer with a token is for a request without one."""

    def __init__(self, directory):
        self.status = 200
        self.posted = []
        self.answers = []
        self.granted = frozenset(Permission)
        self.asked = []
        self.dashboard = Dashboard("a site", lambda: [cache], lambda name: [])
        cache = Cache("pages", figures_dir=directory, log_interval=None)
        self.figures = self.dashboard.figures()
        self._card = deepcopy(self.figures["caches"][0])
        cache.close()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.split("?")[0].removeprefix("/wheelcache/")
                if name == "":
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
        """Return figures of a cache that was used. Values that are not given are not changed."""
        card = {**deepcopy(self._card), "name": name}
        card["is_used"] = True
        for part, values in parts.items():
            card[part] = {**card[part], **values} if isinstance(values, dict) else values
        return _with_sums(card)

    def buckets(self, *counts):
        bounds = self._card["times"]["hour"]["loads"]["bounds"]
        return {"bounds": bounds, "counts": [*counts, *[0] * (len(bounds) + 1 - len(counts))]}

    def times(self, minute=(), hour=(), of="loads"):
        """Return the durations of loads, or of reads of the store, as buckets."""
        spans = {"minute": minute, "hour": hour}
        return {
            span: {"loads": self.buckets(), "store_reads": self.buckets(), of: self.buckets(*counts)}
            for span, counts in spans.items()
        }

    def history(self, step=10.0, number=30, **series):
        """Return a history whose newest step has just ended. Figures that are not given are 1.0."""
        at = [self.figures["at"] // step * step - step * each for each in reversed(range(number))]
        return {
            **dict.fromkeys(self._card["history"], [1.0] * number),
            **dict.fromkeys(("store_ratio", "stale_ratio", "stale_per_second"), [0.0] * number),
            "step": step,
            "at": at,
            "started": [0] * number,
        } | {name: [values] * number if isinstance(values, float) else values for name, values in series.items()}

    def problem(self, cache, text="its store is down"):
        """Return a problem of a cache, or of the site for None."""
        return {"cache": cache, "text": text, "sentence": f"Cache '{cache}': {text}" if cache else text}

    def worker(self, card, pid, **total):
        (worker, *_) = self._card["workers"]
        return _with_sums({**deepcopy(worker), "pid": pid, "total": {**card["total"], **total}})

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _with_sums(figures):
    """Return ``figures`` with look-ups that match the hits, stale hits and misses."""
    total = figures["total"]
    total["requests"] = total["hits"] + total["stale_hits"] + total["misses"]
    return figures
