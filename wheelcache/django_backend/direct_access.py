"""Direct access to the backends: ``caches[alias]`` and ``django.core.cache.cache`` without Django's look-up every time.

Django looks the backend object up in an asgiref ``Local`` for every ``caches[alias]`` and every attribute of ``cache``.
This takes 2.3 and 3.1 us; a hit takes 0.07. The classes below keep the object that Django found, for the thread and the
context in which it did. They skip work and decide nothing:

- Each thread and context has the object that Django made for it. Tools such as the debug toolbar depend on this.
- Every attribute is read from that object, so a method that a test or a tool replaced, also in the class, is called.
- ``override_settings``, and everything else that assigns to ``caches._connections``, forgets the objects everywhere;
  ``caches[alias] = ...`` and ``del caches[alias]`` forget those of the context.
- Caches of other packages are not kept. Django's own code looks them up.

Only a change within the ``Local`` itself, which is private to Django's handler, is not noticed.

The classes of the two existing objects are exchanged, since other modules have already imported the objects, and Python
looks for ``__getitem__`` and descriptors only in a class.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from django.core.cache import DEFAULT_CACHE_ALIAS, CacheHandler, cache, caches
from django.core.cache.backends.base import BaseCache
from django.core.signals import setting_changed
from django.utils.connection import ConnectionProxy

from wheelcache.core import ContextMemo, KeptAttribute
from wheelcache.django_backend.redis_calls import RedisCalls
from wheelcache.django_backend.site_settings import DIRECT_ACCESS, direct_access
from wheelcache.engine.backend_access import BackendAccess

backends: Final = ContextMemo()
"""The backend objects of this package that Django found, by alias."""


FRAGMENTS: Final = "template_fragments"
"""The alias for which ``{% cache %}`` looks first. Most sites have none, and Django takes 4.5 us to find that out."""


class Unknown:
    """Kept for FRAGMENTS if there is no such alias. Others are not: there may be any number of unknown names.

    Attributes:
        error: the text of Django's exception.
    """

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        self.error = error


class DirectHandler(CacheHandler):
    """The class of ``caches``."""

    def __getitem__(self, alias: str) -> Any:
        found = backends.find(alias)
        if found is None:
            found = backends.look_up(alias, partial(_look_up, self), (BackendAccess, Unknown))
        if type(found) is Unknown:
            if alias not in self.settings:
                raise self.exception_class(found.error)
            # Something has added the alias to the dict itself.
            backends.forget()
            return self[alias]
        return found

    def __setitem__(self, alias: str, backend: Any) -> None:
        backends.forget()
        super().__setitem__(alias, backend)

    def __delitem__(self, alias: str) -> None:
        backends.forget()
        super().__delitem__(alias)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        finally:
            if name == "_connections":
                backends.forget_everywhere()


def _look_up(handler: CacheHandler, alias: str) -> Any:
    # Not a method: another thread may exchange the class meanwhile.
    try:
        return CacheHandler.__getitem__(handler, alias)
    except handler.exception_class as error:
        # The BACKEND of an alias in the settings cannot be imported.
        if alias != FRAGMENTS or alias in handler.settings:
            raise
        return Unknown(str(error))


class DirectProxy(ConnectionProxy):  # type: ignore[type-arg]
    """The class of ``django.core.cache.cache``. Attributes without a descriptor are looked up as in Django."""

    def __new__(cls, *args: Any) -> Any:
        # The descriptors are those of one alias: ``type(cache)(caches, "other")`` is a proxy of Django's. Only copies
        # of ``cache`` have no arguments.
        return ConnectionProxy(*args) if args else super().__new__(cls)


for base in (BaseCache, RedisCalls, BackendAccess):
    for attribute in dir(base):
        if not attribute.startswith("_"):
            setattr(DirectProxy, attribute, KeptAttribute(backends, DEFAULT_CACHE_ALIAS, attribute))


def follow_setting() -> None:
    """Begin or end direct access, as ``WHEELCACHE_DIRECT_ACCESS`` says.

    Raises:
        ImproperlyConfigured: if the setting is neither True nor False.
    """
    if direct_access():
        _exchange(caches, CacheHandler, DirectHandler)
        _exchange(cache, ConnectionProxy, DirectProxy)
    else:
        _exchange(cache, DirectProxy, ConnectionProxy)
        _exchange(caches, DirectHandler, CacheHandler)
        backends.forget_everywhere()


def _exchange(instance: Any, before: type, after: type) -> None:
    # A site may have put an object with a class of its own there.
    if type(instance) is before:
        # The proxy would set the class of the backend.
        object.__setattr__(instance, "__class__", after)


def _setting_changed(*, setting: str, **kwargs: Any) -> None:
    if setting == DIRECT_ACCESS:
        follow_setting()


setting_changed.connect(_setting_changed, dispatch_uid="wheelcache direct access")
