"""The Flask-Caching backend. Its methods come in the order of cachelib's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, TypeVar

from flask import Flask

from wheelcache.cache import Cache
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import MISSING
from wheelcache.engine import options
from wheelcache.engine.in_memory import InMemory
from wheelcache.engine.loading.request import PLAIN, Kept, LoadRequest, Unstored, load_policy
from wheelcache.engine.option_table import FLASK as OPTIONS
from wheelcache.flask_backend.engine_backend import Begun, EngineBackend, Timeout

R = TypeVar("R")

RENEWED: Final = 0.99
"""The version of a memoized function is renewed if less than this share of the timeout of a new value is left. So most
values need not renew it, and a value may end by 1% of its timeout earlier, with the version."""

POSITIONAL: Final = ("threshold", "default_timeout", "ignore_delete_many_errors")


class WheelCache(EngineBackend):
    """cachelib's cache API on ``wheelcache.Cache``: in the memory of the process, shared by its threads.

    Each object has a store of its own, so two apps in one process share nothing.

    Values are isolated: immutable values are stored as they are, all others are pickled. A ``serializer`` in cachelib's
    form, set on the class or on the object, replaces pickle and then receives every value except ints and None.

    Args:
        threshold: the most entries to keep. As in cachelib's SimpleCache, 0 means 500.
        default_timeout: int, float or timedelta; 0 for entries that never expire.
        ignore_delete_many_errors: accepted for compatibility; deletes cannot fail.
        given: the other options; see ``option_table.FLASK``.

    Raises:
        TypeError, ValueError: if an option is unknown or wrong. The message names the option, the values that it
            accepts and the value that it got.
    """

    _table = OPTIONS

    def __init__(
        self,
        threshold: int = OPTIONS["threshold"].default,
        default_timeout: Timeout = OPTIONS["default_timeout"].default,
        ignore_delete_many_errors: bool = OPTIONS["ignore_delete_many_errors"].default,
        **given: Any,
    ) -> None:
        positional = (threshold, default_timeout, ignore_delete_many_errors)
        checked = self._checked_options({**given, **dict(zip(POSITIONAL, positional, strict=True))})
        with OPTIONS.in_errors():
            engine = Cache(**OPTIONS.for_engine(checked))
        self._use_engine(engine, checked)

    def _use_engine(self, engine: Cache, checked: dict[str, Any]) -> None:
        super().__init__(engine, checked)
        # A plain string, even if the option is of a subclass such as an Enum: compiled code accepts no other.
        self._prefix = f"{checked['key_prefix']}"
        self._group_keys()
        self._look_up_in(engine)
        layer = InMemory(engine, self._codec, checked.get("max_weight"))
        layer.tag_prefix = self._prefix
        self._use_layer(layer)

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> WheelCache:
        """Return a new backend. Flask-Caching calls this. CACHE_ARGS and CACHE_OPTIONS override the other settings."""
        if len(args) > len(POSITIONAL):
            raise TypeError(f"CACHE_ARGS must be at most {', '.join(POSITIONAL)}, not {options.shown(args)}")
        settings = {
            "threshold": config["CACHE_THRESHOLD"],
            "key_prefix": config["CACHE_KEY_PREFIX"] or "",
        }
        given = {**settings, **kwargs, **dict(zip(POSITIONAL, args, strict=False))}
        return cls._for_app(app, given, lambda given: cls(**given))

    def get_or_load(
        self,
        key: str,
        loader: Callable[..., R],
        timeout: Timeout | Callable[[Any], float | None] = None,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: float | None = None,
        load_timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = NO_TAGS,
    ) -> R:
        """Return the value of ``key``; if it is missing, the result of ``loader()``, which is stored.

        If several threads miss the key together, one runs its loader, and the others receive its value or exception.

        A loader that runs in another thread, in the background or because of ``load_timeout``, gets a new context of
        the current app, which is torn down after it. It has neither the ``request`` nor the ``g`` of its caller: pass
        the values that it needs, or use the option ``background_context``.

        Args:
            loader: see ``wheelcache.Cache.get_or_load`` for a parameter named ``previous``, and for KEEP.
            timeout: as for ``set``, or a function that receives the value and returns seconds. If it returns None, 0 or
                less, the value is not kept.
            grace, refresh_ahead, fail_safe, negative_ttl: as for ``wheelcache.Cache.get_or_load``.
            load_timeout: as ``timeout`` there.
            tags: as for ``set``.
        """
        ttl = timeout if callable(timeout) else self._ttl(timeout)
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout=load_timeout)
        cache_key = self._cache_key(key)
        value = self._value(cache_key, self._chain.find(cache_key, MISSING))
        if value is MISSING or self._needs_refresh(cache_key, value, ttl, policy):
            if self._graces:
                policy = policy.with_grace(self._grace(key))
            # A load in the background encodes within the app context, since pickling may need its session.
            request = self.loading.request(cache_key, loader, ttl, policy, self._tag_names(tags), self._codec)
            value = self._chain.load(request, value)
        return value  # type: ignore[no-any-return]

    def request_shared(self, key: str, load: Callable[[], Any], begun: Begun) -> LoadRequest:
        if not begun.is_fill:
            return super().request_shared(key, load, begun)
        policy = PLAIN.with_grace(self._grace(key)) if self._graces else PLAIN
        return self.loading.request(self._cache_key(key), load, None, policy, begun.names, passes_previous=False)

    def shared(self, value: Any, timeout: Timeout, begun: Begun) -> Kept | Unstored:
        # The load stores the value, unless the key is written before it ends.
        ttl = self._ttl(timeout)
        return Kept(self._encode(value), ttl) if begun.is_fill else Unstored(self._encode(value))

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        ttl = self._version_ttl(key, self._ttl(timeout))
        if ttl is not None and ttl <= 0:
            return
        cache_key = self._cache_key(key)
        left = self._cache.engine.seconds_left(cache_key)
        # A new version has no timeout yet.
        if (left < inf) if ttl is None else (left < RENEWED * ttl or left == inf):
            self._cache.engine.renew(cache_key, version, ttl)

    def _cache_key(self, key: str) -> str:
        return key if type(key) is str and not self._prefix else f"{self._prefix}{key}"
