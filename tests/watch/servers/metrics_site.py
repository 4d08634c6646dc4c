"""A WSGI application for several workers: a cache that publishes its figures, and the metrics for Prometheus.

Environment: ``METRICS_FIGURES``, where to publish.
"""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, make_wsgi_app

from tests.watch.often import publish_often
from wheelcache import Cache
from wheelcache.watch.prometheus import Collector

publish_often()
cache = Cache("pages", max_entries=1000, figures_dir=Path(os.environ["METRICS_FIGURES"]))
registry = CollectorRegistry()
registry.register(Collector())
metrics = make_wsgi_app(registry)


def use(key, hits, misses):
    cache.get_or_load(key, lambda: key)
    for _ in range(int(hits)):
        cache.get(key)
    for _ in range(int(misses)):
        cache.get("never set")


def application(environ, start_response):
    """``/metrics``, ``/use/<key>/<hits>/<misses>``, or ``/``: the number of the process."""
    path = environ["PATH_INFO"]
    if path == "/metrics":
        return metrics(environ, start_response)
    if path != "/":
        use(*path.split("/")[2:])
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
