"""The Flask-Caching backend. Its methods come in the order of cachelib's ``BaseCache``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from math import isnan
from pathlib import Path
from sys import float_info
from threading import current_thread
from typing import Any, Final

from flask import Flask, current_app, g, has_app_context
from flask_caching.backends.base import BaseCache

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.access import PrefixAccess
from wheelcache.errors import FileUnusable, MissingKey
from wheelcache.isolation import Isolation, Pickle, Serializer, is_bare, size_of
from wheelcache.leases.fill_scope import HeldLease, current_scope, forget_misses
from wheelcache.loading.policy import load_policy
from wheelcache.observability.figures_directory import directory_of
from wheelcache.persistence.sigterm import exit_on_sigterm
from wheelcache.persistence.snapshot_directory import snapshot_directory_or_none
from wheelcache.persistence.uvicorn_exit import exit_after_uvicorn

logger = logging.getLogger("wheelcache")

Timeout = int | float | timedelta | None
"""Seconds, or a timedelta; 0 means never, below 0 at once, None the default timeout."""

DEFAULT_THRESHOLD: Final = 500
DEFAULT_TIMEOUT: Final = 300

ENGINE_OPTIONS: Final = ("jitter", "interval", "slots", "log_interval", "name", "figures_dir")

OPTIONS: Final = (
    *("threshold", "default_timeout", "ignore_delete_many_errors", "key_prefix", "max_bytes", "fill_wait"),
    *("coherence", "snapshot", "snapshot_interval", "snapshot_key", *ENGINE_OPTIONS),
)
"""What there may be in CACHE_OPTIONS."""

POSITIONAL: Final = ("threshold", "default_timeout", "ignore_delete_many_errors")

PICKLE: Final = Pickle()

HELD_BEFORE: Final = "_wheelcache_held_before"
"""Where an app context's ``g`` has the leases that were held before the first that was asked for in it."""

_MISSING: Final = object()


class WheelCache(PrefixAccess, BaseCache):
    """cachelib's cache API on ``wheelcache.Cache``: in the memory of the process, shared by its threads.

    Each object has a store of its own, so two apps in one process share nothing.

    Values are isolated: what is immutable is stored as it is, everything else is pickled. A ``serializer`` in
    cachelib's form, set on the class or on the object, takes the place of pickle, and then gets every value but ints
    and None.

    Args:
        threshold: the most entries that are kept. As in cachelib's SimpleCache 0 means 500.
        default_timeout: int, float or timedelta; 0 for entries that never expire.
        ignore_delete_many_errors: taken as cachelib does; no delete can fail here.
        key_prefix: put before every key.
        max_bytes: the most that keys, values and their entries take, in bytes as Python tells; None for no bound.
        fill_wait: seconds that a ``get`` waits for another caller to fill the key, 0 for not at all, or a dict of key
            prefixes to seconds. See ``wheelcache.Cache.get_or_lease``.
        coherence: "host" if processes of this machine with the same ``name`` and ``key_prefix`` are to see at once what
            one of them writes. See ``wheelcache.coherence.shared_stamps``.
        snapshot: an absolute path, of the directory where the entries are kept from one process to the next. See
            ``wheelcache.persistence.autosave``.
        snapshot_interval: seconds between two saves of them.
        snapshot_key: what these files are signed with, a string or bytes; None for no signature.
        engine_options: ``jitter``, ``interval``, ``slots``, ``log_interval``, ``name`` and ``figures_dir``, as
            ``wheelcache.Cache``.

    Raises:
        TypeError, ValueError: an option is unknown or wrong; names it, what it takes and what it got.
    """

    serializer: Serializer = PICKLE

    def __init__(
        self,
        threshold: int = DEFAULT_THRESHOLD,
        default_timeout: Timeout = DEFAULT_TIMEOUT,
        ignore_delete_many_errors: bool = False,
        *,
        key_prefix: str = "",
        max_bytes: int | None = None,
        fill_wait: float | Mapping[str, float] = 0,
        coherence: str | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        snapshot_interval: float = 300.0,
        snapshot_key: str | bytes | None = None,
        **engine_options: Any,
    ) -> None:
        check_known([option for option in engine_options if option not in ENGINE_OPTIONS], OPTIONS, engine_options)
        # cachelib declares an int; fractions are kept here.
        self.default_timeout = _seconds("default_timeout", default_timeout)  # type: ignore[assignment]
        self.ignore_delete_many_errors = ignore_delete_many_errors
        self._prefix = options.text("key_prefix", key_prefix)
        self._max_bytes = options.count_or_none("max_bytes", max_bytes)
        self._fill_waits = options.waits("fill_wait", fill_wait)
        coherent = options.coherence("coherence", coherence)
        self._cache = Cache(
            max_entries=options.whole("threshold", threshold) or DEFAULT_THRESHOLD,
            max_weight=self._max_bytes,
            weigher=None if self._max_bytes is None else size_of,
            stamps=None if coherent is None else SharedStamps(f"flask {engine_options.get('name', '')} {key_prefix}"),
            snapshot_dir=snapshot_directory_or_none("snapshot", snapshot),
            snapshot_interval=options.interval("snapshot_interval", snapshot_interval),
            snapshot_key=options.secret_or_none("snapshot_key", snapshot_key),
            **engine_options,
        )
        self._find = self._cache.find_plain
        self._isolate()

    def is_of_this_process(self) -> bool:
        """Whether other processes have other entries, also with ``coherence``, which tells them of writes only."""
        return True

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> WheelCache:
        """What Flask-Caching calls at ``init_app``: CACHE_ARGS and CACHE_OPTIONS come before the other settings."""
        if len(args) > len(POSITIONAL):
            raise TypeError(f"CACHE_ARGS must be at most {', '.join(POSITIONAL)}, not {args!r}")
        settings = {
            "threshold": config["CACHE_THRESHOLD"],
            "key_prefix": config["CACHE_KEY_PREFIX"] or "",
            "name": app.name,
            "figures_dir": figures_directory(app),
        }
        given = {**settings, **kwargs, **dict(zip(POSITIONAL, args, strict=False))}
        check_known(given, OPTIONS, given)
        with naming(given["name"]):
            backend = cls(**given)
        if backend._fill_waits:
            app.teardown_appcontext(_end_leases)
        if backend._cache.is_coherent:
            app.teardown_appcontext(lambda error: forget_misses())
        if backend._cache.keeper is not None:
            _check_snapshots(app, backend._cache)
            exit_on_sigterm()
            exit_after_uvicorn()
        warn_of_sessions(app)
        return backend

    def _get_missed(self, key: str, default: Any, version: int | None) -> Any:
        made = self._made(key)
        wait = self._fill_wait(key)
        return self._isolation.restore(self._get_or_lease(made, wait) if wait else self._cache.get(made, default))

    def get_or_load(
        self,
        key: str,
        loader: Callable[[], Any],
        timeout: Timeout = None,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        load_timeout: float | None = None,
        negative_ttl: float | None = None,
    ) -> Any:
        """The value of ``key``; if it is missing, what ``loader()`` returns, which is stored.

        However many threads miss the key together, one runs its loader, and the others get its value or its exception.

        Where there is an app context, a loader that runs in another thread, in the background or because of
        ``load_timeout``, has one of its own, of the same app, which is torn down after it.

        Args:
            grace, refresh_ahead, fail_safe, negative_ttl: as ``wheelcache.Cache.take``.
            load_timeout: as its ``timeout``.
        """
        made, store, restore = self._made(key), self._isolation.store, self._isolation.restore
        ttl = self._ttl(timeout)
        policy = load_policy(grace, refresh_ahead, fail_safe, load_timeout, negative_ttl, timeout_name="load_timeout")
        stored = self._cache.find(made, _MISSING)
        if ttl is not None and ttl <= 0:
            return restore(store(loader()) if stored is _MISSING else stored)
        is_missing = stored is _MISSING
        if is_missing or (refresh_ahead is not None and self._cache.loading.needs_refresh(made, stored, ttl, policy)):
            # Stored within the context as well: what a loader returns may need its session to be pickled.
            with _in_app_context(lambda: store(loader())) as load:
                if is_missing:
                    stored = self._cache.loading.load(made, load, ttl, policy)
                else:
                    self._cache.loading.refresh(made, load, ttl, policy)
        return restore(stored)

    def delete(self, key: str) -> bool:
        """Whether the key was there."""
        return self._cache.delete(self._made(key))

    def get_many(self, *keys: str) -> list[Any]:
        """The values of all ``keys``, None for those that are not there."""
        if self._fill_waits and any(_is_memoize_version(key) for key in keys):
            # No value can be computed before these are set, and each caller that misses them would set its own.
            return [self.get(key) for key in keys]
        found = self._cache.get_many([self._made(key) for key in keys])
        return [self._isolation.restore(found.get(self._made(key))) for key in keys]

    def get_dict(self, *keys: str) -> dict[str, Any]:
        """``get_many`` as a dict."""
        return dict(zip(keys, self.get_many(*keys), strict=True))

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """Whether the value is stored, which it is unless it alone exceeds ``max_bytes``."""
        made, stored, ttl = self._made(key), self._isolation.store(value), self._ttl(timeout)
        if ttl is not None and ttl <= 0:
            self._cache.delete(made)
            return True
        return self._cache.set(made, stored, ttl)

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """``set``, unless the key is there: then False. Atomic. The timeout is kept exactly, without jitter."""
        made, stored, ttl = self._made(key), self._isolation.store(value), self._ttl(timeout)
        if ttl is not None and ttl <= 0:
            if made in self._cache:
                return False
            # It comes and goes at once, and with it a lease.
            self._cache.delete(made)
            return True
        return self._cache.add(made, stored, ttl)

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[Any]:
        """The keys that were stored."""
        store, ttl = self._isolation.store, self._ttl(timeout)
        stored = {self._made(key): store(value) for key, value in mapping.items()}
        if ttl is not None and ttl <= 0:
            self._cache.delete_many(stored)
            return list(mapping)
        # The values of a memoized function are found only while its version is there, so a version is not shortened.
        has_versions = any(map(_is_memoize_version, mapping))
        if has_versions:
            # Flask-Caching sets them again whenever a value was computed. As news, that would end all values of the
            # function in the other processes.
            stored = {made: value for made, value in stored.items() if not self._renew(made, value, ttl)}
        refused = set(self._cache.set_many(stored, ttl, jitter=not has_versions))
        return [key for key in mapping if self._made(key) not in refused]

    def delete_many(self, *keys: str) -> list[Any]:
        """All ``keys``: one that was not there counts as deleted."""
        self._cache.delete_many([self._made(key) for key in keys])
        return list(keys)

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return self._made(key) in self._cache

    def clear(self) -> bool:
        """True: everything is gone."""
        self._cache.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> Any:
        """The value plus ``delta``; a key that isn't there starts at 0, one that is keeps its expiry. Atomic.

        None if the new value alone exceeds ``max_bytes``: then it is not stored.
        """
        made, store, restore = self._made(key), self._isolation.store, self._isolation.restore
        while True:
            try:
                stored = self._cache.update(made, lambda stored: store((restore(stored) or 0) + delta))
                return restore(stored) if self._fits(made, stored) else None
            except MissingKey:
                if not self._fits(made, store(delta)):
                    return None
                if self.add(key, delta):
                    return delta

    def dec(self, key: str, delta: int = 1) -> Any:
        """``inc`` by ``-delta``."""
        return self.inc(key, -delta)

    def _renew(self, made: str, stored: Any, ttl: float | None) -> bool:
        return isinstance(stored, str | bytes) and self._cache.renew(made, stored, ttl)

    def _get_or_lease(self, made: str, wait: float) -> Any:
        if has_app_context() and HELD_BEFORE not in g:
            setattr(g, HELD_BEFORE, _held())
        return self._cache.get_or_lease(made, wait=wait)

    def _fill_wait(self, key: str) -> float:
        """Seconds that a ``get`` waits for another caller to fill ``key``."""
        for prefix, wait in self._fill_waits:
            if str(key).startswith(prefix):
                return wait
        return 0.0

    def _made(self, key: str) -> str:
        return key if type(key) is str and not self._prefix else f"{self._prefix}{key}"

    def __setattr__(self, name: str, value: Any) -> None:
        # Flask-Caching sets CACHE_SERIALIZER on the finished object.
        super().__setattr__(name, value)
        if name == "serializer":
            self._isolate()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "serializer":
            self._isolate()

    def _fits(self, made: str, stored: Any) -> bool:
        return self._max_bytes is None or size_of(made, stored) <= self._max_bytes

    def _isolate(self) -> None:
        serializer = self.serializer
        self._isolation = Isolation(serializer) if serializer is PICKLE else Isolation(serializer, keep=is_bare)
        self._loads = serializer.loads

    def _ttl(self, timeout: Timeout) -> float | None:
        """Seconds to live, None for ever; below zero if it is over at once."""
        seconds = self.default_timeout if timeout is None else _seconds("timeout", timeout)
        return seconds or None


def figures_directory(app: Flask) -> Path | None:
    """Where figures are published unless ``figures_dir`` says where: the same for all processes of the app."""
    # One package may be installed once and served for several sites, each with an instance folder of its own.
    return directory_of(f"flask {app.name} {Path(app.root_path).resolve()} {Path(app.instance_path).resolve()}")


def check_known(given: Iterable[str], known: Iterable[str], options_given: Mapping[str, Any]) -> None:
    """
    Raises:
        TypeError: an option is not known; names it, its cache and the nearest one.
    """
    unknown = options.unknown(given, known, f"the cache {options_given.get('name', 'default')!r}")
    if unknown is not None:
        raise TypeError(unknown)


@contextmanager
def naming(cache: Any) -> Iterator[None]:
    """An option that is refused in here is an error that names the cache as well."""
    try:
        yield
    except (TypeError, ValueError, FileUnusable) as error:
        # Of a subclass the arguments may be others.
        kind = next(each for each in (TypeError, ValueError, FileUnusable) if isinstance(error, each))
        raise kind(f"Wrong setting of the cache {cache!r}: {error}") from error


def warn_of_sessions(app: Flask) -> None:
    """Flask-Session may keep sessions in a cache of this package, which each worker process has for itself."""
    sessions = app.config.get("SESSION_CACHELIB")
    if (
        app.config.get("SESSION_TYPE") == "cachelib"
        and isinstance(sessions, WheelCache)
        and sessions.is_of_this_process()
    ):
        logger.warning(
            "Flask-Session keeps the sessions of the app %r in a cache that each worker process has for itself: with "
            "more than one worker, a visitor is logged out whenever another one answers. Let SESSION_CACHELIB be a "
            "TieredCache over Redis, Valkey or memcached, or one of these itself.",
            app.name,
        )


def _check_snapshots(app: Flask, cache: Cache) -> None:
    """Snapshots are told apart by the names of caches: one would load what another saved."""
    others = [each._cache for each in app.extensions.get("cache", {}).values() if isinstance(each, WheelCache)]
    if any(_snapshots_of(each) == _snapshots_of(cache) for each in others):
        raise ValueError(
            f"name must be another one for each cache of an app with the same snapshot directory, not {cache.name!r} "
            "for two of them: each would load what the other saved"
        )


def _snapshots_of(cache: Cache) -> tuple[str, Path | None]:
    return cache.name, None if cache.keeper is None else cache.keeper.directory


def _end_leases(error: BaseException | None) -> None:
    """An app context is torn down: the leases that were taken in it end. Those of one around it do not."""
    held_before = g.pop(HELD_BEFORE, None)
    if held_before is not None:
        for lease in _held() - held_before:
            lease.give_up()


def _held() -> set[HeldLease]:
    """The leases of the running scope and of those that it acts for: after an async view the request's are a
    parent's."""
    return {lease for scope in current_scope() for lease in list(scope.leases)}


@contextmanager
def _in_app_context(load: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """``load``, to be run in this thread as it is until the block ends; elsewhere and later in an app context of its
    own, if there is one here."""
    if not has_app_context():
        yield load
        return
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    # Until the block ends: the thread may be one that runs loaders in the background, and come to this one.
    caller: Any = current_thread()

    def load_in_context() -> Any:
        if current_thread() is caller:
            return load()
        with app.app_context():
            return load()

    try:
        yield load_in_context
    finally:
        caller = None


def _is_memoize_version(key: Any) -> bool:
    """Whether Flask-Caching keeps the version of a memoized function under ``key``; it asks for it by ``get_many``."""
    return str(key).endswith("_memver")


def _seconds(name: str, timeout: Any) -> float:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    if isinstance(timeout, float) and not isnan(timeout):
        return timeout
    # An int beyond what floats can hold is beyond what clocks can count.
    if isinstance(timeout, int) and not isinstance(timeout, bool) and timeout <= float_info.max:
        return timeout
    raise TypeError(f"{name} must be a number of seconds (0 for never) or a timedelta, not {timeout!r}")
