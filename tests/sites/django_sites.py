"""How Django sites get wheelcache: as docs/how-to/pages.md says, in modules beside their own."""

from __future__ import annotations

from tests.sites.site import Site

# The settings of a site for this machine, which each site begins with its own.
_DATABASE = """
import json, os

DEBUG = False
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
"""

_CACHED = """
from plain_settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "wheelcache.django_backend"]
MIDDLEWARE = ["wheelcache.django_backend.PageMiddleware", *MIDDLEWARE]
CACHES = {"default": {"BACKEND": "wheelcache.django_backend.HostCache", "LOCATION": os.environ["LOCATION"]}}
WSGI_APPLICATION = "cached_site.application"
"""

_PLAIN_WSGI = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "plain_settings"

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
"""

_CACHED_WSGI = """
import os

from django.core.wsgi import get_wsgi_application

from wheelcache.django_backend import page_cache
from wheelcache.pages import bypass, grace, ttl, without_cookies

os.environ["DJANGO_SETTINGS_MODULE"] = "cached_settings"
application = get_wsgi_application()
pages = page_cache({options})
application = pages.wsgi(application)
"""


TOKEN = r"\b[A-Za-z0-9]{64}\b"
"""A CSRF token, which is masked anew in each answer."""


def django_site(
    settings: str,
    prepare: list[list[str]],
    also_installed: tuple[str, ...] = (),
    **others,
) -> Site:
    """Return a site of Django.

    Args:
        settings: statements that import the site's settings and adapt them to this machine.
        prepare: management commands.
        also_installed: as for a site; the driver of PostgreSQL is among them.
    """
    own = ["manage.py"]
    return Site(
        plain=_PLAIN_WSGI,
        cached=_CACHED_WSGI,
        modules={"plain_settings": settings + _DATABASE, "cached_settings": _CACHED},
        prepare=[[*own, *command, "--settings=plain_settings"] for command in prepare],
        rehearsal=[*own, "wheelcache", "rehearsal", "--settings=cached_settings"],
        also_installed=("psycopg[binary]", *also_installed),
        varies=(TOKEN,),
        **others,
    )
