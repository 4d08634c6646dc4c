"""A WSGI application for several workers: of Django only a coherent cache, over a database that is a file of numbers.

Environment: ``COHERENT_FOLDER``, the directory of that file, ``database``, and of the files that the workers share.
"""

import os
import struct
from pathlib import Path

from django.conf import settings

from tests import shared_stamps
from tests.engines import engine

FOLDER = Path(os.environ["COHERENT_FOLDER"])
shared_stamps.keep_in(FOLDER)

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            "LOCATION": str(FOLDER),
            "TIMEOUT": None,
            "OPTIONS": {"COHERENCE": "host", "LOG_INTERVAL": None},
        }
    }
)

from django.core.cache import caches  # noqa: E402

NUMBER = struct.Struct("<Q")

cache = caches["default"]
database = os.open(FOLDER / "database", os.O_RDWR)


def read(key):
    return NUMBER.unpack(os.pread(database, NUMBER.size, int(key) * NUMBER.size))[0]


def write(key, version):
    os.pwrite(database, NUMBER.pack(version), int(key) * NUMBER.size)


def get(key):
    value = cache.get(key)
    if value is None:
        value = read(key)
        cache.set(key, value)
    return value


def load(steps):
    """``steps``, as in ``r5,s7,d5``: read the key 5 through the cache; write 7 and set it; write 5 and delete it."""
    for step in steps.split(","):
        key = step[1:]
        if step[0] == "r":
            get(key)
        else:
            write(key, read(key) + 1)
            if step[0] == "s":
                cache.set(key, read(key))
            else:
                cache.delete(key)


def spin():
    """Mark the beginning in number 1,999 of the database, and write until killed."""
    write(1999, os.getpid())
    while True:
        for number in range(1000, 1100):
            cache.set(str(number), number)
            cache.delete(str(number))
        cache.set_many({str(number): number for number in range(1000, 1100)})
        cache.clear()


def stats():
    figures = engine(cache).stats()
    return f"{figures.hits} {figures.misses}"


VIEWS = {
    "delete": cache.delete,
    "get": get,
    "load": load,
    "peek": cache.get,
    "pid": lambda: "",
    "set": lambda key, value: cache.set(key, int(value)),
    "spin": spin,
    "stats": stats,
}


def application(environ, start_response):
    """``/<view>/<argument>/...``. Return the number of the process and the result of the view."""
    view, *arguments = environ["PATH_INFO"][1:].split("/")
    body = f"{os.getpid()} {VIEWS[view](*arguments)}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
