"""A Django site in a file, for real servers: its views are slow, count how often they run, and fail when told to.

Two settings from the environment: FILL_WAIT, on if it is 1, and SITE_WIDE, the cache middleware around all views if it
is 1. Only GET is cached; what the tests tell the site, and ask it, comes by POST.
"""

import asyncio
import logging
import os
import threading
import time
from collections import Counter

import django
from django.conf import settings

from tests.engines import engine

SLOW = 0.2
"""Seconds that a view takes: long enough for a stampede."""

LONG, SHORT = 60, 2
"""Seconds of FILL_WAIT: one that no test waits for the end of, and one for the tests of what hangs."""

WHOLE_SITE = ["django.middleware.cache.UpdateCacheMiddleware", "django.middleware.cache.FetchFromCacheMiddleware"]
PAGES = "views.decorators.cache."
WAITS = {
    PAGES: LONG,
    f"{PAGES}cache_header.short.": SHORT,
    f"{PAGES}cache_page.short.": SHORT,
    "value:": LONG,
    "value:short:": SHORT,
}

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "OPTIONS": {
                # What expired stays in memory for a minute: reads have to see that it did.
                "INTERVAL": 60,
                "JITTER": 0,
                "LOG_INTERVAL": None,
                "FILL_WAIT": WAITS if os.environ["FILL_WAIT"] == "1" else 0,
            },
        }
    },
    LOGGING_CONFIG=None,
    MIDDLEWARE=WHOLE_SITE if os.environ["SITE_WIDE"] == "1" else [],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
)
django.setup()
# That a view raised is what some tests want; any other traceback in the log is a failure.
logging.getLogger("django.request").disabled = True

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.cache import cache, caches  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponseNotFound, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

# As an app does that looks for something at start-up: this is the context that the server's requests inherit.
for key in ("value:start-up", f"{PAGES}start-up"):
    cache.get(key)

PATIENCE = 30
lock = threading.Lock()
runs = Counter()
rounds = 1
released = threading.Event()
inside = threading.Condition()
everybody_inside = 0


class Boom(Exception):
    pass


def count(name):
    """Which run of ``name`` this is, from 1."""
    with lock:
        runs[name] += 1
        return runs[name]


def is_slow(name, began):
    """Whether a run that took SLOW goes on: where nobody waits for it, until a second one came beside it."""
    return os.environ["FILL_WAIT"] == "0" and runs[name] < 2 and time.monotonic() < began + PATIENCE


def page(request, name):
    run, began = count(name), time.monotonic()
    time.sleep(SLOW)
    while is_slow(name, began):
        time.sleep(0.01)
    return JsonResponse({"run": run, "round": rounds})


async def aslow(name):
    began = time.monotonic()
    await asyncio.sleep(SLOW)
    while is_slow(name, began):
        await asyncio.sleep(0.01)


async def apage(request, name):
    run = count(name)
    await aslow(name)
    return JsonResponse({"run": run, "round": rounds})


async def avalue(request, name):
    """Caches what it computes, by hand."""
    found = await cache.aget(f"value:{name}")
    if found is None:
        found = {"run": count(name), "round": rounds}
        await aslow(name)
        await cache.aset(f"value:{name}", found, 600)
    return JsonResponse(found)


def fails(request, how, name):
    """Its first run raises, returns what is not cached, or hangs; the others are right."""
    run = count(name)
    if run > 1:
        time.sleep(SLOW)
        return JsonResponse({"run": run})
    until_released()
    if how == "raises":
        raise Boom
    return HttpResponseNotFound()


def until_released():
    assert released.wait(PATIENCE)


async def afails(request, how, name):
    run = count(name)
    if run > 1:
        await asyncio.sleep(SLOW)
        return JsonResponse({"run": run})
    async with asyncio.timeout(PATIENCE):
        while not released.is_set():
            await asyncio.sleep(0.01)
    if how == "raises":
        raise Boom
    return HttpResponseNotFound()


async def avalue_fails(request, how, name):
    """As ``afails``, with what it computes cached by hand."""
    found = await cache.aget(f"value:{name}")
    if found is not None:
        return JsonResponse({"run": found[0]})
    response = await afails(request, how, name)
    if response.status_code == 200:
        await cache.aset(f"value:{name}", [runs[name]], 600)
    return response


@cache_page(600)
async def apage_for(request, number):
    """Ends when ``number`` are in it at once."""
    global everybody_inside
    everybody_inside += 1
    async with asyncio.timeout(PATIENCE):
        while everybody_inside < number:
            await asyncio.sleep(0.01)
    return JsonResponse({"run": count("together")})


# By POST


def waiting(request):
    """How many wait for somebody who has a lease."""
    leases = list(engine(caches["default"])._leases.in_force.values())
    return JsonResponse({"waiting": sum(len(lease.waiters) for lease in leases)})


def ran(request, name):
    return JsonResponse({"runs": runs[name]})


def expire(request):
    """The time of every entry comes, and all stay in memory. Runs are counted anew."""
    global rounds
    rounds += 1
    runs.clear()
    entries = engine(caches["default"])
    keys = entries.keys()
    for key in keys:
        entries.touch(key, 0.001)
    time.sleep(0.01)
    return JsonResponse({"expired": len(keys), "in memory": len(entries)})


def release(request):
    """What hangs goes on."""
    released.set()
    return JsonResponse({})


def hold(request):
    released.clear()
    return JsonResponse({})


urlpatterns = [
    path("page/<name>", cache_page(600)(page)),
    path("whole/<name>", page),
    path("awhole/<name>", apage),
    path("avalue/<name>", avalue),
    path("fails/<how>/<name>", cache_page(600)(fails)),
    path("short/<how>/<name>", cache_page(600, key_prefix="short")(fails)),
    path("whole-fails/<how>/<name>", fails),
    path("awhole-fails/<how>/<name>", afails),
    path("avalue-fails/<how>/<name>", avalue_fails),
    path("apage-for/<int:number>", apage_for),
    path("waiting", waiting),
    path("ran/<name>", ran),
    path("expire", expire),
    path("release", release),
    path("hold", hold),
]

application = get_wsgi_application()
asgi_application = get_asgi_application()
