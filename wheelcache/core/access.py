"""The short ways to a core: ``get``, ``set`` and ``delete`` of a plain key, which ``Cache`` and the backends inherit.

They bind the core's methods once. A hit is one call of the core and a few comparisons; everything that is rare (a key
that is no string, a listener, a lease, the first use of a process) goes to the methods below with a name of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from wheelcache.core.contract import MISSING, Core, Removals
from wheelcache.errors import Unloaded


class _Default(Enum):
    TTL = "the cache's own TTL"

    def __repr__(self) -> str:
        return self.value


DEFAULT_TTL: Final = _Default.TTL
"""What ``ttl`` is when it isn't given: the TTL that the cache was made with."""

TTL = float | None | _Default

NO_TAGS: Final[tuple[str, ...]] = ()

Lifetime = TTL | Callable[[Any], float | None]
"""A TTL, or a function that returns the seconds for which its argument, a loaded value, is kept."""

MAX_FAST_TTL: Final = 1 << 40
"""Seconds. Longer TTLs, among them ints that no float can hold, are checked."""


SECONDS: Final = (int, float)


class Serialized(bytes):
    """A serialized value, as distinct from bytes that a caller has cached."""

    __slots__ = ()


class WriteState:
    """The work around the core when an entry is missed or written.

    Attributes:
        is_plain: nothing but the core has a part in a ``set`` or ``delete``.
        quiet: the outcome of a ``set`` after which there is nothing more to do.
        leases: the waits for values, if any are ``in_force``.
        records_misses: whether misses must be reported to ``missed``. False with the system's clock and without stamps.
    """

    __slots__ = ("is_plain", "leases", "quiet")

    is_plain: bool
    quiet: int
    leases: Any

    @property
    def records_misses(self) -> bool:
        raise NotImplementedError

    def missed(self, key: Any) -> None:
        raise NotImplementedError

    def announce(self, outcome: int, removed: Removals | None, count: int = 1) -> None:
        raise NotImplementedError

    def interrupted(self) -> None:
        raise NotImplementedError


class CacheAccess:
    """What a hit, a miss and a plain write of ``Cache`` take."""

    __slots__ = ("__weakref__", "_core", "_core_delete", "_core_find", "_core_set", "_ttl", "_writes")

    _core: Core
    _ttl: float | None

    def _bind(self, core: Core, writes: WriteState) -> None:
        self._core = core
        self._core_find = core.find
        self._core_set = core.set
        self._core_delete = core.delete
        self._writes = writes

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of ``key``, or ``default``. Never an expired one."""
        if type(key) is not str and type(key) is not int:
            key = self._adapt(key)
        try:
            find = self._core_find
            value = find(key, MISSING)
        except Unloaded:
            self._load_snapshot()
            return self.get(key, default)
        if value is not MISSING:
            return value
        self._core.count(misses=1)
        if self._writes.records_misses:
            self._writes.missed(key)
        return default

    def find(self, key: Hashable, default: Any = None) -> Any:
        """``get``, without counting a miss: for a caller that goes on with ``loading.load``, which counts it."""
        if type(key) is not str:
            key = self._adapt(key)
        try:
            find = self._core_find
            value = find(key, MISSING)
        except Unloaded:
            self._load_snapshot()
            return self.find(key, default)
        if value is not MISSING:
            return value
        if self._writes.records_misses:
            self._writes.missed(key)
        return default

    def set(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store ``value``, in place of any other. False if it is not stored: it alone outweighs ``max_weight``, or, in
        a coherent cache, another process wrote the key since this caller missed it.

        Args:
            ttl: seconds, > 0; None for never; the cache's own if not given.
            tags: at most 64 non-empty strings, with each of which ``delete_tags`` removes the entry.
        """
        if ttl is DEFAULT_TTL:
            ttl = self._ttl
        elif type(ttl) is not int or not 0 < ttl < MAX_FAST_TTL:
            return self._set(key, value, ttl, tags)
        writes = self._writes
        if type(key) is not str or not writes.is_plain or tags != ():
            return self._set(key, value, ttl, tags)
        try:
            store = self._core_set
            outcome = store(key, value, ttl)
            if outcome != writes.quiet:
                writes.announce(outcome, None)
        except Unloaded:
            self._load_snapshot()
            return self.set(key, value, ttl)
        except BaseException:
            writes.interrupted()
            raise
        return True

    def delete(self, key: Hashable) -> bool:
        """Remove an entry. Whether it was there."""
        writes = self._writes
        if type(key) is not str or not writes.is_plain or writes.leases.in_force:
            return self._delete(key) is not MISSING
        try:
            remove = self._core_delete
            return remove(key, MISSING) is not MISSING
        except Unloaded:
            self._load_snapshot()
            return self.delete(key)

    def get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """Return the values of those ``keys`` that are there, as a dict."""
        return self._get_many(keys)

    def add(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store ``value`` unless the key is there. Return whether it was stored.

        The TTL is kept exactly, as locks, rate windows and one-time codes need it: no jitter.
        """
        return self._add(key, value, ttl, tags)

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: TTL = DEFAULT_TTL,
        *,
        jitter: bool = True,
        tags: Iterable[str] = NO_TAGS,
    ) -> list[Any]:
        """``set`` for many. Return the keys that were not stored.

        Args:
            jitter: False to keep the TTL exactly, as ``add`` does.
            tags: the tags of every entry.
        """
        return self._set_many(values, ttl, jitter=jitter, tags=tags)

    def touch(self, key: Hashable, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry a new TTL from now, exactly, without jitter. Return False if the key is not there."""
        return self._touch(key, ttl)

    def incr(self, key: Hashable, delta: Any = 1) -> Any:
        """Add ``delta`` to a value, keep its expiry, and return the sum. Atomic.

        Raises:
            MissingKey: (a KeyError) the key is not there.
            TypeError: the value and ``delta`` cannot be added.
        """
        return self._incr(key, delta)

    def get_or_load(
        self,
        key: Hashable,
        loader: Callable[..., Any],
        ttl: Lifetime = DEFAULT_TTL,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = NO_TAGS,
    ) -> Any:
        """The value of ``key``; if it is missing, what ``loader()`` returns, which is stored.

        However many threads and tasks miss a key together, one runs its loader, and the others get its value or its
        exception. A failed load stores nothing. If the key is set or deleted meanwhile, the loaded value is for the
        callers that waited by then, and is not stored.

        Args:
            loader: if it has a parameter named ``previous``, it receives the value that it replaces, which is fresh or
                within its grace, by keyword; None if there is none. It may return ``wheelcache.KEEP`` to renew that
                value.
            ttl: as for ``set``; or a function of the value that returns seconds. If it returns None, or 0 or less, the
                value is not kept. Its exceptions are those of the loader.
            grace: seconds past its TTL for which the value may still be returned while one refresh in the background
                loads it anew. If that fails, the next caller gets what the loader raises.
            refresh_ahead: a fraction of ``ttl``. The first hit past it starts a refresh.
            fail_safe: if a refresh fails, the stale value is returned on, within its grace; the next try waits for 1
                second, then 2, 4 ... 60. Needs ``grace``.
            timeout: seconds to wait for a load, which runs in another thread, one of at most 32. After that the caller
                gets the stale value, if there is one; the load goes on, and its value is stored. Where the system
                refuses threads, the caller loads, for as long as it takes.
            negative_ttl: seconds to remember that the loader returned None, in place of ``ttl`` and without grace.
            tags: as in ``set``. If one of them is dropped during the load, the value is not stored.

        Raises:
            LoadDeadlock: the loader takes, itself or through other loaders, the key it is loading.
            LoadTimeout: (a TimeoutError) the timeout passed, and there is no stale value.
        """
        found = self.find(key, MISSING)
        if (
            found is not MISSING
            and (ttl is DEFAULT_TTL or (type(ttl) is int and 0 < ttl < MAX_FAST_TTL))
            and grace is refresh_ahead is timeout is negative_ttl is None
            and fail_safe is False
        ):
            return found
        return self._load(key, found, loader, ttl, grace, refresh_ahead, fail_safe, timeout, negative_ttl, tags)

    # Below: what ``Cache`` adds, the same calls without a short way among them.

    def _adapt(self, key: Any) -> Any:
        """Return the key that the core uses for ``key``."""
        raise NotImplementedError

    def _get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        raise NotImplementedError

    def _add(self, key: Any, value: Any, ttl: Any, tags: Iterable[str]) -> bool:
        raise NotImplementedError

    def _set_many(self, values: Mapping[Any, Any], ttl: Any, *, jitter: bool, tags: Iterable[str]) -> list[Any]:
        raise NotImplementedError

    def _touch(self, key: Any, ttl: Any) -> bool:
        raise NotImplementedError

    def _incr(self, key: Any, delta: Any) -> Any:
        raise NotImplementedError

    def _load(
        self,
        key: Any,
        found: Any,
        loader: Callable[[], Any],
        ttl: Any,
        grace: Any,
        refresh_ahead: Any,
        fail_safe: Any,
        timeout: Any,
        negative_ttl: Any,
        tags: Any,
    ) -> Any:
        raise NotImplementedError

    def _set(self, key: Any, value: Any, ttl: Any, tags: Iterable[str]) -> bool:
        raise NotImplementedError

    def _delete(self, key: Any) -> Any:
        raise NotImplementedError

    def _load_snapshot(self) -> None:
        raise NotImplementedError


def _not_found(key: Any, default: Any) -> Any:
    return default


class PrefixAccess:
    """A hit and a plain ``set`` of a backend: the prefix before the key, the call of the core, and the codec.

    Attributes, which the backend sets:
        _prefix: comes before every key. None if the backend makes each key itself: then there is no short way.
        _loads: what deserializes.
        _encode: what to store for a value.
        _atoms: the types of values that are stored as they are.
        _max_key_length: a key that has more characters, or spaces or control characters, has no short way: the backend
            stores it otherwise. 0 if the backend stores every key as it is.
    """

    _prefix: str | None
    _loads: Callable[[Any], Any]
    _encode: Callable[[Any], Any]
    _atoms: frozenset[object]
    _max_key_length: int
    _find: Callable[[Any, Any], Any] = staticmethod(_not_found)

    def _look_up_in(self, cache: CacheAccess) -> None:
        """Without this, every ``get`` is a miss."""
        self._find = cache._core_find
        self._set_in_cache = cache.set

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        if version is None and self._prefix is not None:
            try:
                find = self._find
                stored = find(f"{self._prefix}{key!s}", MISSING)
            except Unloaded:
                stored = MISSING
            if stored is not MISSING:
                if type(stored) is Serialized:
                    loads = self._loads
                    return loads(stored)
                return stored
        return self._get_missed(key, default, version)

    def _get_at_once(self, key: Any) -> Any:
        """``get`` by the short way alone. MISSING if that finds nothing, which counts no miss."""
        if self._prefix is None:
            return MISSING
        try:
            stored = self._find(f"{self._prefix}{key!s}", MISSING)
        except Unloaded:
            return MISSING
        return self._loads(stored) if type(stored) is Serialized else stored

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        """``get`` of what was not found at once."""
        raise NotImplementedError

    def _set_at_once(self, key: Any, value: Any, ttl: Any) -> bool | None:
        """``set`` of what is usual: whether the value was stored. None if it is not usual: nothing has happened."""
        if (
            type(key) is not str
            or self._prefix is None
            or not (ttl is None or (type(ttl) in SECONDS and 0 < ttl < MAX_FAST_TTL))
        ):
            return None
        cache_key = f"{self._prefix}{key}"
        if self._max_key_length and not is_printable(cache_key, self._max_key_length):
            return None
        store = self._set_in_cache
        return store(cache_key, value if type(value) in self._atoms else self._encode(value), ttl)

    # The calls for which only the compiled core has a short way. None or False: nothing has happened.

    def _add_at_once(self, key: Any, value: Any, ttl: Any) -> bool | None:
        """``add`` of a usual key: whether the value was stored."""
        return None

    def _touch_at_once(self, key: Any, ttl: Any) -> bool | None:
        """``touch`` of a usual key: whether it is there."""
        return None

    def _incr_at_once(self, key: Any, delta: Any) -> Any:
        """``incr`` of a usual key whose value is an int."""
        return None

    def _get_many_at_once(self, keys: Sequence[Any]) -> list[Any] | None:
        """The values of usual keys, in their order; MISSING for each miss."""
        return None

    def _set_many_at_once(self, data: Mapping[Any, Any], ttl: Any) -> bool:
        """``set_many`` of usual keys: whether all values were stored."""
        return False


def is_printable(key: Any, max_length: int) -> bool:
    """Whether a key is a string of at most ``max_length`` characters, without spaces and control characters."""
    return type(key) is str and len(key) <= max_length and key.isprintable() and " " not in key
