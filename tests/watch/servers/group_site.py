"""A Django site that counts the look-ups of its values by group of keys in a file, independently of the cache.

Environment: GROUP_SITE_DIRECTORY, with the figures and the file ``lookups``: a line for each look-up, with the process,
the group of the key, and whether there was a value.
"""

import os
from pathlib import Path

import django
from django.conf import settings

from wheelcache.django_backend import WheelCache

DIRECTORY = Path(os.environ["GROUP_SITE_DIRECTORY"])

KEPT = ("product", "about")
"""The groups whose values are set after a miss."""

lookups = os.open(DIRECTORY / "lookups", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Counting(WheelCache):
    def get(self, key, default=None, version=None):
        found = super().get(key, default, version)
        # A single system call, so that other processes cannot interleave.
        group, outcome = key.partition(":")[0], "hit" if found is not default else "miss"
        os.write(lookups, f"{os.getpid()} {group} {outcome}\n".encode())
        return found


if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={
            "default": {
                "BACKEND": f"{__name__}.Counting",
                "LOCATION": "pages",
                "TIMEOUT": 5,
                "OPTIONS": {"FIGURES_DIR": str(DIRECTORY / "figures")},
            }
        },
        ROOT_URLCONF=__name__,
        SECRET_KEY="not secret",
    )
    django.setup()

from django.core.cache import cache  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402


def page(request, group, number="0"):
    key = f"{group}:{number}"
    found = cache.get(key)
    if found is None and group in KEPT:
        cache.set(key, number)
    return JsonResponse({"number": number})


urlpatterns = [path("<str:group>", page), path("<str:group>/<path:number>", page)]

application = get_wsgi_application()
