"""The base class of the two backends for Flask-Caching, and the settings of their app."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from math import ceil
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from flask import Flask
from flask_caching.backends.base import BaseCache

from wheelcache.cache import Cache
from wheelcache.core.access import MAX_FAST_TTL, NO_TAGS
from wheelcache.core.contract import MISSING, GroupRule, Record
from wheelcache.engine import options
from wheelcache.engine.backend_access import BackendAccess, checked_tags
from wheelcache.engine.codec import Codec, Pickle, Serializer, is_bare, is_immutable
from wheelcache.engine.guests import module_of
from wheelcache.engine.layer import SharedLayer
from wheelcache.engine.loading.request import PLAIN, Kept, LoadRequest, Unstored, seconds_for
from wheelcache.engine.option_table import Options, Setting
from wheelcache.errors import FileUnusable
from wheelcache.flask_backend.app_contexts import count_views, end_leases, figures_directory, note_held_leases
from wheelcache.runtime.clock import moment
from wheelcache.runtime.request_scope import forget_misses
from wheelcache.runtime.steps import drive

logger = logging.getLogger("wheelcache")

B = TypeVar("B", bound="EngineBackend")
R = TypeVar("R")

Timeout = int | float | timedelta | None
"""Seconds, or a timedelta. 0 means no expiry, below 0 immediate expiry, None the default timeout."""

PICKLE: Final = Pickle()


class _Mark(Enum):
    TO_BE_COMPUTED = "a missing value that the caller will compute"
    NOT_SHARED = "a value that another caller computed and did not keep"


TO_BE_COMPUTED: Final = _Mark.TO_BE_COMPUTED
"""The default of a ``get`` whose caller goes on with ``request_shared``: the ``get`` returns without a lease."""

NOT_SHARED: Final = _Mark.NOT_SHARED
"""The result for waiters if the value was not kept."""


class Begun(NamedTuple):
    """The beginning of the computation of a value: its tags, their names in the cache, the moment, whether the value
    answers a miss, and is not kept if another caller has written its key, and its write to a store."""

    tags: tuple[str, ...]
    names: tuple[str, ...]
    since: int
    is_fill: bool = False
    write: Any = None


PAGES: Final = "view/"
FRAGMENTS: Final = "_template_fragment_cache_"
"""The beginnings of the keys of ``cached`` views, and of the fragments of templates."""

GROUPS: Final = (
    GroupRule(PAGES, "", ""),
    GroupRule(FRAGMENTS, "fragments", ""),
    GroupRule("", "", ":"),
)
"""The groups of keys: the pages of ``cached``, by view; the fragments of templates, in whose keys nothing ends the
name; and for all others, such as those of a memoized function, the text up to the first colon."""


class EngineBackend(BackendAccess, BaseCache):
    """A cachelib cache with an engine.

    Args:
        checked: the options: see ``_checked_options``.

    Attributes:
        _table: the options that the class has.
        serializer: in cachelib's form. If it is set on the class or on the object, it replaces pickle and receives
            every value except ints and None.
        keeps: returns whether a value is stored as it is.
    """

    _table: ClassVar[Options]
    serializer: Serializer = PICKLE
    keeps: Callable[[Any], bool] = staticmethod(is_immutable)

    def __init__(self, engine: Cache, checked: dict[str, Any]) -> None:
        super().__init__()
        # cachelib before version 0.16 has no such parameter.
        self.ignore_delete_many_errors = checked["ignore_delete_many_errors"]
        # cachelib converts it to an int; fractions are kept here.
        self.default_timeout = checked["default_timeout"]
        self._options = checked
        self._use_cache(engine, checked.get("fill_wait", ()), checked.get("grace", ()))
        self._may_wait_for_versions = not {PAGES, FRAGMENTS}.issuperset(self._waiting)
        # Their values are made, and not computed by the site.
        self._misses.leave_out(is_memoize_version)
        # Every key is stored as it is.
        self._max_key_length = 0
        self._use_serializer()

    @property
    def engine(self) -> Cache:
        """The cache with the entries, or with the copies."""
        return self._cache

    @property
    def settings(self) -> list[Setting]:
        """The options, for operators."""
        return self._table.settings(self._options)

    def is_of_this_process(self) -> bool:
        """Return whether each process has its own entries."""
        return True

    def _group_keys(self) -> None:
        """Distinguish groups of keys, which begin with the key prefix."""
        if self._prefix is not None and self._prefix.isascii():
            self._cache.engine.group_by([each._replace(prefix=self._prefix + each.prefix) for each in GROUPS])

    @classmethod
    def _checked_options(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked values of all options of ``_table``, given or default, by their names in it.

        Raises:
            TypeError, ValueError, FileUnusable: if an option is unknown or wrong. The message names the option, the
                values that it accepts and the value that it got.
        """
        _check_known(cls._table, given)
        return cls._table.checked(given)

    @classmethod
    def _for_app(cls, app: Flask, given: dict[str, Any], make: Callable[[dict[str, Any]], B]) -> B:
        """Return the backend of ``app`` that ``make`` makes of the options: those ``given``, and the app's own ones."""
        given = {"name": app.name, **given}
        if "figures_dir" not in given:
            given["figures_dir"] = figures_directory(app)
        _check_known(cls._table, given)
        with naming(given["name"]):
            backend = make(given)
        backend._end_with_contexts(app)
        _warn_of_sessions(app)
        return backend

    def _use_layer(self, layer: SharedLayer) -> None:
        """Act on ``layer``; with the option ``transactions``, behind the layer of the announced ones."""
        above = None
        if self._options.get("transactions"):
            guest = module_of("transactions", "announced")
            above = guest.above(self._cache, self._options, has_store=layer.has_store)
        self._use_layers(layer, above)

    def _end_with_contexts(self, app: Flask) -> None:
        """Make the leases and fills of each app context of ``app`` end with it, and count its pages by view."""
        count_views(app)
        if self._fill_waits:
            app.teardown_appcontext(end_leases)
        app.teardown_appcontext(lambda error: forget_misses())

    # The calls of cachelib, in its order. Without a store, some have fast paths.

    def _get_missed(self, key: str, default: Any, version: int | None) -> Any:
        cache_key, goes_on = self._cache_key(key), default is TO_BE_COMPUTED
        wait = 0.0 if goes_on else self._fill_wait(key)
        if wait:
            note_held_leases()
        found = drive(self._chain.look_up(cache_key, wait, grace=self._grace(key), goes_on=goes_on))
        value = self._found_or(MISSING if goes_on else default, cache_key, found)
        return default if value is MISSING else value

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it existed."""
        return drive(self._chain.delete(self._cache_key(key)))  # type: ignore[no-any-return]

    def get_many(self, *keys: str) -> list[Any]:
        """Return the values of all ``keys``, None for missing ones. A store is asked at most once."""
        if self._waits_for_versions(keys):
            return [self.get(key) for key in keys]
        values = self._get_many_at_once(keys)
        if values is None:
            cache_keys = [self._cache_key(key) for key in keys]
            found = drive(self._chain.get_many(cache_keys))
            return [self._found_or(None, each, found[each]) if each in found else None for each in cache_keys]
        for key, value in zip(keys, values, strict=True):
            if value is MISSING:
                self._misses.note(self._cache_key(key))
        return [None if value is MISSING else value for value in values]

    def set(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store a value. Return whether it was stored: False if it alone exceeds ``max_bytes``, or if one of its tags
        was dropped while it was computed.

        Args:
            tags: at most 64 non-empty strings, with each of which ``delete_tags`` removes the entry.
        """
        ttl = self._ttl(timeout)
        is_stored = self._set_at_once(key, value, ttl) if tags is NO_TAGS else None
        if is_stored is not None:
            return is_stored
        found = drive(self._chain.set(self._cache_key(key), value, ttl, checked_tags(tags), grace=self._grace(key)))
        # Without a store, the result is whether the key existed.
        return found or (not self.has_store and options.expires_now(ttl))

    def add(self, key: str, value: Any, timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store a value unless the key exists. Return whether it was stored.

        The timeout is used exactly, without jitter. ``tags`` is as for ``set``.
        """
        ttl = self._ttl(timeout)
        is_stored = self._add_at_once(key, value, ttl) if tags is NO_TAGS else None
        if is_stored is not None:
            return is_stored
        return drive(self._chain.add(self._cache_key(key), value, ttl, checked_tags(tags)))  # type: ignore[no-any-return]

    def set_many(
        self, mapping: Mapping[str, Any], timeout: Timeout = None, *, tags: Iterable[str] = NO_TAGS
    ) -> list[Any]:
        """Store many values. Return the keys that were stored. ``tags`` is as for ``set``."""
        ttl = self._ttl(timeout)
        # The values of a memoized function are found only as long as its version exists, so a version has no jitter.
        versions = [*filter(is_memoize_version, mapping)]
        if tags is NO_TAGS and not versions and self._set_many_at_once(mapping, ttl):
            return list(mapping)
        checked = checked_tags(tags)
        originals = {self._cache_key(key): key for key in mapping}
        values = {cache_key: mapping[key] for cache_key, key in originals.items()}
        if versions:
            ttl = self._version_ttl(versions[0], ttl)
        graces = {each: self._grace(originals[each]) for each in values} if self._graces else {}
        refused = {*drive(self._chain.set_many(values, ttl, checked, graces, is_exact=bool(versions)))}
        return [key for cache_key, key in originals.items() if cache_key not in refused]

    def delete_many(self, *keys: str) -> list[Any]:
        """Delete many keys. Return the keys that no longer exist."""
        found = drive(self._chain.delete_many([*map(self._cache_key, keys)]))
        if found is None and self._chain.shares():
            # The store is down.
            return []
        return found if isinstance(found, list) else [*keys]

    def has(self, key: str) -> bool:
        """Return whether the key exists."""
        return drive(self._chain.has(self._cache_key(key)))  # type: ignore[no-any-return]

    def clear(self) -> bool:
        """Remove all entries. Return whether that was done, as a store reports it."""
        found = drive(self._chain.clear())
        return bool(found) or not self.has_store

    def inc(self, key: str, delta: int = 1) -> Any:
        """Add ``delta`` to a value, and return the sum. A missing key starts at 0; an existing one keeps its expiry.

        The result is None if the sum alone exceeds ``max_bytes``, so that it is not stored, and in an outage with
        ``fail_safe``.

        Raises:
            TagsUnsupported: if the value has tags and is in a store.
        """
        total = self._incr_at_once(key, delta)
        if total is not None:
            return total
        cache_key = self._cache_key(key)
        total = drive(self._chain.add_to(cache_key, delta, 0, self._ttl(None), or_none=True))
        return total if self._shared.fits(cache_key, self._encode(total)) else None

    def dec(self, key: str, delta: int = 1) -> Any:
        """Subtract ``delta`` from a value: see ``inc``."""
        return self.inc(key, -delta)

    def get_dict(self, *keys: str) -> dict[str, Any]:
        """Return the values of all ``keys`` as a dict."""
        return dict(zip(keys, self.get_many(*keys), strict=True))

    # For ``caching.Cache``.

    def is_in_transaction(self) -> bool:
        """Return whether the caller is in a transaction, so that it computes values by itself, and keeps them."""
        return not self._chain.shares()

    def begin(self, tags: tuple[str, ...]) -> Begun:
        """Return the beginning of the computation of a value with ``tags``, for ``request_shared`` and ``keep``."""
        return Begun(tags, self._tag_names(tags), moment())

    def request_shared(self, key: str, load: Callable[[], Any], begun: Begun) -> LoadRequest:
        """Return the request of a value that concurrent callers share.

        Args:
            load: computes the value, and returns the result of ``shared`` after ``keep``, or NOT_SHARED as Unstored.
        """
        return self.loading.request_apart(self._cache_key(key), load, begun.names)

    def request_alone(self, key: str, load: Callable[[], Any]) -> LoadRequest:
        """Return the request of a value that the caller computes for itself."""
        request = self.loading.request(self._cache_key(key), load, 0, PLAIN, passes_previous=False)
        # Its caller has looked it up.
        request.is_counted = True
        return request

    def shared(self, value: Any, timeout: Timeout, begun: Begun) -> Kept | Unstored:
        """Return a computed value for the callers that wait: as Kept if the load stores it, so that ``keep`` need not
        be called."""
        return Unstored(self._encode(value))

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Begun) -> None:
        """Store a computed value."""
        if not begun.tags:
            self.set(key, value, timeout)
            return
        ttl, grace = self._ttl(timeout), self._grace(key)
        drive(self._chain.set(self._cache_key(key), value, ttl, begun.tags, begun.since, grace))

    def previous(self, key: str) -> Record | None:
        """Return the entry of ``key`` with the value that a computed one will replace, if there is one in memory."""
        return self._cache.engine.peek(self._cache_key(key))

    def get_or_load(self, key: str, loader: Callable[..., R], timeout: Timeout = None) -> R:
        """Return the value of ``key``; if it is missing, the result of ``loader()``, which is stored."""
        raise NotImplementedError

    def version(self, key: str) -> str:
        """Return the version of a memoized function, or of one of its instances. Make it if there is none."""
        version: Any = self.get(key, TO_BE_COMPUTED)
        return version if type(version) is str else str(self.get_or_load(key, new_version, 0))

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        """Give a version a new timeout, unless it has changed."""
        raise NotImplementedError

    def _cache_key(self, key: str) -> str:
        """Return the key of the entry, or of the copy."""
        raise NotImplementedError

    def _key(self, key: str, version: int | None) -> str:
        return self._cache_key(key)

    def _version_ttl(self, key: str, ttl: float | None) -> float | None:
        """Return the TTL of a version of a memoized function whose values have ``ttl``: without the version, no caller
        would find their old values."""
        if ttl is None or ttl <= 0 or not self._graces:
            return ttl
        # Redis takes whole seconds only.
        return ceil(ttl + self._grace(key)) if self.has_store else ttl + self._grace(key)

    def _ttl(self, timeout: Timeout) -> float | None:
        """Return the TTL in seconds: None for no expiry, below zero for immediate expiry."""
        if type(timeout) is int and 0 <= timeout < MAX_FAST_TTL:
            return timeout or None
        if isinstance(timeout, bool):
            # A number, as to SimpleCache.
            return 1 if timeout else None
        seconds = self.default_timeout if timeout is None else options.timeout("timeout", timeout)
        return seconds or None

    def _waits_for_versions(self, keys: Iterable[Any]) -> bool:
        """Return whether ``keys`` are versions of memoized functions, for which ``get_many`` must call ``get``.

        Flask-Caching reads the versions together. The values of the functions cannot be computed before the versions
        are set, and without waiting, all callers that miss the versions would set their own.
        """
        return self._may_wait_for_versions and any(map(is_memoize_version, keys))

    def __setattr__(self, name: str, value: Any) -> None:
        # Flask-Caching sets CACHE_SERIALIZER on the finished object.
        super().__setattr__(name, value)
        if name == "serializer":
            self._use_serializer()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "serializer":
            self._use_serializer()

    def _use_serializer(self) -> None:
        is_own = self.serializer is not PICKLE
        self._use_codec(
            Codec(self.serializer, keep=is_bare) if is_own else Codec(PICKLE, self.keeps),
            keeps_atoms=not is_own and self.keeps is is_immutable,
        )
        if self._shared is not None:
            self._shared.codec = self._codec


def timeout_for(timeout: Any, value: Any) -> Any:
    """Return ``timeout``; if it is a function of the value, the timeout that it gives to ``value``."""
    seconds = seconds_for(timeout, value)
    if not callable(timeout):
        return timeout
    if seconds is None:
        return 0
    # cachelib prefers ints.
    return (int(seconds) if seconds.is_integer() else seconds) or -1


def new_version() -> str:
    return secrets.token_hex(4)


def is_memoize_version(key: Any) -> bool:
    """Return whether Flask-Caching keeps the version of a memoized function under ``key``."""
    return str(key).endswith("_memver")


def _check_known(table: Options, given: Mapping[str, Any]) -> None:
    """Check that all options are known.

    Raises:
        TypeError: if an option is unknown. The message names the option, its cache and the nearest known option.
    """
    unknown = table.unknown(given, f"the cache {given.get('name', 'default')!r}")
    if unknown is not None:
        raise TypeError(unknown)


@contextmanager
def naming(cache: Any) -> Iterator[None]:
    """Add the name of the cache to the error of a wrong option in this block."""
    try:
        yield
    except (TypeError, ValueError, FileUnusable) as error:
        # A subclass may have other arguments.
        kind = next(each for each in (TypeError, ValueError, FileUnusable) if isinstance(error, each))
        raise kind(f"Wrong setting of the cache {cache!r}: {error}") from error


def _warn_of_sessions(app: Flask) -> None:
    """Log a warning if Flask-Session keeps the sessions of ``app`` in a cache that the workers do not share."""
    sessions = app.config.get("SESSION_CACHELIB")
    if (
        app.config.get("SESSION_TYPE") == "cachelib"
        and isinstance(sessions, EngineBackend)
        and sessions.is_of_this_process()
    ):
        logger.warning(
            "Flask-Session keeps the sessions of the app %r in a cache that the worker processes do not share: with "
            "more than one worker, a visitor is logged out whenever another one answers. Set SESSION_CACHELIB to a "
            "HostCache, if all workers are on this machine, or to a TieredCache over Redis, Valkey or memcached.",
            app.name,
        )
