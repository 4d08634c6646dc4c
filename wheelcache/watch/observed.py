"""List the caches of this process, for metrics, the terminal and the dashboard."""

from __future__ import annotations

from typing import Final, Protocol

from wheelcache.engine.runtime.shared_objects import WeakRegistry
from wheelcache.engine.stats import Stats
from wheelcache.watch.observers import Observer


class ObservedCache(Protocol):
    """A ``Cache``, as its observers see it."""

    @property
    def name(self) -> str: ...
    @property
    def observer(self) -> Observer: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def has_shared_entries(self) -> bool: ...
    def stats(self) -> Stats: ...


registry: Final[WeakRegistry[ObservedCache]] = WeakRegistry()
"""Every cache of this process."""


def page_caches() -> list[ObservedCache]:
    """Return the caches of the pages of HTTP caches, as ``observed_caches`` does."""
    return [cache for cache in observed_caches() if cache.observer.stats.pages is not None]


def observed_caches() -> list[ObservedCache]:
    """Return the caches of this process that are not closed, oldest first."""
    return [cache for cache in registry if not cache.is_closed]
