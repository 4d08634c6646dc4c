"""``from wheelcache.flask_backend import Cache``: Flask-Caching's ``Cache`` with faster decorators.

A hit of ``memoize`` or ``cached`` makes one key, without inspecting the signature, and takes one look-up in the engine.
Callers that miss a key together share one call of the function. Everything else is inherited.

Flask-Caching's own decorators are applied as well. Calls go through them if the backend is not one of this package, or
if a subclass of ``Cache`` overrides a method that they call and the faster decorators do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import flask_caching
from flask import current_app

from wheelcache import options
from wheelcache.core.access import NO_TAGS
from wheelcache.flask_backend.decorated import Decorated, check_tags
from wheelcache.flask_backend.engine_backend import EngineBackend
from wheelcache.flask_backend.function_keys import MemoKeys, view_keys

if TYPE_CHECKING:
    from flask_caching import _CachedFunction, _MemoizedFunction

P = ParamSpec("P")
R = TypeVar("R")

BYPASSED: Final = (
    *("get", "has", "set", "get_many", "set_many"),
    *("_memoize_version", "_memoize_make_cache_key", "_memoize_kwargs_to_args", "_memoize_make_version_hash"),
)
"""The methods that Flask-Caching's decorators call and the faster decorators do not."""


Tags = Callable[..., Iterable[str]] | Iterable[str]
"""The tags of the values of a function, or a function of its arguments that returns them."""


class Cache(flask_caching.Cache):
    """Flask-Caching's ``Cache``; with a backend of this package, its decorators are faster and compute a value once.

    See ``flask_caching.Cache`` for all arguments, methods and attributes. Both decorators also accept ``tags=``: the
    tags of every value, for ``delete_tags``, or a function that returns them. It is called with the arguments of the
    call, before the value is computed.
    """

    is_instrumented = False
    """Whether a subclass overrides one of the BYPASSED methods."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_instrumented = any(getattr(cls, name) is not getattr(Cache, name) for name in BYPASSED)

    @property
    def cache(self) -> Any:
        """The backend of the current app."""
        try:
            # An attribute of the proxy takes three times as long.
            app = current_app._get_current_object()  # type: ignore[attr-defined]
        except RuntimeError:
            app = self.app
        return app.extensions["cache"][self]

    def _cached(self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
        given = _arguments(flask_caching.Cache.cached, self, *args, **kwargs)
        decorate, tags_of = super().cached(*args, **kwargs), self._tags_of(tags)
        if self.is_instrumented:
            return decorate

        def decorator(function: Callable[..., Any]) -> Any:
            theirs = decorate(function)
            make_key = view_keys(self, theirs, given)
            return Decorated(self, function, theirs, given, make_key, tags_of, is_view=True).function

        return decorator

    def _memoize(self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
        given = _arguments(flask_caching.Cache.memoize, self, *args, **kwargs)
        decorate, tags_of = super().memoize(*args, **kwargs), self._tags_of(tags)
        if self.is_instrumented:
            return decorate

        def decorator(function: Callable[..., Any]) -> Any:
            theirs = decorate(function)
            keys = MemoKeys(self, function, given)
            make_their_key = theirs.make_cache_key

            def make_cache_key(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                if self.uses_own_keys():
                    return keys.make(self.cache, args, kwargs)[0]
                return make_their_key(f, *args, **kwargs | decorated.previous(None))

            theirs.make_cache_key = make_cache_key
            decorated = Decorated(self, function, theirs, given, keys.make, tags_of, is_view=False)
            return decorated.function

        return decorator

    if TYPE_CHECKING:

        def cached(
            self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any
        ) -> Callable[[Callable[P, R]], _CachedFunction[P, R]]: ...

        def memoize(
            self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any
        ) -> Callable[[Callable[P, R]], _MemoizedFunction[P, R]]: ...

    else:
        # ``help`` shows the arguments of the installed release.
        cached = wraps(flask_caching.Cache.cached)(_cached)
        memoize = wraps(flask_caching.Cache.memoize)(_memoize)

    def delete_tags(self, *tags: str) -> None:
        """Delete every entry that was stored with one of the tags: see ``WheelCache.delete_tags``. With a NullCache, do
        nothing.

        Raises:
            TypeError: if the backend is not one of this package, or a tag is not a string.
            NotImplementedError: if the backend is a TieredCache.
        """
        backend = self.cache
        if isinstance(backend, EngineBackend):
            backend.delete_tags(*tags)
        else:
            check_tags("delete_tags", backend)

    def _tags_of(self, tags: Tags) -> Callable[..., tuple[str, ...]] | None:
        """Return the function that returns the tags of a value, given the arguments of a call; None without tags."""
        if tags is NO_TAGS:
            return None
        if self.is_instrumented:
            raise TypeError(
                f"tags need the decorators of wheelcache, but {type(self).__name__} overrides a method that only "
                "Flask-Caching's call"
            )
        return options.tags_by_arguments("tags", tags)

    def _memoize_version(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """Do the same as Flask-Caching's method, but reset a version by deleting it: the next call makes a new one.

        Other processes may not have the version, and receive only deletions.
        """
        if kwargs.get("reset") and self.uses_own_keys():
            return super()._memoize_version(f, delete=True)
        return super()._memoize_version(f, *args, **kwargs)

    def uses_own_keys(self) -> bool:
        """Return whether calls go through the decorators of this class with the current backend."""
        return isinstance(self.cache, EngineBackend) and not self.is_instrumented


def _arguments(decorator: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call of ``decorator`` by name. The names depend on the release of Flask-Caching."""
    bound = signature(decorator).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments
