"""A near cache in front of any other cache of cachelib's kind:
``CACHE_TYPE = "wheelcache.flask_backend.TieredCache"``."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import cachelib
import flask_caching
from flask import Flask
from flask_caching.backends import RedisClusterCache, RedisSentinelCache
from werkzeug.utils import import_string

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps, Stamps
from wheelcache.core.contract import MISSING
from wheelcache.flask_backend.backend import (
    DEFAULT_THRESHOLD,
    ENGINE_OPTIONS,
    Timeout,
    WheelCache,
    _end_leases,
    _is_memoize_version,
    _seconds,
    check_known,
    figures_directory,
    naming,
    warn_of_sessions,
)
from wheelcache.isolation import size_of
from wheelcache.leases.fill_scope import forget_misses
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.trust_epoch import TrustEpoch

logger = logging.getLogger("wheelcache")

OPTIONS: Final = (
    *("l2", "l2_options", "l2_timeout", "l1_timeout", "fail_safe", "grace", "writes_without_l2"),
    *("threshold", "default_timeout", "ignore_delete_many_errors", "max_bytes", "fill_wait", "coherence"),
    *ENGINE_OPTIONS,
)
"""What there may be in CACHE_OPTIONS."""

L2_TIMEOUT: Final = 1.0

L2_TAKES: Final = "the name or dotted path of a backend as in CACHE_TYPE, or a cachelib cache"


class TieredCache(WheelCache):
    """Copies in the memory of the process of what another cache has, the second level.

    ``get`` looks at the copies, then asks the second level, once for all who miss a key together. Everything that
    writes goes to the second level, and drops the copy. See ``near_cache``. Keys, timeouts and what a method returns
    are the second level's. Copies are isolated as values are in ``WheelCache``.

    A None is not told from a miss by cachelib's ``get``, so it is not kept, and the second level is asked each time:
    once, or, if ``fill_wait`` would have others wait for a key that may be set to None, up to three times.

    Args:
        l2: the second level, any cachelib cache.
        l1_timeout: seconds that a copy is kept.
        fail_safe: while the second level fails, copies are returned, for ``grace`` seconds past their time, and None
            for what there is none of.
        grace: seconds.
        writes_without_l2: with ``fail_safe``, "drop" has a write that fails return what cachelib documents for one;
            "refuse" has it raise the second level's error, as without ``fail_safe``.
        threshold: the most copies that are kept; 0 means 500.
        default_timeout: that of the second level if not given.
        max_bytes, fill_wait, engine_options: as ``WheelCache``, of the copies.
        coherence: "host" if processes of this machine with the same ``name`` and the same prefix in the second level
            are to see at once what one of them writes. If None, a Redis or Valkey behind redis-py tells what anybody
            writes. Any other second level tells nothing, which is logged.

    Attributes:
        l2: the second level.

    Raises:
        TypeError, ValueError: an option is unknown or wrong; names it, what it takes and what it got.
    """

    def __init__(
        self,
        l2: cachelib.BaseCache,
        *,
        l1_timeout: float = 60.0,
        fail_safe: bool = False,
        grace: float = 300.0,
        writes_without_l2: str = "drop",
        threshold: int = DEFAULT_THRESHOLD,
        default_timeout: Timeout = None,
        max_bytes: int | None = None,
        fill_wait: float | Mapping[str, float] = 0,
        coherence: str | None = None,
        **engine_options: Any,
    ) -> None:
        # Not WheelCache's, which would make a cache of its own.
        check_known(engine_options, OPTIONS, engine_options)
        self.l2 = _checked_level(l2)
        self.default_timeout = (
            l2.default_timeout if default_timeout is None else _seconds("default_timeout", default_timeout)  # type: ignore[assignment]
        )
        self.ignore_delete_many_errors = l2.ignore_delete_many_errors
        self._l2_prefix: str | Callable[[], str] = getattr(l2, "key_prefix", None) or ""
        self._max_bytes = options.count_or_none("max_bytes", max_bytes)
        self._fill_waits = options.waits("fill_wait", fill_wait)
        l1_timeout = options.seconds("l1_timeout", l1_timeout)
        tracking = None
        stamps: Stamps | None = None
        epoch = None
        if options.coherence("coherence", coherence) is not None:
            stamps = SharedStamps(f"flask tiered {engine_options.get('name', '')} {self._prefix_text()}")
        else:
            tracking = _tracking(l2, self._prefix_text())
            stamps = epoch = None if tracking is None else TrustEpoch()
        self._cache = Cache(
            max_entries=options.whole("threshold", threshold) or DEFAULT_THRESHOLD,
            max_weight=self._max_bytes,
            weigher=None if self._max_bytes is None else size_of,
            stamps=stamps,
            **engine_options,
        )
        self._level = NearCache(
            self._cache,
            l1_timeout,
            epoch=epoch,
            fail_safe=options.flag("fail_safe", fail_safe),
            grace=options.seconds("grace", grace),
            drop_writes=options.one_of("drop", "refuse")("writes_without_l2", writes_without_l2) == "drop",
        )
        if tracking is not None:
            told = tracking(self._level)
            self._level.start_tracking = told.start
            # The thread knows the copies, not who makes them: it would outlive an app that is made anew.
            weakref.finalize(self, told.stop)
        if stamps is None:
            logger.warning(
                "Nothing tells the cache %r what other processes write: its copies are up to %g s old. A Redis that is "
                "not read from replicas does, and coherence='host' for the processes of this machine.",
                self._cache.name,
                l1_timeout,
            )
        self._isolate()

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> TieredCache:
        """What Flask-Caching calls at ``init_app``. The second level is made by Flask-Caching, of the same settings."""
        if args:
            raise TypeError(f"CACHE_ARGS must be empty, as TieredCache takes all in CACHE_OPTIONS, not {args!r}")
        given = {
            "threshold": config["CACHE_THRESHOLD"],
            "name": app.name,
            "figures_dir": figures_directory(app),
            **kwargs,
        }
        check_known(given, OPTIONS, given)
        # The second level's, which it takes from the same settings.
        given.pop("ignore_delete_many_errors", None)
        l2, l2_options = given.pop("l2", None), given.pop("l2_options", None)
        with naming(given["name"]):
            l2_timeout = options.seconds("l2_timeout", given.pop("l2_timeout", L2_TIMEOUT))
            if l2_options is not None and not isinstance(l2, str):
                raise TypeError(
                    f"l2_options must be left out where l2 is a cache that is made already, not {l2_options!r}"
                )
            if isinstance(l2, str):
                l2 = _second_level(app, config, l2, {} if l2_options is None else l2_options, l2_timeout)
            backend = cls(**{"l2": l2, **given})
        if backend._fill_waits:
            app.teardown_appcontext(_end_leases)
        if backend._cache.is_coherent:
            app.teardown_appcontext(lambda error: forget_misses())
        warn_of_sessions(app)
        return backend

    def is_of_this_process(self) -> bool:
        """Whether other processes have other entries, as those of the second level are."""
        return isinstance(self.l2, WheelCache | cachelib.SimpleCache)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """The value of ``key``, or ``default``."""
        made = self._made(key)
        stored = self._level.get(made, lambda: self._read(key, or_none=self._fill_wait(key) > 0))
        if stored is MISSING:
            wait = self._fill_wait(key)
            stored = self._lease(key, made, wait) if wait else default
        return self._isolation.restore(stored)

    def _lease(self, key: str, made: str, wait: float) -> Any:
        stored = self._get_or_lease(made, wait)
        if stored is None:
            # Looked up once more with the lease in hand: another process, or one before him, may have set it by now.
            again = self._level.read(lambda: self._read(key, or_none=True), made)
            if again is not MISSING:
                self._cache.fill_lease(made, again)
                stored = again
        return stored

    def get_or_load(  # type: ignore[override]  # a value that two levels have has no grace in one of them
        self, key: str, loader: Callable[[], Any], timeout: Timeout = None
    ) -> Any:
        """The value of ``key``; if it is missing, what ``loader()`` returns, which is stored.

        However many threads of this process miss the key together, one runs its loader, and the others get its value or
        its exception. None is a value like any other.
        """
        made = self._made(key)

        def read() -> Any:
            return self._read(key, or_none=True)

        def load() -> Any:
            # Whoever came while another computed finds it there.
            stored = self._level.read(read, made)
            if stored is MISSING:
                value = loader()
                if not self.add(key, value, timeout):
                    # Somebody else was first, or it could not be kept.
                    stored = self._level.read(read, made)
                if stored is MISSING:
                    stored = self._isolation.store(value)
            return stored

        stored = self._level.get(made, read)
        return self._isolation.restore(self._level.load(made, load) if stored is MISSING else stored)

    def delete(self, key: str) -> bool:
        """Whether the key was there, as far as the second level tells."""
        return self._level.write([self._made(key)], lambda: self.l2.delete(key), dropped=False)

    def get_many(self, *keys: str) -> list[Any]:
        """The values of all ``keys``, None for those that are not there. The second level is asked at most once."""
        if self._fill_waits and any(_is_memoize_version(key) for key in keys):
            # As in WheelCache.
            return [self.get(key) for key in keys]
        by_made = {self._made(key): key for key in keys}

        def read(missing: list[Any]) -> dict[Any, Any]:
            values = self.l2.get_many(*(by_made[made] for made in missing))
            store = self._isolation.store
            return {made: store(value) for made, value in zip(missing, values, strict=True) if value is not None}

        found = self._level.get_many(by_made, read)
        return [self._isolation.restore(found.get(self._made(key))) for key in keys]

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """Whether the value is stored, as far as the second level tells."""
        ttl = self._timeout(timeout)
        return self._level.write(  # type: ignore[return-value]  # cachelib has some say None
            [self._made(key)],
            lambda: self.l2.set(key, value, ttl),
            dropped=False,
            value_of=lambda _: self._for_waiters(value, ttl),
        )

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """``set``, unless the key is there: then False."""
        ttl = self._timeout(timeout)
        return self._level.write(
            [self._made(key)],
            lambda: self.l2.add(key, value, ttl),
            dropped=False,
            value_of=lambda added: self._for_waiters(value, ttl) if added else MISSING,
        )

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[Any]:
        """The keys that were stored."""
        ttl = self._timeout(timeout)
        return self._level.write(
            map(self._made, mapping), lambda: self.l2.set_many(dict(mapping), ttl), dropped=list[Any]()
        )

    def delete_many(self, *keys: str) -> list[Any]:
        """Those ``keys`` that are not there any more."""
        return self._level.write(map(self._made, keys), lambda: self.l2.delete_many(*keys), dropped=list[Any]())

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return self._level.has(self._made(key), lambda: self.l2.has(key))

    def clear(self) -> bool:
        """Whether the second level was cleared, as far as it tells."""
        cleared = [False]

        def clear() -> None:
            cleared[0] = self.l2.clear()

        self._level.clear(clear)
        return cleared[0]

    def inc(self, key: str, delta: int = 1) -> Any:
        """The value plus ``delta``, added up in the second level; None if it failed and ``fail_safe`` is set."""
        return self._level.write(
            [self._made(key)],
            lambda: self.l2.inc(key, delta),
            dropped=None,
            value_of=lambda value: MISSING if value is None else self._for_waiters(value, None),
        )

    def _read(self, key: str, *, or_none: bool) -> Any:
        """What the second level has, MISSING if nothing. With ``or_none`` a None is told from a miss."""
        value = self.l2.get(key)
        if value is None:
            if not or_none or not self.l2.has(key):
                return MISSING
            # None, or it has been set since.
            value = self.l2.get(key)
        return self._isolation.store(value)

    def _made(self, key: str) -> str:
        """The key in the second level, which is what others' writes are told by."""
        prefix = self._l2_prefix
        if type(prefix) is not str:
            prefix = self._prefix_now()
        return key if type(key) is str and not prefix else f"{prefix}{key}"

    def _prefix_now(self) -> str:
        return self._l2_prefix() if callable(self._l2_prefix) else self._l2_prefix

    def _prefix_text(self) -> str:
        """The prefix of all keys; empty if it changes from call to call."""
        return self._l2_prefix if isinstance(self._l2_prefix, str) else ""

    def _timeout(self, timeout: Timeout) -> Any:
        return self.default_timeout if timeout is None else timeout

    def _for_waiters(self, value: Any, timeout: Timeout) -> Any:
        """What those who wait for a lease get; nothing if the value is over at once."""
        if not self._fill_waits or (timeout is not None and _seconds("timeout", timeout) < 0):
            return MISSING
        return self._isolation.store(value)

    def __setattr__(self, name: str, value: Any) -> None:
        # CACHE_SERIALIZER is meant for what is stored, and so for both levels.
        if name == "serializer" and hasattr(self.l2, "serializer"):
            self.l2.serializer = value
        super().__setattr__(name, value)


def _checked_level(l2: Any) -> cachelib.BaseCache:
    if not isinstance(l2, cachelib.BaseCache):
        raise TypeError(f"l2 must be {L2_TAKES}, not {l2!r}")
    if isinstance(l2, TieredCache):
        raise TypeError(f"l2 must not be a TieredCache itself, as {l2!r} is")
    return l2


def _second_level(app: Flask, config: dict[str, Any], l2: str, l2_options: Any, timeout: float) -> cachelib.BaseCache:
    """What CACHE_TYPE ``l2`` and CACHE_OPTIONS ``l2_options`` make, with sockets that do not wait for ever."""
    if not isinstance(l2_options, Mapping):
        raise TypeError(f"l2_options must be a dict, not {l2_options!r}")
    try:
        made_by = import_string(l2 if "." in l2 else f"flask_caching.backends.{l2}")
    except ImportError as error:
        raise ValueError(f"l2 must be {L2_TAKES}, not {l2!r}: {error}") from error
    settings = {
        **config,
        "CACHE_TYPE": l2,
        "CACHE_OPTIONS": {**_impatience(made_by, timeout), **l2_options},
        "CACHE_ARGS": [],
    }
    maker = flask_caching.Cache(with_jinja2_ext=False)
    maker.init_app(app, settings)
    return app.extensions["cache"].pop(maker)  # type: ignore[no-any-return]


def _impatience(backend: Any, timeout: float) -> dict[str, Any]:
    """The options of ``backend`` by which it waits for ``timeout`` seconds at most. Left alone, none has a bound, and
    redis-py tries four times with pauses in between: that was 15 s of a server that was stopped."""
    if not isinstance(backend, type) or not issubclass(backend, cachelib.RedisCache):
        return {}
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    timeouts = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    if issubclass(backend, RedisClusterCache):
        # Its retries are how it finds out where a key has moved.
        return timeouts
    once = {**timeouts, "retry": Retry(NoBackoff(), 0)}
    if issubclass(backend, RedisSentinelCache):
        return {**once, **{f"sentinel_{name}": value for name, value in once.items()}}
    return once


def _tracking(l2: cachelib.BaseCache, prefix: str) -> Callable[[NearCache], Any] | None:
    """What makes the connection by which a Redis or Valkey tells of writes; None if ``l2`` is neither, or if it is read
    from replicas, which may have an old value when the primary has told of the new one."""
    try:
        from wheelcache.near_cache.redis_tracking import Tracking, client_of, connect_like
    except ImportError:
        return None
    try:
        client = client_of(l2)
    except TypeError:
        return None
    if getattr(l2, "_read_client", client) is not client:
        return None
    return lambda level: Tracking(connect_like(client), [prefix.encode()], level)
