"""Imports the clients of stores, for sites whose processes fork."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from wheelcache.near_cache.outage_rule import CLIENT_PACKAGES
from wheelcache.near_cache.socket_options import DJANGO_REDIS

PARTS_OF_DJANGO_REDIS: Final = (
    *("django_redis.client", "django_redis.pool"),
    *("django_redis.compressors.identity", "django_redis.serializers.pickle"),
)
"""The modules that django-redis imports at the first use, by default."""


def import_client(path: str) -> None:
    """Import the client of the backend at ``path``, a setting, as its first use would do."""
    for package in (*CLIENT_PACKAGES.get(path, ()), *(PARTS_OF_DJANGO_REDIS if path == DJANGO_REDIS else ())):
        import_module(package)
