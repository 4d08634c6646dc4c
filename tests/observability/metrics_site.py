"""A WSGI application for several workers: a cache that publishes its figures, and what Prometheus asks for.

Environment: ``METRICS_FIGURES``, where to publish.
"""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, make_wsgi_app

from wheelcache import Cache
from wheelcache.observability.prometheus import Collector

cache = Cache("pages", max_entries=1000, log_interval=None, figures_dir=Path(os.environ["METRICS_FIGURES"]))
registry = CollectorRegistry()
registry.register(Collector())
metrics = make_wsgi_app(registry)


def use(key, hits, misses):
    cache.take(key, lambda: key)
    for _ in range(int(hits)):
        cache.get(key)
    for _ in range(int(misses)):
        cache.get("never set")


def application(environ, start_response):
    """``/metrics``, or ``/use/<key>/<hits>/<misses>``, or ``/``, which answers with the number of the process."""
    if environ["PATH_INFO"] == "/metrics":
        return metrics(environ, start_response)
    if environ["PATH_INFO"] != "/":
        use(*environ["PATH_INFO"].split("/")[2:])
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
