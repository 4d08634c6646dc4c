"""A Django site for real servers, and its ``manage.py``: ``python -m tests.servers.django_site``.

Environment: SITE_OPTIONS, those of the cache, as JSON; SITE_WIDE, if it is 1 the cache middleware is around all views.
"""

import asyncio
import json
import logging
import os
import sys

import django
from django.conf import settings

GIVEN = json.loads(os.environ.get("SITE_OPTIONS", "{}"))
PAGES = "views.decorators.cache."
WHOLE_SITE = ["django.middleware.cache.UpdateCacheMiddleware", "django.middleware.cache.FetchFromCacheMiddleware"]

settings.configure(
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "LOCATION": "site",
            "OPTIONS": {option.upper(): value for option, value in GIVEN.items()},
        }
    },
    INSTALLED_APPS=["wheelcache.django_backend"],
    LOGGING_CONFIG=None,
    MIDDLEWARE=WHOLE_SITE if os.environ.get("SITE_WIDE") == "1" else [],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    USE_TZ=True,
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

from tests.backends.on_django import OnDjango  # noqa: E402
from tests.servers.views import SLOW, Boom, Views  # noqa: E402
from tests.waiting import PATIENCE  # noqa: E402
from tests.watch.often import publish_often  # noqa: E402

publish_often()
if GIVEN.get("fill_wait"):
    # As an app does that looks for something at start-up: this is the context that the server's requests inherit.
    for key in ("value:start-up", f"{PAGES}start-up"):
        cache.get(key)

views = Views(OnDjango(caches["default"], "site"))


def answer(request, path):
    return JsonResponse(views.answer(path, request.GET.dict()))


def page(request, name):
    return JsonResponse(views.compute(name))


def fails(request, how, name):
    return json_or_404(views.fail(how, name))


def json_or_404(answer):
    return HttpResponseNotFound() if answer is None else JsonResponse(answer)


async def acompute(name):
    run = views.run_of(name)
    await asyncio.sleep(SLOW)
    return {"run": run, "round": views.round}


async def apage(request, name):
    return JsonResponse(await acompute(name))


async def avalue(request, name):
    """Cache the computed value with ``aget`` and ``aset``."""
    found = await cache.aget(f"value:{name}")
    if found is None:
        found = await acompute(name)
        await cache.aset(f"value:{name}", found, 600)
    return JsonResponse(found)


async def afail(how, name):
    run = views.run_of(name)
    if run > 1:
        await asyncio.sleep(SLOW)
        return {"run": run}
    async with asyncio.timeout(3 * PATIENCE):
        while not views.released.is_set():
            await asyncio.sleep(0.01)
    if how == "raises":
        raise Boom
    return None


async def afails(request, how, name):
    return json_or_404(await afail(how, name))


async def avalue_fails(request, how, name):
    """Like ``afails``, but cache the computed value with ``aget`` and ``aset``."""
    found = await cache.aget(f"value:{name}")
    if found is None:
        found = await afail(how, name)
        if found is not None:
            await cache.aset(f"value:{name}", found, 600)
    return json_or_404(found)


urlpatterns = [
    path("page/<name>", cache_page(600)(page)),
    path("fails/<how>/<name>", cache_page(600)(fails)),
    path("short/<how>/<name>", cache_page(600, key_prefix="short")(fails)),
    path("whole/<name>", page),
    path("whole-fails/<how>/<name>", fails),
    path("awhole/<name>", apage),
    path("awhole-fails/<how>/<name>", afails),
    path("avalue/<name>", avalue),
    path("avalue-fails/<how>/<name>", avalue_fails),
    path("<path:path>", answer),
]

application = get_wsgi_application()
asgi_application = get_asgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
