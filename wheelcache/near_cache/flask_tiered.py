"""A near cache in front of any other cachelib cache: ``CACHE_TYPE = "wheelcache.flask_backend.TieredCache"``."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any, TypeVar

import cachelib
from flask import Flask

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING, Record
from wheelcache.engine import options
from wheelcache.engine.backend_access import checked_tags
from wheelcache.engine.loading.request import LoadRequest
from wheelcache.flask_backend.backend import WheelCache
from wheelcache.flask_backend.engine_backend import Begun, EngineBackend, Timeout
from wheelcache.near_cache.flask_second_level import CachelibStore, checked_level, prefix_of, second_level, with_prefix
from wheelcache.near_cache.invalidations import Invalidations
from wheelcache.near_cache.near_copies import NearCopies
from wheelcache.near_cache.options import FLASK_TIERED as OPTIONS
from wheelcache.near_cache.options import finite_timeout
from wheelcache.near_cache.store_calls import Stores
from wheelcache.near_cache.store_tags import StoreTags
from wheelcache.runtime.steps import drive, result

logger = logging.getLogger("wheelcache")

R = TypeVar("R")


class TieredCache(EngineBackend):
    """Keeps copies of the values of another cache, the second level, in the memory of the process.

    ``get`` looks at the copies and then asks the second level, once for all callers that miss a key together. Every
    write goes to the second level and drops the copy. See ``near_cache``. Keys, timeouts and return values are those of
    the second level. Copies are isolated in the same way as the values of a ``WheelCache``.

    cachelib's ``get`` does not distinguish None from a miss. So no copy of a None is kept, and each call asks the
    second level: once, or up to three times if ``fill_wait`` makes other callers wait for a key that may become None.

    Args:
        l2: the second level, any cachelib cache.
        given: the other options: see ``options.FLASK_TIERED``. A Redis or Valkey behind redis-py reports the
            writes of all clients. No other second level does, which is logged.

    Attributes:
        l2: the second level.

    Raises:
        TypeError, ValueError: if an option is unknown or wrong. The message names the option, the accepted values and
            the given one.
    """

    _table = OPTIONS
    _shared: NearCopies

    def __init__(self, l2: cachelib.BaseCache, **given: Any) -> None:
        checked = self._checked_options(given)
        if "l2_options" in given:
            raise _made_already(given["l2_options"])
        self.l2 = checked_level(l2, TieredCache)
        self._l2_prefix = prefix_of(l2)
        # The prefix is empty if it changes from call to call.
        self._prefix = prefix = self._l2_prefix if isinstance(self._l2_prefix, str) else ""
        invalidations = Invalidations(l2, prefix)
        with OPTIONS.in_errors():
            engine = Cache(**OPTIONS.for_engine(checked), trust=invalidations.trust)
        del checked["l2_options"]
        super().__init__(engine, checked | {"l2": type(l2).__name__})
        # The caches of cachelib before version 0.16 have no such attribute.
        self.ignore_delete_many_errors = getattr(l2, "ignore_delete_many_errors", True)
        if checked["default_timeout"] is None:
            self.default_timeout = l2.default_timeout
        self._group_keys()
        if prefix == self._l2_prefix:
            # With another prefix, the fast path would find no key.
            self._look_up_in(engine)
        level = invalidations.near_cache(engine, checked)
        # None of its functions refers to the backend.
        tags = StoreTags(level, partial(with_prefix, self._l2_prefix))
        # Flask's calls are synchronous.
        stores = Stores(CachelibStore(l2, level.note_undecoded), None)
        layer = NearCopies(level, stores, tags, self._codec)
        self._use_layer(layer)
        # The thread refers to the copies, not to the backend, which would otherwise outlive an app that is replaced.
        weakref.finalize(self, level.stop_tracking)
        if not invalidations.is_notified:
            logger.warning(
                "The cache %r is not notified of writes by other processes: its copies are up to %g s old. Use Redis "
                "or Valkey without replicas, or HostCache if all processes are on this machine.",
                engine.name,
                checked["l1_timeout"],
            )

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> TieredCache:
        """Return a new backend and its second level, which has the same settings. Flask-Caching calls this."""
        if args:
            raise TypeError(
                f"CACHE_ARGS must be empty, since TieredCache uses CACHE_OPTIONS only, not {options.shown(args)}"
            )

        def make(given: dict[str, Any]) -> TieredCache:
            l2, l2_options = given.pop("l2", None), given.pop("l2_options", None)
            # The second level reads it, too, and its errors do not name it.
            finite_timeout("default_timeout", config["CACHE_DEFAULT_TIMEOUT"])
            if l2_options is not None and not isinstance(l2, str):
                raise _made_already(l2_options)
            if isinstance(l2, str):
                l2 = second_level(app, config, l2, {} if l2_options is None else l2_options)
            backend = cls(l2, **given)
            backend._options["l2_options"] = l2_options
            return backend

        return cls._for_app(app, {"threshold": config["CACHE_THRESHOLD"], **kwargs}, make)

    def is_of_this_process(self) -> bool:
        """Return whether the entries of the second level are in this process only."""
        return isinstance(self.l2, WheelCache | cachelib.SimpleCache)

    def begin(self, tags: tuple[str, ...]) -> Begun:
        write = self._shared.begin(checked_tags(tags))
        return Begun(tags, write.names, 0, write=write)

    def get_or_load(self, key: str, loader: Callable[..., R], timeout: Timeout = None, *, tags: Any = ()) -> R:
        """Return the value of ``key``; if it is missing, the result of ``loader()``, which is stored.

        Of the threads of this process that miss the key together, one runs its loader, and the others get its value or
        its exception. None is a value like any other.
        """
        tags, ttl = checked_tags(tags), timeout if callable(timeout) else self._ttl(timeout)
        found = self._get_at_once(key)
        if found is not MISSING:
            return found  # type: ignore[no-any-return]
        return result(drive(self._chain.compute(self._cache_key(key), loader, ttl, tags)))  # type: ignore[no-any-return, attr-defined]

    def request_shared(self, key: str, load: Callable[[], Any], begun: Begun) -> LoadRequest:
        if not begun.is_fill:
            return super().request_shared(key, load, begun)
        return self._shared.request_apart(self._cache_key(key), load, begun.write)

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Begun) -> None:
        if self.is_in_transaction():
            super().keep(key, value, timeout, begun)
        else:
            self._shared.keep(begun.write, self._cache_key(key), value, self._ttl(timeout), is_fill=begun.is_fill)

    def previous(self, key: str) -> Record | None:
        """Return None: another process may have deleted the value of an old copy."""
        return None

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        ttl = self._version_ttl(key, self._ttl(timeout))
        # The second level cannot do this atomically.
        if not options.expires_now(ttl) and self.get(key) == version:
            drive(self._chain.set(self._cache_key(key), version, ttl))

    def _cache_key(self, key: str) -> str:
        """Return the key in the second level, under which writes are reported."""
        return with_prefix(self._l2_prefix, key)

    def _ttl(self, timeout: Timeout) -> float | None:
        # cachelib takes whole seconds.
        return super()._ttl(ceil(timeout.total_seconds()) if isinstance(timeout, timedelta) else timeout)

    def __setattr__(self, name: str, value: Any) -> None:
        # CACHE_SERIALIZER concerns stored values, so it applies to both levels.
        if name == "serializer" and hasattr(self.l2, "serializer"):
            self.l2.serializer = value
        super().__setattr__(name, value)


def _made_already(value: Any) -> TypeError:
    return TypeError(f"l2_options must be left out if l2 is a cache object, not {options.shown(value)}")
