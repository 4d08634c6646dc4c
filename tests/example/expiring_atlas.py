"""The example site with one page more, which has the time of every entry come. Its settings, and its URLs."""

import os
import time

from atlas_site.settings import *  # noqa: F403
from atlas_site.settings import CACHES

ROOT_URLCONF = "tests.example.expiring_atlas"

if "WITHOUT_FILL_WAIT" in os.environ:
    del CACHES["default"]["OPTIONS"]["FILL_WAIT"]


def expire(request):
    from django.core.cache import caches
    from django.http import HttpResponse

    from tests.engines import engine

    entries = engine(caches["default"])
    for key in entries.keys():
        entries.touch(key, 0.001)
    time.sleep(0.01)
    return HttpResponse(f"{len(entries)} in memory, {len(entries.keys())} that may be returned")


def answer_slowly(connection, **_):
    """As a database does that is on another machine: so that all visitors are there before the first has a page."""

    def execute(execute, *arguments):
        time.sleep(0.05)
        return execute(*arguments)

    connection.execute_wrappers.append(execute)


def __getattr__(name):
    # Asked for when all apps are there, which are not when this is read for its settings.
    if name != "urlpatterns":
        raise AttributeError(name)
    from atlas_site.urls import urlpatterns
    from django.db.backends.signals import connection_created
    from django.urls import path

    connection_created.connect(answer_slowly)
    return [path("expire/", expire), *urlpatterns]
