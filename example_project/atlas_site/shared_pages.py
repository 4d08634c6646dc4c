"""Settings of a site whose pages are the same for all visitors, with which ``demo`` compares ways to cache whole pages.

No page shows how it was made, or what its visitor saw before. Environment: ``ATLAS_CACHED_BY`` is ``nothing``,
``cache_page`` or ``HTTPCache``.
"""

import os
from typing import Any

from django.core.cache.backends.dummy import DummyCache

# Settings that derive from others import all of their names.
from atlas_site.settings import *  # noqa: F403
from atlas_site.settings import CACHES

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "atlas_site.shared_pages.expect_notes",
]

if os.environ["ATLAS_CACHED_BY"] == "nothing":
    CACHES["default"] = {"BACKEND": "atlas_site.shared_pages.NoCache"}
elif os.environ["ATLAS_CACHED_BY"] == "cache_page":
    # The two middlewares that cache_page makes a decorator of, in its place: inside all others.
    MIDDLEWARE += [f"django.middleware.cache.{name}CacheMiddleware" for name in ("Update", "FetchFrom")]
elif os.environ["ATLAS_CACHED_BY"] == "HTTPCache":
    MIDDLEWARE.insert(0, "wheelcache.django_backend.PageMiddleware")


class NoCache(DummyCache):
    """Computes every value, whatever its tags."""

    def get_or_set(self, key: Any, default: Any, *args: Any, **kwargs: Any) -> Any:
        return default()


def expect_notes(get_response: Any) -> Any:
    """Let views note the parts that they compute, as the middleware ``served`` does."""

    def middleware(request: Any) -> Any:
        request.computed = []
        return get_response(request)

    return middleware
