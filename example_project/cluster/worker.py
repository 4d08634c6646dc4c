"""A worker of the cluster: a site in one file, whose cache keeps copies of the values in the Redis of all workers.

``application`` is for any WSGI server, and ``python -m cluster.worker 127.0.0.1:8000`` serves it. The environment names
the Redis and the directory of the machine: CLUSTER_REDIS, CLUSTER_MACHINE.
"""

import os
import sys
import time

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": "cluster",
            # The workers of a machine share their figures in this directory. The other machine has another directory.
            "OPTIONS": {"L2": "redis", "L1_TIMEOUT": 60, "FIGURES_DIR": os.environ["CLUSTER_MACHINE"]},
        },
        "redis": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": os.environ["CLUSTER_REDIS"],
        },
    },
    INSTALLED_APPS=["wheelcache.django_backend"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for this example only",
    # Anyone who reaches this example may use its dashboard.
    WHEELCACHE_DASHBOARD_GUARD=lambda request: "operate",
)
django.setup()

from django.core.cache import caches  # noqa: E402
from django.http import HttpResponse, JsonResponse  # noqa: E402
from django.urls import include, path  # noqa: E402
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest  # noqa: E402

from wheelcache.django_backend import cache  # noqa: E402
from wheelcache.observability.prometheus import Collector  # noqa: E402

caches.all()
REGISTRY.register(Collector())

KEY = "shared"
PATIENCE = 10.0
"""Seconds after which a worker no longer waits for a value."""


def read(request):
    return JsonResponse({"value": cache.get(KEY), "worker": os.getpid()})


def write(request):
    """Set the value, and answer with the time at which that was done."""
    cache.set(KEY, request.GET["value"], None)
    return JsonResponse({"at": time.time(), "worker": os.getpid()})


def see(request):
    """Read until the value arrives, and answer with the time of that, or with status 504 if it does not arrive."""
    until = time.time() + PATIENCE
    while time.time() < until:
        if cache.get(KEY) == request.GET["value"]:
            return JsonResponse({"at": time.time(), "worker": os.getpid()})
        # Other threads of this process must run, among them the one that receives messages from Redis.
        time.sleep(0.0001)
    return JsonResponse({}, status=504)


def metrics(request):
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


urlpatterns = [
    path("", read),
    path("write", write),
    path("see", see),
    path("metrics", metrics),
    path("wheelcache/", include("wheelcache.django_backend.urls")),
]
application = get_wsgi_application()

if __name__ == "__main__":
    import waitress

    waitress.serve(application, listen=sys.argv[1], threads=8)
