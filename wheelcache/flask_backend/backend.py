"""The Flask-Caching backend. Its methods come in the order of cachelib's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

from flask import Flask

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.access import MAX_FAST_TTL, NO_TAGS
from wheelcache.core.contract import MISSING
from wheelcache.errors import MissingKey
from wheelcache.flask_backend.app_contexts import figures_directory, note_held_leases
from wheelcache.flask_backend.engine_backend import (
    TO_BE_COMPUTED,
    Begun,
    EngineBackend,
    Timeout,
    check_known,
    checked_options,
    is_memoize_version,
    naming,
    warn_of_sessions,
)
from wheelcache.flask_backend.in_transactions import following
from wheelcache.loading.policy import PLAIN, load_policy
from wheelcache.loading.request import Kept, LoadRequest, Unstored
from wheelcache.loading.steps import drive
from wheelcache.option_table import FLASK as OPTIONS
from wheelcache.runtime.exit_signals import exit_on_sigterm

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

    def __init__(
        self,
        threshold: int = OPTIONS["threshold"].default,
        default_timeout: Timeout = OPTIONS["default_timeout"].default,
        ignore_delete_many_errors: bool = OPTIONS["ignore_delete_many_errors"].default,
        **given: Any,
    ) -> None:
        positional = (threshold, default_timeout, ignore_delete_many_errors)
        checked = checked_options(OPTIONS, {**given, **dict(zip(POSITIONAL, positional, strict=True))})
        shared = f"flask {given.get('name', '')} {checked['key_prefix']}"
        stamps = None if checked["coherence"] is None else SharedStamps(shared)
        with OPTIONS.in_errors():
            engine = Cache(**OPTIONS.for_engine(checked), stamps=stamps)
        super().__init__(
            engine,
            default_timeout=checked["default_timeout"],
            ignore_delete_many_errors=ignore_delete_many_errors,
            fill_waits=checked["fill_wait"],
            fill_graces=checked["fill_grace"],
            settings=OPTIONS.settings(checked),
        )
        # A plain string, even if the option is of a subclass such as an Enum: compiled code accepts no other.
        self._prefix = f"{checked['key_prefix']}"
        self._group_keys()
        self._max_entries = checked["max_entries"]
        self._max_bytes = checked["max_weight"]
        self._look_up_in(engine)

    def __new__(cls, *args: Any, **given: Any) -> WheelCache:
        found: WheelCache = super().__new__(following(cls) if given.get("transactions") is True else cls)
        return found

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> WheelCache:
        """Return a new backend. Flask-Caching calls this. CACHE_ARGS and CACHE_OPTIONS override the other settings."""
        if len(args) > len(POSITIONAL):
            raise TypeError(f"CACHE_ARGS must be at most {', '.join(POSITIONAL)}, not {options.shown(args)}")
        settings = {
            "threshold": config["CACHE_THRESHOLD"],
            "key_prefix": config["CACHE_KEY_PREFIX"] or "",
            "name": app.name,
            **({} if "figures_dir" in kwargs else {"figures_dir": figures_directory(app)}),
        }
        given = {**settings, **kwargs, **dict(zip(POSITIONAL, args, strict=False))}
        check_known(OPTIONS, given)
        with naming(given["name"]):
            backend = cls(**given)
        backend.register_teardowns(app)
        if backend.engine.keeper is not None:
            _check_snapshots(app, backend.engine)
            exit_on_sigterm()
        warn_of_sessions(app)
        return backend

    def _get_missed(self, key: str, default: Any, version: int | None) -> Any:
        if default is TO_BE_COMPUTED:
            return default
        cache_key = self._cache_key(key)
        wait = self._fill_wait(key)
        if wait:
            note_held_leases()
            stored = drive(self._cache.engine.look_up_leased(cache_key, wait, grace=self._fill_grace(key)))
        else:
            stored = self._cache.get(cache_key, MISSING)
        return self._found_or(default, cache_key, stored)

    def get_or_load(
        self,
        key: str,
        loader: Callable[..., R],
        timeout: Timeout | Callable[[Any], float | None] = None,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
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
        cache_key, ttl = self._cache_key(key), timeout if callable(timeout) else self._ttl(timeout)
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout=load_timeout)
        stored = self._cache.find(cache_key, MISSING)
        if stored is MISSING or self._needs_refresh(cache_key, stored, ttl, policy):
            request = self._request(key, cache_key, loader, ttl, policy, tags)
            stored = self.loading.get(request, stored)
        return self._decode(stored)  # type: ignore[no-any-return]

    def request_shared(self, key: str, load: Callable[[], Any], begun: Begun) -> LoadRequest:
        if not begun.is_fill:
            return super().request_shared(key, load, begun)
        policy = PLAIN.with_fill_grace(self._fill_grace(key)) if self._fill_graces else PLAIN
        return self.loading.request(self._cache_key(key), load, None, policy, begun.names, passes_previous=False)

    def shared(self, value: Any, timeout: Timeout, begun: Begun) -> Kept | Unstored:
        # The load stores the value, unless the key is written before it ends.
        ttl = self._ttl(timeout)
        return Kept(self._encode(value), ttl) if begun.is_fill else Unstored(self._encode(value))

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Begun) -> None:
        if begun.names:
            ttl, grace = self._ttl(timeout), self._fill_grace(key)
            self._store(self._cache_key(key), self._encode(value), ttl, begun.names, begun.since, grace)
        else:
            self.set(key, value, timeout)

    @property
    def _tag_prefix(self) -> str:
        return str(self._prefix)

    def version(self, key: str) -> str:
        seen = self._cache.engine.seen(self._cache_key(key))
        # The stamp of a version's slot is the same in all processes. So they make the same keys of values, and the
        # deletion of one value reaches the other processes.
        return super().version(key) if seen is None else f"{seen[0]:x}"

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        ttl = self._version_ttl(key, self._ttl(timeout))
        if self._cache.engine.reports_writes or (ttl is not None and ttl <= 0):
            return
        cache_key = self._cache_key(key)
        left = self._cache.engine.seconds_left(cache_key)
        # A new version has no timeout yet.
        if (left < inf) if ttl is None else (left < RENEWED * ttl or left == inf):
            self._renew(cache_key, version, ttl)

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it existed."""
        return self._cache.delete(self._cache_key(key))

    def get_many(self, *keys: str) -> list[Any]:
        """Return the values of all ``keys``, None for missing ones."""
        if self._waits_for_versions(keys):
            return [self.get(key) for key in keys]
        values = self._get_many_at_once(keys)
        if values is not None:
            self._note_misses(self._cache_key(key) for key, value in zip(keys, values, strict=True) if value is MISSING)
            return [None if value is MISSING else value for value in values]
        cache_keys = [self._cache_key(key) for key in keys]
        found = self._cache.get_many(cache_keys)
        self._note_misses(cache_key for cache_key in cache_keys if cache_key not in found)
        return [self._decode(found.get(cache_key)) for cache_key in cache_keys]

    def set(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store a value. Return whether it was stored: False if it alone exceeds ``max_bytes``, or if one of its tags
        was dropped while it was computed.

        Args:
            tags: at most 64 non-empty strings, with each of which ``delete_tags`` removes the entry.
        """
        ttl = self._ttl(timeout)
        since = self._misses.count_computation(f"{self._prefix}{key}") if self._scopes_with_misses else 0
        grace = self._fill_grace(key) if self._fill_graces else 0.0
        is_stored = self._set_at_once(key, value, ttl) if tags is NO_TAGS and not grace else None
        if is_stored is None:
            names = self._tag_names(tags)
            return self._store(self._cache_key(key), self._encode(value), ttl, names, since, grace)
        return is_stored

    def add(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store a value unless the key exists, in one atomic step. Return whether it was stored.

        The timeout is used exactly, without jitter. ``tags`` is as for ``set``.
        """
        ttl = self._ttl(timeout)
        is_stored = None
        if tags is NO_TAGS:
            if self._scopes_with_misses:
                self._count_computations((key,))
            is_stored = self._add_at_once(key, value, ttl)
        if is_stored is None:
            return self._add_new(self._cache_key(key), self._encode(value), ttl, self._tag_names(tags))
        return is_stored

    def set_many(
        self, mapping: Mapping[str, Any], timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS
    ) -> list[Any]:
        """Store many values. Return the keys that were stored. ``tags`` is as for ``set``."""
        ttl = self._ttl(timeout)
        # The values of a memoized function are found only as long as its version exists, so a version has no jitter.
        has_versions = any(map(is_memoize_version, mapping))
        if not (has_versions or self._fill_graces) and tags is NO_TAGS:
            self._count_computations(mapping)
            if self._set_many_at_once(mapping, ttl):
                return list(mapping)
        names = self._tag_names(tags)
        originals = {self._cache_key(key): key for key in mapping}
        stored = {cache_key: self._encode(mapping[key]) for cache_key, key in originals.items()}
        if has_versions:
            ttl = self._version_ttl(next(filter(is_memoize_version, mapping)), ttl)
        if has_versions and not options.expires_now(ttl):
            # Flask-Caching sets the versions again whenever a value was computed. If the other processes were notified,
            # they would lose all values of the function.
            stored = {cache_key: value for cache_key, value in stored.items() if not self._renew(cache_key, value, ttl)}
        refused = set(self._store_many(stored, ttl, originals, jitter=not has_versions, tags=names))
        return [key for cache_key, key in originals.items() if cache_key not in refused]

    def delete_many(self, *keys: str) -> list[Any]:
        """Delete many keys. Return all of them: a missing key counts as deleted."""
        self._cache.delete_many([self._cache_key(key) for key in keys])
        return list(keys)

    def has(self, key: str) -> bool:
        """Return whether the key exists."""
        return self._cache_key(key) in self._cache

    def clear(self) -> bool:
        """Remove all entries. Return True."""
        self._cache.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> Any:
        """Add ``delta`` to a value in one atomic step, and return the sum. A missing key starts at 0; an existing one
        keeps its expiry.

        If the new value alone exceeds ``max_bytes``, it is not stored, and the result is None.
        """
        total = self._incr_at_once(key, delta)
        if total is not None:
            return total
        cache_key, encode, decode = self._cache_key(key), self._encode, self._decode
        while True:
            try:
                stored = self._cache.update(cache_key, lambda stored: encode((decode(stored) or 0) + delta))
                return decode(stored) if self._fits(cache_key, stored) else None
            except MissingKey:
                if not self._fits(cache_key, encode(delta)):
                    return None
                if self.add(key, delta):
                    return delta

    def _version_ttl(self, key: str, ttl: float | None) -> float | None:
        """Return the TTL of a version of a memoized function whose values have ``ttl``: without the version, no caller
        would find their old values."""
        return ttl + self._fill_grace(key) if self._fill_graces and ttl is not None and ttl > 0 else ttl

    def _renew(self, cache_key: str, stored: Any, ttl: float | None) -> bool:
        return isinstance(stored, str | bytes) and self._cache.engine.renew(cache_key, stored, ttl)

    def _cache_key(self, key: str) -> str:
        return key if type(key) is str and not self._prefix else f"{self._prefix}{key}"

    def _fits(self, cache_key: str, stored: Any) -> bool:
        return self._max_bytes is None or self._cache.engine.weigh(cache_key, stored) <= self._max_bytes

    def _ttl(self, timeout: Timeout) -> float | None:
        """Return the TTL in seconds: None for no expiry, below zero for immediate expiry."""
        if type(timeout) is int and 0 <= timeout < MAX_FAST_TTL:
            return timeout or None
        seconds = self.default_timeout if timeout is None else options.timeout("timeout", timeout)
        return seconds or None


def _check_snapshots(app: Flask, cache: Cache) -> None:
    """Check that no two caches share their snapshots, which are distinguished by the names of the caches."""
    others = [each.engine for each in app.extensions.get("cache", {}).values() if isinstance(each, WheelCache)]
    if any(_snapshots_of(each) == _snapshots_of(cache) for each in others):
        raise ValueError(
            f"name must be different for each cache of an app with the same snapshot directory, not {cache.name!r} "
            "for two of them: each would load the other's snapshots"
        )


def _snapshots_of(cache: Cache) -> tuple[str, Path | None]:
    return cache.name, None if cache.keeper is None else cache.keeper.directory
