"""List the caches of this process, for metrics, the terminal and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from wheelcache.runtime.shared_objects import WeakRegistry

if TYPE_CHECKING:
    from wheelcache.cache import Cache

ObservedCache: TypeAlias = "Cache"

registry: Final[WeakRegistry[ObservedCache]] = WeakRegistry()
"""Every cache of this process."""


def observed_caches() -> list[ObservedCache]:
    """Return the caches of this process that are not closed, oldest first."""
    return [cache for cache in registry if not cache.is_closed]
