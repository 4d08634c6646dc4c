"""A Django site in a file, for real servers: its views do one thing to the cache each and answer in JSON."""

import asyncio
import json
import os
import sys
import threading
import time

import django
from django.conf import settings

from tests.engines import engine

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "OPTIONS": {
                "INTERVAL": 0.02,
                "JITTER": 0,
                "MAX_ENTRIES": 500,
                "LOG_INTERVAL": 0.05,
                **json.loads(os.environ.get("TINY_OPTIONS", "{}")),
            },
        }
    },
    INSTALLED_APPS=["wheelcache.django_backend"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.cache import cache, caches  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

from tests.waiting import until  # noqa: E402
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool  # noqa: E402

PATIENCE = 10
arrivals = []
computed = 0
tasks_arrived = 0
tasks_computed = 0
pages = 0


def timeout_in(request):
    seconds = request.GET.get("timeout", "none")
    return None if seconds == "none" else float(seconds)


def set_one(request, key):
    cache.set(key, [request.GET.get("value", "")], timeout_in(request))
    return JsonResponse({"pid": os.getpid()})


def set_many(request, number):
    cache.set_many({f"many{each}": [each] for each in range(number)}, timeout_in(request))
    return JsonResponse({"size": len(engine(caches["default"]))})


def get(request, key):
    return JsonResponse({"value": cache.get(key)})


def incr(request, key):
    cache.add(key, 0, None)
    return JsonResponse({"value": cache.incr(key)})


def timed(request, key):
    """The default runs in a thread of the pool, where it gives way to others."""

    def default():
        time.sleep(0.01)
        return [key]

    return JsonResponse({"value": cache.get_or_set(f"timed-{key}", default, 60, load_timeout=PATIENCE)})


def refreshed(request):
    """The stale value while a thread computes the next."""
    value = cache.get_or_set("refreshed", lambda: ["refreshed"] if cache.get("stale") else ["old"], 0.05, grace=60)
    cache.set("stale", True, None)
    return JsonResponse({"value": value})


def idle(request):
    """Whether the threads that load in the background wait for work."""
    return JsonResponse({"idle": refresh_pool.pending == timed_load_pool.pending == 0})


def size(request):
    """How many entries are in memory. Looking at it neither reads nor writes the cache."""
    return JsonResponse({"size": len(engine(caches["default"]))})


def pid(request):
    return JsonResponse({"pid": os.getpid()})


def delete(request, key):
    return JsonResponse({"deleted": cache.delete(key)})


def compute_together(request, number):
    """The default returns when ``number`` requests are here, so all of them have missed."""

    def default():
        global computed
        computed += 1
        return ["value"] if until(lambda: len(arrivals) >= number) else "nobody came"

    # Neither this nor until() takes a lock, which gevent might patch in the middle of this site's life.
    arrivals.append(request)
    return JsonResponse({"value": cache.get_or_set("together", default, None), "computed": computed})


async def acompute_together(request, number):
    global tasks_arrived
    tasks_arrived += 1
    threads = set()

    async def default():
        global tasks_computed
        tasks_computed += 1
        threads.add(threading.get_ident())
        async with asyncio.timeout(PATIENCE):
            while tasks_arrived < number:
                await asyncio.sleep(0)
        return ["value"]

    value = await cache.aget_or_set("tasks", default)
    await cache.aset("tasks-set", value)
    return JsonResponse(
        {
            "value": await cache.aget("tasks-set"),
            "computed": tasks_computed,
            "hopped": bool(threads - {threading.get_ident()}),
        }
    )


async def aset_one(request, key):
    await cache.aset(key, [request.GET.get("value", "")], timeout_in(request))
    return JsonResponse({"pid": os.getpid()})


async def aget(request, key):
    return JsonResponse({"value": await cache.aget(key)})


@cache_page(60)
def page(request):
    global pages
    pages += 1
    return JsonResponse({"page": pages})


urlpatterns = [
    path("set/<key>", set_one),
    path("set-many/<int:number>", set_many),
    path("get/<key>", get),
    path("delete/<key>", delete),
    path("incr/<key>", incr),
    path("pid", pid),
    path("timed/<key>", timed),
    path("refreshed", refreshed),
    path("idle", idle),
    path("size", size),
    path("together/<int:number>", compute_together),
    path("atogether/<int:number>", acompute_together),
    path("aset/<key>", aset_one),
    path("aget/<key>", aget),
    path("page", page),
]

application = get_wsgi_application()
asgi_application = get_asgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
