"""The async methods of a cache under the names of the synchronous ones."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async


class Awaited:
    """Gives the async methods of a cache the names of the synchronous ones: ``Awaited(cache).get`` is ``cache.aget``.

    A method without an async version, such as django-redis's own methods, runs in a thread.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cache, f"a{name}", None)
        return sync_to_async(getattr(self._cache, name)) if found is None else found
