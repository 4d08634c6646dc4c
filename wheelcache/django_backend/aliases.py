"""The aliases of ``CACHES`` that are caches of this package."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.cache import caches

from wheelcache.cache import Cache
from wheelcache.django_backend.backend import WheelCache


def wheel_caches() -> Iterator[tuple[str, WheelCache]]:
    """Iterate over the caches with their aliases, in the order of the settings, including unused ones."""
    for alias in settings.CACHES:
        cache = caches[alias]
        if isinstance(cache, WheelCache):
            yield alias, cache


def engines() -> list[Cache]:
    """Return the caches, each of them once, since aliases may share a store."""
    return list(dict.fromkeys(cache.store.cache for _, cache in wheel_caches()))
