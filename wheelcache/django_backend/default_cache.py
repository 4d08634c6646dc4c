"""``from wheelcache.django_backend import cache``: the default cache, by one backend object for all threads and tasks.

Django makes a backend object for each thread and context, which takes 25 us in every request under ASGI. This object
keeps the methods of one backend object as attributes. It finds the backend when it is first used, and forgets it when a
test overrides ``CACHES``.
"""

from __future__ import annotations

from typing import Any, Final, cast

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.signals import setting_changed

from wheelcache.django_backend.backend import WheelCache

ALIAS: Final = "default"
BACKEND: Final = "_backend"


class DefaultCache:
    """Stands for the default cache. Each of its methods is looked up once, and other attributes at every access.

    If threads may not share one backend object of its class, the cache is looked up at every call.
    """

    def __getattr__(self, name: str) -> Any:
        # Called for names that are not in the dict of this object.
        if name.startswith("__") or (name.startswith("_") and not settings.configured):
            # Tools that inspect modules, including ``inspect`` from Python 3.13 on, ask for such names before there are
            # settings. Once there are, a private name belongs to the backend: RedisCache has ``_cache``.
            raise AttributeError(name)
        backend = self._find_backend()
        value = getattr(backend, name)
        if BACKEND in vars(self) and callable(getattr(type(backend), name, None)):
            vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Tests replace attributes of the backend by doubles.
        setattr(self._find_backend(), name, value)
        vars(self).pop(name, None)

    def __delattr__(self, name: str) -> None:
        delattr(self._find_backend(), name)
        vars(self).pop(name, None)

    def __contains__(self, key: Any) -> bool:
        return key in self._find_backend()

    def _find_backend(self) -> BaseCache:
        """Return the default cache. The first threads may get two objects, which have the same store."""
        backend: BaseCache | None = vars(self).get(BACKEND)
        if backend is None:
            backend = caches[ALIAS]
            if isinstance(backend, WheelCache) and backend.serves_all_threads:
                # A separate object, which no request closes.
                backend = vars(self)[BACKEND] = caches.create_connection(ALIAS)
        return backend


def _forget_backend(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        vars(cache).clear()


cache: Final = cast(WheelCache, DefaultCache())
"""The cache ``default`` of the settings, whatever its backend, for all threads and tasks."""

setting_changed.connect(_forget_backend, dispatch_uid="wheelcache default cache")
