"""``from wheelcache.django_backend import cache``: the default cache, for some 25 ns more than held.

``django.core.cache.cache`` looks ``caches["default"]`` up at every call, which takes 1.7 us, six times what a hit
takes. This object has the methods of one backend object as attributes, which CPython 3.11 finds 25 ns later than those
of a class: 8% of a hit. It finds the backend when it is first used, and forgets it when a test overrides ``CACHES``. A
``__getattr__`` costs 20% of a hit even where it isn't called, so a class without one takes the place of the one that
has it.
"""

from __future__ import annotations

from typing import Any, Final, cast

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.signals import setting_changed

from wheelcache.django_backend.backend import WheelCache

ALIAS: Final = "default"


class UnboundCache:
    """Looks the default cache up at every call; binds itself to it, if all threads may use one object of its class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or (name.startswith("_") and not settings.configured):
            # Tools that inspect modules ask for such names, ``inspect`` itself from Python 3.13 on, before there are
            # settings. Once there are, a private name is one of the backend: RedisCache has ``_cache``.
            raise AttributeError(name)
        return getattr(_bind(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._target(), name)

    def _target(self) -> Any:
        backend = _bind(self)
        return backend if type(self) is UnboundCache else self

    def __contains__(self, key: Any) -> bool:
        return key in _bind(self)


class _Attribute:
    """What is no method, of the backend: it may change."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, handle: Any, owner: type) -> Any:
        return getattr(_backend_of(handle), self._name)

    def __set__(self, handle: Any, value: Any) -> None:
        setattr(_backend_of(handle), self._name, value)


class _BoundCache:
    """Has the methods of one backend object. Of each class of backends a subclass has the other attributes."""

    def __getattr__(self, name: str) -> Any:
        # The settings changed while another thread bound the handle: its methods are gone.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_bind(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # As on the backend; tests put doubles there.
        setattr(_backend_of(self), name, value)
        vars(self)[name] = value

    def __delattr__(self, name: str) -> None:
        backend = _backend_of(self)
        delattr(backend, name)
        vars(self).pop(name, None)
        if hasattr(backend, name):
            vars(self)[name] = getattr(backend, name)

    def __contains__(self, key: Any) -> bool:
        return key in _backend_of(self)


BACKEND: Final = "_backend"


def _backend_of(handle: Any) -> BaseCache:
    backend = vars(handle).get(BACKEND)
    return _bind(handle) if backend is None else backend


def _bind(handle: Any) -> BaseCache:
    """The default cache.

    Two threads that are here at the same time bind it to one of two backend objects, or to some methods of either: both
    have the same store.
    """
    own = caches[ALIAS]
    if not _serves_all_threads(own):
        return own
    backend = caches.create_connection(ALIAS)
    # Of another object: ``dir`` has the attributes moved to a dict, where a hit takes 20% longer to find them.
    names = [name for name in dir(caches.create_connection(ALIAS)) if not name.startswith("_")]
    methods = [name for name in names if callable(getattr(type(backend), name, None))]
    rest = {name: _Attribute(name) for name in set(names).difference(methods)}
    vars(handle).update({name: getattr(backend, name) for name in methods}, **{BACKEND: backend})
    object.__setattr__(handle, "__class__", type("BoundCache", (_BoundCache,), rest))
    return backend


def _serves_all_threads(backend: BaseCache) -> bool:
    return isinstance(backend, WheelCache) and backend.serves_all_threads


def _unbind(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        object.__setattr__(cache, "__class__", UnboundCache)
        vars(cache).clear()


cache: Final = cast(WheelCache, UnboundCache())
"""The cache ``default`` of the settings, whatever its backend, for all threads and tasks."""

setting_changed.connect(_unbind, dispatch_uid="wheelcache default cache")
