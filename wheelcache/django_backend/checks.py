"""System checks of ``CACHES``, for what is no error but hardly meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.cache import caches
from django.core.checks import CheckMessage

from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.stores import OPTIONS


def _aliases() -> Iterator[tuple[str, WheelCache]]:
    for alias in settings.CACHES:
        cache = caches[alias]
        if isinstance(cache, WheelCache):
            yield alias, cache


def check_locations(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Aliases with one LOCATION and different OPTIONS look as if they shared entries, and don't."""
    stores: defaultdict[str, dict[Any, list[str]]] = defaultdict(dict)
    for alias, cache in _aliases():
        stores[cache.location].setdefault(cache.store, []).append(alias)
    return [
        checks.Warning(
            f"The caches {' and '.join(repr(names[0]) for names in by_store.values())} have the same LOCATION "
            f"{location!r} but different OPTIONS, so they do not share their entries.",
            hint="Give them the same OPTIONS to share one store, or different LOCATIONs to say that they don't.",
            id="wheelcache.W001",
        )
        for location, by_store in stores.items()
        if len(by_store) > 1
    ]


def check_misplaced_options(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """An option beside OPTIONS instead of in it does nothing."""
    return [
        checks.Warning(
            f"CACHES[{alias!r}] has {option!r} beside its OPTIONS, where Django does not look for it.",
            hint=f"Move it: 'OPTIONS': {{{option!r}: ...}}.",
            id="wheelcache.W002",
        )
        for alias, _ in _aliases()
        for option in settings.CACHES[alias]
        if option in OPTIONS
    ]
