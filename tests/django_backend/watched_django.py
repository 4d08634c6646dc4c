"""A small Django site for gunicorn, and its ``manage.py``: ``python -m tests.django_backend.watched_django``."""

import os
import sys
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django_backend.watched_django")

SECRET_KEY = "not secret"
INSTALLED_APPS = ["wheelcache.django_backend"]
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.django_backend.watched_django"
USE_TZ = True
FIGURES = Path(os.environ["WATCHED_FIGURES"]) if os.environ.get("WATCHED_FIGURES") else None
CACHES = {
    "default": {
        "BACKEND": os.environ.get("WATCHED_BACKEND", "wheelcache.django_backend.WheelCache"),
        "LOCATION": "watched",
        **({"OPTIONS": {"LOG_INTERVAL": None, "FIGURES_DIR": FIGURES}} if "WATCHED_BACKEND" not in os.environ else {}),
    }
}


def application(environ, start_response):
    from urllib.parse import parse_qsl

    import django
    from django.core.cache import cache

    django.setup()
    asked = {name: int(number) for name, number in parse_qsl(environ["QUERY_STRING"])}
    if asked:
        cache.set("there", 1)
    for _ in range(asked.get("hits", 0)):
        cache.get("there")
    for _ in range(asked.get("misses", 0)):
        cache.get("not there")
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


urlpatterns = []

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
