"""``from wheelcache.flask_backend import Cache``: Flask-Caching's ``Cache`` with faster decorators.

A hit of ``memoize`` or ``cached`` makes one key, without inspecting the signature, and takes one look-up in the engine.
Callers that miss a key together share one call of the function. ``get`` reaches the backend of the current app without
the detour through properties and proxies. Everything else is inherited.

Flask-Caching's own decorators are applied as well. Calls go through them if the backend is not one of this package, or
if a subclass of ``Cache`` overrides a method that they call and the faster decorators do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

import flask_caching
from flask import Flask
from flask.globals import _cv_app
from flask_caching.utils import function_namespace

from wheelcache.core.access import NO_TAGS
from wheelcache.engine import options
from wheelcache.flask_backend.decorated import Decorated, check_tags
from wheelcache.flask_backend.engine_backend import EngineBackend, Timeout, naming
from wheelcache.flask_backend.function_keys import FunctionNumbers, MemoKeys, view_keys

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:
    from flask_caching import _CachedFunction, _MemoizedFunction

    class MemoizedOfClass(_MemoizedFunction[..., R], Protocol[P, R]):
        """A function whose first argument is a class: see ``loading.memoize.MemoizedOfClass``."""

        def __get__(  # type: ignore[override]
            self, instance: object, owner: type | None = None, /
        ) -> _MemoizedFunction[P, R]: ...

    class FlaskMemoizer(Protocol):
        """A decorator that ``Cache.memoize`` returns."""

        @overload
        def __call__(self, function: Callable[Concatenate[type[T], P], R], /) -> MemoizedOfClass[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> _MemoizedFunction[P, R]: ...


NOT_CALLED: Final = (
    *("get", "has", "set", "get_many", "set_many"),
    *("_memoize_version", "_memoize_make_cache_key", "_memoize_kwargs_to_args", "_memoize_make_version_hash"),
)
"""The methods that Flask-Caching's decorators call and the faster decorators do not."""


DecoratorTimeout = Timeout | str | Callable[[Any], float | None]
"""The timeout of a decorator: as in Flask-Caching, or a function that receives the value and returns seconds."""

Tags = Callable[..., Iterable[str]] | Iterable[str]
"""The tags of the values of a function, or a function of its arguments that returns them."""


class Cache(flask_caching.Cache):
    """Flask-Caching's ``Cache``; with a backend of this package, its decorators are faster and compute a value once.

    See ``flask_caching.Cache`` for all arguments, methods and attributes. Both decorators also accept ``tags=``: the
    tags of every value, for ``delete_tags``, or a function that returns them. It is called with the arguments of the
    call, before the value is computed.
    """

    uses_original_decorators = False
    """Whether Flask-Caching's decorators are used, since a subclass overrides one of the NOT_CALLED methods."""

    def __init__(
        self, app: Flask | None = None, with_jinja2_ext: bool = True, config: dict[str, Any] | None = None
    ) -> None:
        self._numbers = FunctionNumbers()
        super().__init__(app, with_jinja2_ext, config)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.uses_original_decorators = any(getattr(cls, name) is not getattr(Cache, name) for name in NOT_CALLED)
        if cls.cache is not Cache.cache and cls.get is Cache.get:
            # It finds its backend in another way.
            cls.get = flask_caching.Cache.get  # type: ignore[method-assign]

    def _set_cache(self, app: Flask, config: dict[str, Any]) -> None:
        timeout = (config["CACHE_OPTIONS"] or {}).get("default_timeout", config["CACHE_DEFAULT_TIMEOUT"])
        if isinstance(timeout, str):
            # Flask-Caching converts it by ``int``, whose error names neither the option nor the cache.
            with naming(app.name):
                options.as_django_reads(options.timeout)("default_timeout", timeout)
        super()._set_cache(app, config)

    @property
    def cache(self) -> Any:
        """The backend of the current app."""
        try:
            # ``current_app.extensions`` takes five times as long.
            app = _cv_app.get().app
        except LookupError:
            app = self.app
        return app.extensions["cache"][self]

    def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """Return the value of ``key``, or None if it is missing, as the backend of the current app does."""
        # The property ``cache`` and a call with all arguments would add 150 ns to 300.
        try:
            app = _cv_app.get().app
        except LookupError:
            app = self.app
        backend = app.extensions["cache"][self]
        return backend.get(key, *args, **kwargs) if args or kwargs else backend.get(key)

    def _cached(self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
        given = _arguments(flask_caching.Cache.cached, self, *args, **kwargs)
        decorate, tags_of = super().cached(*args, **kwargs), self._tags_of(tags)
        if self.uses_original_decorators:
            return decorate

        def decorator(function: Callable[..., Any]) -> Any:
            theirs = decorate(function)
            make_key = view_keys(self, theirs, given)
            return Decorated(self, function, theirs, given, make_key, tags_of, is_view=True).function

        return decorator

    def _memoize(self, *args: Any, tags: Tags = NO_TAGS, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
        given = _arguments(flask_caching.Cache.memoize, self, *args, **kwargs)
        decorate, tags_of = super().memoize(*args, **kwargs), self._tags_of(tags)
        if self.uses_original_decorators:
            return decorate

        def decorator(function: Callable[..., Any]) -> Any:
            theirs = decorate(function)
            keys = MemoKeys(self, function, given, self._numbers.add(function))
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
            self,
            timeout: DecoratorTimeout = None,
            key_prefix: str | Callable[[], str] = "view/%s",
            unless: Callable[..., Any] | None = None,
            forced_update: Callable[..., Any] | None = None,
            is_stale: Callable[..., Any] | None = None,
            response_filter: Callable[..., Any] | None = None,
            query_string: bool = False,
            hash_method: Callable[..., Any] | None = None,
            cache_none: bool = False,
            make_cache_key: Callable[..., Any] | None = None,
            source_check: bool | None = None,
            response_hit_indication: bool | None = False,
            *,
            tags: Tags = NO_TAGS,
        ) -> Callable[[Callable[P, R]], _CachedFunction[P, R]]: ...

        def memoize(
            self,
            timeout: DecoratorTimeout = None,
            make_name: Callable[..., str] | None = None,
            unless: Callable[..., bool] | None = None,
            forced_update: Callable[..., bool] | None = None,
            is_stale: Callable[..., bool] | None = None,
            response_filter: Callable[..., Any] | None = None,
            hash_method: Callable[..., Any] | None = None,
            cache_none: bool = False,
            source_check: bool | None = None,
            args_to_ignore: list[str] | None = None,
            *,
            tags: Tags = NO_TAGS,
        ) -> FlaskMemoizer: ...

    else:
        # ``help`` shows the arguments of the installed release.
        cached = wraps(flask_caching.Cache.cached)(_cached)
        memoize = wraps(flask_caching.Cache.memoize)(_memoize)

    def delete_tags(self, *tags: str) -> None:
        """Delete every entry that was stored with one of the tags: see ``WheelCache.delete_tags``. With a NullCache, do
        nothing.

        Raises:
            TypeError: if the backend is not one of this package, or a tag is not a string.
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
        if self.uses_original_decorators:
            raise TypeError(
                f"tags need the decorators of wheelcache, but {type(self).__name__} overrides a method that only "
                "Flask-Caching's call"
            )
        return options.tags_by_arguments("tags", tags)

    def _memoize_version(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """Do the same as Flask-Caching's method, but reset a version by deleting it: the next call makes a new one."""
        if not ((kwargs.get("reset") or kwargs.get("delete")) and self.uses_own_keys()):
            return super()._memoize_version(f, *args, **kwargs)
        name, of_instance = function_namespace(f)
        of_function = name + self._numbers.find(f)
        self.delete(self._memvname(of_function if of_instance is None else of_function + of_instance[len(name) :]))
        return name, None

    def uses_own_keys(self) -> bool:
        """Return whether calls go through the decorators of this class with the current backend."""
        return isinstance(self.cache, EngineBackend) and not self.uses_original_decorators


def _arguments(decorator: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call of ``decorator`` by name. The names depend on the release of Flask-Caching."""
    bound = signature(decorator).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments
