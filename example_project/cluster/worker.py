"""A worker of the cluster: a site in one file, whose only data is one number, which it caches.

``application`` is for any WSGI server. The environment configures it:

- CLUSTER_SETUP: a key of ``SETUPS``, "Redis" by default.
- CLUSTER_REDIS: the URL of the Redis, or of any node of the Redis Cluster.
- CLUSTER_DATABASE: an entry of Django's DATABASES as JSON, for the setup that caches the data of a database.
- CLUSTER_MACHINE: the directory in which the workers of a machine share their figures. Each machine has its own.
"""

import json
import os
import time
from collections import Counter

import django
from django.conf import settings
from django.core.cache import caches
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpResponse, JsonResponse
from django.urls import include, path
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

import wheelcache
from wheelcache.watch.prometheus import Collector

TIERED = "wheelcache.django_backend.TieredCache"
IN_MEMORY = "wheelcache.django_backend.WheelCache"
REDIS = os.environ.get("CLUSTER_REDIS")
SETUPS = {
    "Redis": {
        "default": {"BACKEND": TIERED, "OPTIONS": {"L2": "redis", "L1_TIMEOUT": 60}},
        "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS},
    },
    "Cluster": {
        "default": {"BACKEND": TIERED, "OPTIONS": {"L2": "redis", "L1_TIMEOUT": 60}},
        "redis": {"BACKEND": "wheelcache.django_backend.RedisClusterCache", "LOCATION": REDIS},
    },
    "none": {"default": {"BACKEND": IN_MEMORY, "OPTIONS": {}}},
}
CACHES = SETUPS[os.environ.get("CLUSTER_SETUP", "Redis")]
CACHES["default"]["LOCATION"] = "cluster"
CACHES["default"]["OPTIONS"]["FIGURES_DIR"] = os.environ["CLUSTER_MACHINE"]
DATABASE = json.loads(os.environ.get("CLUSTER_DATABASE", "null"))

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES=CACHES,
    DATABASES={"default": DATABASE} if DATABASE else {},
    INSTALLED_APPS=["wheelcache.django_backend"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for this example only",
    # Anyone who reaches this example may use its dashboard.
    WHEELCACHE_DASHBOARD_GUARD=lambda request: {"operate"},
)
django.setup()

caches.all()
REGISTRY.register(Collector())

KEY = "number"
BATCH = 100
"""The number of reads between two looks at the clock."""
RECORD_SECONDS = 0.01
"""Reads of one value are reported together for this long."""


class InStore:
    """The number is kept in the store behind the cache, and nowhere else."""

    def read(self, cache):
        return cache.get(KEY)

    def write(self, cache, number):
        cache.set(KEY, number, None)


class InDatabase:
    """The number is a row of the site's database, and the cache has a copy of it."""

    def read(self, cache):
        return cache.get_or_set(KEY, self._load, None)

    def write(self, cache, number):
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("UPDATE cluster_number SET number = %s", [number])
            cache.delete(KEY)

    @staticmethod
    def _load():
        with connection.cursor() as cursor:
            cursor.execute("SELECT number FROM cluster_number")
            return cursor.fetchone()[0]


DATA = InDatabase() if DATABASE else InStore()


def read(request):
    return JsonResponse({"value": DATA.read(caches["default"]), "worker": os.getpid()})


def write(request):
    """Write the number, and answer with the time at which the write was acknowledged."""
    DATA.write(caches["default"], int(request.GET["value"]))
    return JsonResponse({"at": time.monotonic(), "worker": os.getpid()})


def watch(request):
    """Read for some seconds. Answer with the numbers that were read, when and how often, and with the number of hits.

    A record is the time before the first read of a batch, the time after its last read, the number, and the count of
    reads of that number until the next record. ``reading`` is the sum of the seconds between these times.
    """
    cache, records, reading = caches["default"], [], 0.0
    (engine,) = wheelcache.caches()
    hits = engine.stats().hits
    until = time.monotonic() + float(request.GET["seconds"])
    began = time.monotonic()
    while began < until:
        numbers = Counter(DATA.read(cache) for _ in range(BATCH))
        ended = time.monotonic()
        reading += ended - began
        for number, count in numbers.items():
            if records and records[-1][2] == number and began - records[-1][0] < RECORD_SECONDS:
                records[-1][3] += count
            else:
                records.append([began, ended, number, count])
        # Other threads of this process must run, among them the one that receives the writes of others.
        time.sleep(0.0001)
        began = time.monotonic()
    return JsonResponse({"records": records, "reading": reading, "hits": engine.stats().hits - hits})


def metrics(request):
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


urlpatterns = [
    path("", read),
    path("write", write),
    path("watch", watch),
    path("metrics", metrics),
    path("wheelcache/", include("wheelcache.watch.urls")),
]
application = get_wsgi_application()
