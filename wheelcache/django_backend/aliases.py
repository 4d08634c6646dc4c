"""The aliases of ``CACHES`` that are caches of this package."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.cache import caches

from wheelcache.django_backend.backend import WheelCache


def wheel_caches() -> Iterator[tuple[str, WheelCache]]:
    """Iterate over the caches with their aliases, in the order of the settings, including unused ones."""
    for alias in settings.CACHES:
        cache = caches[alias]
        if isinstance(cache, WheelCache):
            yield alias, cache
