"""A WSGI application for several workers: a cache that publishes its figures, what Prometheus asks for, the dashboard.

Environment: ``METRICS_FIGURES``, where to publish.
"""

import json
import os
from pathlib import Path

from prometheus_client import CollectorRegistry, make_wsgi_app

from wheelcache import Cache
from wheelcache.observability.dashboard.dashboard import Dashboard
from wheelcache.observability.prometheus import Collector

cache = Cache("pages", max_entries=1000, log_interval=None, figures_dir=Path(os.environ["METRICS_FIGURES"]))
registry = CollectorRegistry()
registry.register(Collector())
metrics = make_wsgi_app(registry)
dashboard = Dashboard("site", lambda: [cache], lambda name: [])


def use(key, hits, misses):
    cache.get_or_load(key, lambda: key)
    for _ in range(int(hits)):
        cache.get(key)
    for _ in range(int(misses)):
        cache.get("never set")


def application(environ, start_response):
    """``/metrics``, ``/figures``, ``/reset``, ``/use/<key>/<hits>/<misses>``, or ``/``: the number of the process."""
    path, body = environ["PATH_INFO"], str(os.getpid()).encode()
    if path == "/metrics":
        return metrics(environ, start_response)
    if path in ("/figures", "/reset"):
        found = dashboard.figures() if path == "/figures" else dashboard.reset("tester")
        body = json.dumps(found).encode()
    elif path != "/":
        use(*path.split("/")[2:])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
