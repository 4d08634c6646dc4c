"""A near cache in front of any other cachelib cache: ``CACHE_TYPE = "wheelcache.flask_backend.TieredCache"``."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar

import cachelib
import flask_caching
from flask import Flask
from werkzeug.utils import import_string

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import MISSING, Record
from wheelcache.flask_backend.app_contexts import figures_directory, note_held_leases
from wheelcache.flask_backend.backend import WheelCache
from wheelcache.flask_backend.engine_backend import (
    TO_BE_COMPUTED,
    EngineBackend,
    Timeout,
    check_known,
    checked_options,
    is_memoize_version,
    naming,
    timeout_for,
    warn_of_sessions,
)
from wheelcache.loading.request import LoadRequest, Unstored
from wheelcache.loading.steps import PerDriver, StepsTo, drive, run
from wheelcache.near_cache.invalidations import Invalidations
from wheelcache.near_cache.late_values import remove_own
from wheelcache.near_cache.near_cache import NO_FILLS, Fills, GetOrAdd, Here, are_outdated
from wheelcache.near_cache.socket_options import socket_options
from wheelcache.near_cache.store_tags import StoreTags, TaggedWrite
from wheelcache.near_cache.written_timeouts import NO_TIMEOUT, NewTimeout
from wheelcache.option_table import FLASK_TIERED as OPTIONS

logger = logging.getLogger("wheelcache")

R = TypeVar("R")
T = TypeVar("T")

L2_TAKES: Final = "the name or dotted path of a backend as in CACHE_TYPE, or a cachelib cache"

FOR_MAKING_L2: Final = ("l2_options", "l2_timeout")
"""Options with which the factory makes the second level."""


class Begun(NamedTuple):
    """The beginning of the computation of a value: its write, the names of its tags in the cache of the copies, and
    whether the value is not kept if another caller has written its key."""

    write: TaggedWrite
    names: tuple[str, ...]
    is_fill: bool = False


class TieredCache(EngineBackend):
    """Keeps copies of the values of another cache, the second level, in the memory of the process.

    ``get`` looks at the copies and then asks the second level, once for all callers that miss a key together. Every
    write goes to the second level and drops the copy. See ``near_cache``. Keys, timeouts and return values are those of
    the second level. Copies are isolated in the same way as the values of a ``WheelCache``.

    cachelib's ``get`` does not distinguish None from a miss. So no copy of a None is kept, and each call asks the
    second level: once, or up to three times if ``fill_wait`` makes other callers wait for a key that may become None.

    Args:
        l2: the second level, any cachelib cache.
        given: the other options: see ``option_table.FLASK_TIERED``. Without ``coherence``, a Redis or Valkey behind
            redis-py reports the writes of all clients. No other second level does, which is logged.

    Attributes:
        l2: the second level.

    Raises:
        TypeError, ValueError: if an option is unknown or wrong. The message names the option, the accepted values and
            the given one.
    """

    def __init__(self, l2: cachelib.BaseCache, **given: Any) -> None:
        checked = checked_options(OPTIONS, given)
        for name in FOR_MAKING_L2:
            if name in given:
                raise _made_already(name, given[name])
        self.l2 = _checked_level(l2)
        # Flask's calls are synchronous.
        self._here = PerDriver(Here(l2, drive), None)
        self._l2_prefix: str | Callable[[], str] = getattr(l2, "key_prefix", None) or ""
        # The prefix is empty if it changes from call to call.
        self._prefix = prefix = self._l2_prefix if isinstance(self._l2_prefix, str) else ""
        shared = f"flask tiered {given.get('name', '')} {prefix}"
        invalidations = Invalidations(l2, prefix, None if checked["coherence"] is None else SharedStamps(shared))
        with OPTIONS.in_errors():
            engine = Cache(**OPTIONS.for_engine(checked), stamps=invalidations.stamps)
        super().__init__(
            engine,
            default_timeout=(l2.default_timeout if checked["default_timeout"] is None else checked["default_timeout"]),
            # The caches of cachelib before version 0.16 have no such attribute.
            ignore_delete_many_errors=getattr(l2, "ignore_delete_many_errors", True),
            fill_waits=checked["fill_wait"],
            fill_graces=checked["fill_grace"],
            settings=OPTIONS.settings(
                {name: value for name, value in checked.items() if name not in FOR_MAKING_L2}
                | {"l2": type(l2).__name__}
            ),
        )
        self._group_keys()
        if prefix == self._l2_prefix:
            # With another prefix, the fast path would find no key.
            self._look_up_in(engine)
        self._level = invalidations.near_cache(engine, checked)
        # The look-up in the copies is not the last one.
        self._notes_misses = True
        # None of its functions refers to the backend.
        self._store_tags = StoreTags(
            self._level, partial(_with_prefix, self._l2_prefix), _get_tokens, _add_token, _set_tokens
        )
        # The thread refers to the copies, not to the backend, which would otherwise outlive an app that is replaced.
        weakref.finalize(self, self._level.stop_tracking)
        if not invalidations.is_notified:
            logger.warning(
                "The cache %r is not notified of writes by other processes: its copies are up to %g s old. Use Redis "
                "or Valkey without replicas, or coherence='host' if all processes are on this machine.",
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
        given = {
            "threshold": config["CACHE_THRESHOLD"],
            "name": app.name,
            **({} if "figures_dir" in kwargs else {"figures_dir": figures_directory(app)}),
            **kwargs,
        }
        check_known(OPTIONS, given)
        l2, l2_options = given.pop("l2", None), given.pop("l2_options", None)
        with naming(given["name"]):
            # The second level reads it, too, and its errors do not name it.
            options.finite_timeout("default_timeout", config["CACHE_DEFAULT_TIMEOUT"])
            timeout = OPTIONS["l2_timeout"]
            l2_timeout = timeout.check("l2_timeout", given.pop("l2_timeout", timeout.default))
            if l2_options is not None and not isinstance(l2, str):
                raise _made_already("l2_options", l2_options)
            if isinstance(l2, str):
                l2 = _second_level(app, config, l2, {} if l2_options is None else l2_options, l2_timeout)
            backend = cls(l2, **given)
        backend.settings += OPTIONS.settings({"l2_timeout": l2_timeout, "l2_options": l2_options})
        backend.register_teardowns(app)
        warn_of_sessions(app)
        return backend

    def is_of_this_process(self) -> bool:
        """Return whether the entries of the second level are in this process only."""
        return isinstance(self.l2, WheelCache | cachelib.SimpleCache)

    def _get_missed(self, key: str, default: Any, version: int | None) -> Any:
        cache_key = self._cache_key(key)
        wait = 0.0 if default is TO_BE_COMPUTED else self._fill_wait(key)
        or_none = wait > 0 or default is TO_BE_COMPUTED
        read_once = partial(self._read, key, or_none)
        stored = drive(self._level.get(cache_key, read_once, self._here, leaves_miss=wait > 0))
        if stored is MISSING and wait:
            note_held_leases()
            grace, read = self._fill_grace(key), partial(self._read, key, True)
            stored = drive(self._level.lease(cache_key, read, self._here, wait=wait, grace=grace))
        if default is TO_BE_COMPUTED:
            return default if stored is MISSING else self._decode(stored)
        return self._found_or(default, cache_key, stored)

    def delete_tags(self, *tags: str) -> None:
        """Do the same as ``WheelCache.delete_tags`` for the values in the second level."""
        names = [options.tag("tags", tag) for tag in tags]
        keys = self._store_tags.names(names)
        write = lambda here: self._store_tags.drop(here.l2, names)  # noqa: E731
        drive(self._level.write(keys, write, self._here, result_if_dropped=None, new_timeout=NO_TIMEOUT))

    def begin(self, tags: tuple[str, ...]) -> Begun:
        begun = self._store_tags.begin(tags)
        if tags:
            drive(self._level.read(lambda here: drive(begun.begin(here.l2)), self._here))
        return Begun(begun, begun.names)

    def get_or_load(self, key: str, loader: Callable[..., R], timeout: Timeout = None, *, tags: Any = NO_TAGS) -> R:
        """Return the value of ``key``; if it is missing, the result of ``loader()``, which is stored.

        Of the threads of this process that miss the key together, one runs its loader, and the others get its value or
        its exception. None is a value like any other. With ``fill_grace``, the others get the old copy, and so does a
        parameter of ``loader`` named ``previous``. KEEP stores that copy again.
        """
        begun = self._store_tags.begin(tags)
        if not callable(timeout):
            timeout = self._timeout(timeout)
        found = self._get_at_once(key)
        if found is not MISSING:
            return found  # type: ignore[no-any-return]

        def add(value: Any, fills: Fills) -> StepsTo[bool]:
            return self._add(begun, key, value, timeout_for(timeout, value), fills)

        sought = GetOrAdd(
            self._cache_key(key),
            partial(self._read, key, True),
            loader,
            add,
            self._codec,
            self._fill_grace(key),
            begun.names,
            lambda here: here.drive(begun.begin(here.l2)),
        )
        return run(self._level.get_or_add(sought, self._here))  # type: ignore[no-any-return]

    def request_shared(self, key: str, load: Callable[[], Any], begun: Begun) -> LoadRequest:
        if not begun.is_fill:
            return super().request_shared(key, load, begun)
        cache_key, read = self._cache_key(key), partial(self._read, key, True)

        def look_and_load() -> Any:
            # A caller that arrives after another one has computed the value finds it in the second level.
            stored = drive(self._level.read(read, self._here, cache_key))
            return load() if stored is MISSING else Unstored(stored, is_computed=False)

        policy = self._level.policy_of(cache_key, self._fill_grace(key))
        return self.loading.request_apart(cache_key, look_and_load, policy, begun.names)

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Begun) -> None:
        cache_key = self._cache_key(key)
        fills = {cache_key: self._level.computations.led(cache_key)} if begun.is_fill else NO_FILLS
        self._set(begun.write, key, value, timeout, fills)

    def previous(self, key: str) -> Record | None:
        return self._level.previous(self._cache_key(key))

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        # The second level cannot do this atomically.
        if self.get(key) == version:
            self.set(key, version, self._version_timeout(key, self._timeout(timeout)))

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it existed, as reported by the second level."""
        delete: Callable[[Here], bool] = lambda here: here.l2.delete(key)  # noqa: E731
        return self._write([key], delete, result_if_dropped=False, new_timeout=NO_TIMEOUT)

    def get_many(self, *keys: str) -> list[Any]:
        """Return the values of all ``keys``, None for missing ones. The second level is asked at most once."""
        if self._waits_for_versions(keys):
            return [self.get(key) for key in keys]
        cache_keys = [self._cache_key(key) for key in keys]
        originals = dict(zip(cache_keys, keys, strict=True))

        def read(missing: list[Any], here: Here) -> dict[Any, Any]:
            values = zip(missing, _get_many(here.l2, [originals[cache_key] for cache_key in missing]), strict=True)
            found = {cache_key: value for cache_key, value in values if value is not None}
            return self._store_tags.opened(self.l2, found, self._encode)  # type: ignore[no-any-return]

        found = drive(self._level.get_many(originals, read, self._here))
        for cache_key in originals.keys() - found.keys():
            self._level.missed(cache_key)
        return [self._decode(found.get(cache_key)) for cache_key in cache_keys]

    def set(self, key: str, value: Any, timeout: Timeout = None, *, tags: Any = NO_TAGS) -> bool:
        """Store a value. Return whether it was stored, as reported by the second level."""
        cache_keys = [self._cache_key(key)]
        begun, fills = self._store_tags.begin(tags, cache_keys), self._fills(cache_keys, timeout)
        return self._set(begun, key, value, timeout, fills)

    def _set(self, begun: TaggedWrite, key: str, value: Any, timeout: Timeout, fills: Fills) -> bool:
        ttl = self._timeout(timeout)
        stored: bool = self._write(
            [key],
            lambda here: begun.write(here.l2, drive, lambda sealed: here.l2.set(key, sealed(value), ttl)),
            result_if_dropped=False,
            value_of=lambda _: self._for_waiters(value, _seconds(ttl), begun.is_current),
            new_timeout=_new_timeout(ttl, lambda stored: None if stored is False else True),
            tags=begun.names,
            fills=fills,
            undo=self._undo(begun, {key: value}),
        )
        return stored and not are_outdated(fills)

    def add(self, key: str, value: Any, timeout: Timeout = None, *, tags: Any = NO_TAGS) -> bool:
        """Store a value unless the key exists. Return whether it was stored."""
        cache_keys = [self._cache_key(key)]
        begun, fills = self._store_tags.begin(tags, cache_keys), self._fills(cache_keys, timeout)
        return drive(self._add(begun, key, value, timeout, fills))

    def _add(self, begun: TaggedWrite, key: str, value: Any, timeout: Timeout, fills: Fills) -> StepsTo[bool]:
        ttl = self._timeout(timeout)
        added = yield from self._level.write(
            [self._cache_key(key)],
            lambda here: drive(self._store_tags.add_value(here.l2, begun, key, value, ttl)),
            self._here,
            result_if_dropped=False,
            value_of=lambda added: self._for_waiters(value, _seconds(ttl), added and begun.is_current),
            new_timeout=_new_timeout(ttl, bool),
            tags=begun.names,
            fills=fills,
            undo=self._undo(begun, {key: value}),
        )
        return added and not are_outdated(fills)

    def _fills(self, cache_keys: Collection[str], timeout: Timeout) -> Fills:
        return self._level.fills(cache_keys, _seconds(self._timeout(timeout)))

    def _undo(self, begun: TaggedWrite, written: Mapping[str, Any]) -> Callable[[str, Here], None]:
        """Return the function that removes a value again, given the key of its copy."""
        originals = {self._cache_key(key): key for key in written}

        def undo(cache_key: str, here: Here) -> None:
            key = originals[cache_key]
            stored = begun.sealed(written[key])
            remove_own(here.l2, cache_key, stored, partial(here.l2.get, key), partial(here.l2.delete, key))

        return undo

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None, *, tags: Any = NO_TAGS) -> list[Any]:
        """Store many values. Return the keys that were stored."""
        ttl, cache_keys = self._timeout(timeout), {key: self._cache_key(key) for key in mapping}
        begun = self._store_tags.begin(tags, cache_keys.values())
        fills = self._fills(cache_keys.values(), timeout)
        versions = filter(is_memoize_version, mapping)
        ttl = next((self._version_timeout(key, ttl) for key in versions), ttl)

        def refused() -> list[str]:
            return [key for key, cache_key in cache_keys.items() if cache_key in fills and fills[cache_key].is_outdated]

        def write(sealed: Callable[[Any], Any]) -> Any:
            left_out = refused()
            return self.l2.set_many({key: sealed(mapping[key]) for key in mapping if key not in left_out}, ttl)

        stored: list[Any] = self._write(
            mapping,
            lambda here: begun.write(here.l2, drive, write),
            result_if_dropped=[],
            new_timeout=_new_timeout(ttl, lambda stored: True if stored == list(mapping) else None),
            fills=fills,
            undo=self._undo(begun, mapping),
        )
        left_out = refused()
        return [key for key in stored if key not in left_out]

    def delete_many(self, *keys: str) -> list[Any]:
        """Delete many keys. Return the keys that no longer exist."""
        return self._write(keys, lambda here: here.l2.delete_many(*keys), result_if_dropped=[], new_timeout=NO_TIMEOUT)

    def has(self, key: str) -> bool:
        """Return whether the key exists."""
        ask = lambda here: self._read(key, True, here) is not MISSING  # noqa: E731
        return drive(self._level.has(self._cache_key(key), ask, self._here))

    def clear(self) -> bool:
        """Remove all entries. Return whether the second level reports that it was cleared."""
        return drive(self._level.clear(lambda here: here.l2.clear(), self._here)) or False

    def inc(self, key: str, delta: int = 1) -> Any:
        """Add ``delta`` to a value in the second level. Return the sum; None in an outage with ``fail_safe``.

        Raises:
            TagsUnsupported: if the value has tags.
        """
        return self._write(
            [key],
            lambda here: drive(self._store_tags.count(here.l2, lambda: here.l2.inc(key, delta), key)),
            result_if_dropped=None,
            value_of=lambda value: self._for_waiters(value, None, value is not None),
            # Redis keeps the timeout of a value. Others set the new one with the default timeout, or keep it.
            new_timeout=None if hasattr(self.l2, "_write_client") else _new_timeout(self.l2.default_timeout, _unknown),
        )

    def _write(self, keys: Iterable[str], write: Callable[[Here], T], **given: Any) -> T:
        return drive(self._level.write([*map(self._cache_key, keys)], write, self._here, **given))

    def _read(self, key: str, or_none: bool, here: Here) -> Any:
        """Return the value from the second level, or MISSING. With ``or_none``, distinguish None from a miss."""
        l2 = here.l2
        value = l2.get(key)
        if value is None:
            if not or_none or not l2.has(key):
                return MISSING
            # The value is None, or the key was set in between.
            value = l2.get(key)
        return self._store_tags.opened_one(l2, value, self._encode)

    def _version_timeout(self, key: str, timeout: Any) -> Any:
        """Return the timeout of a version of a memoized function whose values have ``timeout``: without the version, no
        caller would find their old values."""
        seconds = _seconds(timeout)
        # Redis takes whole seconds only.
        return timeout if seconds is None or options.expires_now(seconds) else ceil(seconds + self._fill_grace(key))

    def _cache_key(self, key: str) -> str:
        """Return the key in the second level, under which writes are reported."""
        return _with_prefix(self._l2_prefix, key)

    def _timeout(self, timeout: Timeout) -> Any:
        """Return the timeout for the second level in the caller's form."""
        if timeout is None:
            return self.default_timeout
        options.timeout("timeout", timeout)
        return timeout

    def __setattr__(self, name: str, value: Any) -> None:
        # CACHE_SERIALIZER concerns stored values, so it applies to both levels.
        if name == "serializer" and hasattr(self.l2, "serializer"):
            self.l2.serializer = value
        super().__setattr__(name, value)


def _with_prefix(prefix: str | Callable[[], str], key: str) -> str:
    if type(prefix) is not str:
        prefix = prefix() if callable(prefix) else prefix
    return key if type(key) is str and not prefix else f"{prefix}{key}"


def _get_many(l2: Any, keys: list[str]) -> list[Any]:
    """Return the values of ``keys`` in the second level, None for missing ones. cachelib sends one command for all,
    which a Redis Cluster refuses: their keys are on several nodes."""
    get_by_slot = getattr(getattr(l2, "_read_client", None), "mget_nonatomic", None)
    if get_by_slot is None:
        return l2.get_many(*keys)  # type: ignore[no-any-return]
    return [l2.serializer.loads(value) for value in get_by_slot([_with_prefix(l2.key_prefix, key) for key in keys])]


def _get_tokens(l2: cachelib.BaseCache, keys: list[str]) -> dict[str, Any]:
    values = zip(keys, _get_many(l2, keys), strict=True)
    return {key: token for key, token in values if token is not None}


def _add_token(l2: cachelib.BaseCache, key: str, token: str) -> bool:
    return l2.add(key, token, 0)


def _set_tokens(l2: cachelib.BaseCache, tokens: dict[str, str]) -> None:
    for key, token in tokens.items():
        if l2.set(key, token, 0) is False:
            l2.delete(key)


def _new_timeout(timeout: Any, took_effect: Callable[[Any], bool | None]) -> NewTimeout:
    # In cachelib, 0 means no expiry. Below 0, Redis stores the value forever, and other caches do not store it.
    return NewTimeout(_seconds(timeout), took_effect)


def _seconds(timeout: Timeout) -> float | None:
    """Return a cachelib timeout in seconds, or None for no expiry."""
    return None if timeout is None else options.timeout("timeout", timeout) or None


def _unknown(result: object) -> None:
    """Return None: it is unknown whether a write has set the timeout."""


def _checked_level(l2: Any) -> cachelib.BaseCache:
    if not isinstance(l2, cachelib.BaseCache):
        raise TypeError(f"l2 must be {L2_TAKES}, not {options.shown(l2)}")
    if isinstance(l2, TieredCache):
        raise TypeError(f"l2 must not be a TieredCache itself, as {options.shown(l2)} is")
    return l2


def _made_already(option: str, value: Any) -> TypeError:
    return TypeError(f"{option} must be left out if l2 is a cache object, not {options.shown(value)}")


def _second_level(app: Flask, config: dict[str, Any], l2: str, l2_options: Any, timeout: float) -> cachelib.BaseCache:
    """Return the cache of CACHE_TYPE ``l2`` and CACHE_OPTIONS ``l2_options``, with sockets that do not wait forever."""
    if not isinstance(l2_options, Mapping):
        raise TypeError(f"l2_options must be a dict, not {options.shown(l2_options)}")
    try:
        made_by = import_string(l2 if "." in l2 else f"flask_caching.backends.{l2}")
    except ImportError as error:
        raise ValueError(f"l2 must be {L2_TAKES}, not {options.shown(l2)}: {error}") from error
    settings = {
        **config,
        "CACHE_TYPE": l2,
        "CACHE_OPTIONS": {**socket_options(made_by, timeout), **l2_options},
        "CACHE_ARGS": [],
    }
    maker = flask_caching.Cache(with_jinja2_ext=False)
    maker.init_app(app, settings)
    return app.extensions["cache"].pop(maker)  # type: ignore[no-any-return]
