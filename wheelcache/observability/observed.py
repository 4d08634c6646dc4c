"""The caches of this process, for what observes them from outside: metrics, the terminal, the dashboard."""

from __future__ import annotations

from typing import Final, Protocol

from wheelcache.observability.observers import Observer
from wheelcache.persistence.autosave import Autosave
from wheelcache.runtime.shared_objects import WeakRegistry


class ObservedCache(Protocol):
    """A cache, as far as its observers are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def keeper(self) -> Autosave | None: ...
    @property
    def observer(self) -> Observer: ...

    def clear_for(self, by: str | None) -> None: ...


registry: Final[WeakRegistry[ObservedCache]] = WeakRegistry()
"""Every cache of this process."""


def observed_caches() -> list[ObservedCache]:
    """The caches of this process that are not closed, oldest first."""
    return [cache for cache in registry if not cache.is_closed]
