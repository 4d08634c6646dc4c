"""The fast paths to a core: ``get``, ``set`` and other calls with usual keys, which ``Cache`` and the backends inherit.

They bind the core's methods once. A hit is one call of the core and a few comparisons. Methods such as ``_set``, which
``Cache`` defines, handle rare cases: a key that is not a string, a listener, a lease, the first use of a process.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wheelcache.core.contract import MISSING, OUTDATED, STORED, Core, Removals
from wheelcache.errors import Unused
from wheelcache.runtime.reusable import check_reusable

R = TypeVar("R")


class _Default(Enum):
    TTL = "the TTL of the cache"

    def __repr__(self) -> str:
        return self.value


DEFAULT_TTL: Final = _Default.TTL
"""The default of ``ttl``: the TTL with which the cache was created."""

TTL = float | None | _Default

NO_TAGS: Final[tuple[str, ...]] = ()

Lifetime = TTL | Callable[[Any], float | None]
"""A TTL, or a function that returns the seconds for which its argument, a loaded value, is kept."""

MAX_FAST_TTL: Final = 1 << 40
"""In seconds. Only longer TTLs need a check, for example for ints that no float can hold."""


SECONDS: Final = (int, float)


class Serialized(bytes):
    """A serialized value, to distinguish it from bytes that a caller has cached."""

    __slots__ = ()


class WriteState:
    """The work around the core after a miss or a write.

    Attributes:
        is_plain: whether a ``set`` or ``delete`` needs nothing but the call of the core, and the calls of watchers.
        is_watched: whether there are watchers that the compiled calls must notify: see ``WriteWatcher``.
        usual_outcome: the outcome of a ``set`` that requires no further work.
        records_misses: whether misses must be reported to ``missed``. False with the system's clock.
    """

    __slots__ = ("is_plain", "is_watched", "usual_outcome")

    is_plain: bool
    is_watched: bool
    usual_outcome: int

    def record_in(self, words: object) -> None:
        """Let the compiled calls record the moments of plain writes in ``words``: see ``WriteMoments``. A later call
        replaces them."""

    if TYPE_CHECKING:
        watchers: tuple[Any, ...]

        @property
        def records_misses(self) -> bool: ...

        def missed(self, key: Any) -> None: ...

        def writing(self, name: Hashable) -> None: ...

        def refused(self, key: Hashable) -> None: ...

        def deleted(self, key: Hashable) -> None: ...

        def announce(self, outcome: int, removed: Removals | None, count: int = 1) -> None: ...


class CacheAccess:
    """The fast paths of ``Cache``: hits, misses and plain writes."""

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
        """Return the value of ``key``, or ``default`` if it is missing or expired."""
        if type(key) is not str and type(key) is not int:
            key = self._adapt(key)
        try:
            find = self._core_find
            value = find(key, MISSING)
        except Unused:
            self._begin_use()
            return self.get(key, default)
        if value is not MISSING:
            return value
        self._core.count_miss(key)
        if self._writes.records_misses:
            self._writes.missed(key)
        return default

    def find(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``, as ``get`` does, but without counting a miss.

        For code that loads a missing value: the load counts the miss.
        """
        if type(key) is not str:
            key = self._adapt(key)
        try:
            find = self._core_find
            value = find(key, MISSING)
        except Unused:
            self._begin_use()
            return self.find(key, default)
        if value is not MISSING:
            return value
        if self._writes.records_misses:
            self._writes.missed(key)
        return default

    def set(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store ``value`` and replace any other value of ``key``. Return whether it was stored.

        It is not stored if it is heavier than ``max_weight``.

        Args:
            ttl: seconds > 0; None means that the entry never expires. The default is the TTL of the cache.
            tags: at most 64 non-empty strings. ``delete_tags`` with any of them removes the entry.

        Raises:
            TypeError: if ``value`` is a coroutine, which is closed, or a generator.
        """
        if ttl is DEFAULT_TTL:
            ttl = self._ttl
        elif type(ttl) is not int or not 0 < ttl < MAX_FAST_TTL:
            return self._set(key, value, ttl, tags)
        writes = self._writes
        if type(key) is not str or not writes.is_plain or tags != ():
            return self._set(key, value, ttl, tags)
        check_reusable(value)
        if writes.watchers:
            writes.writing(key)
        try:
            store = self._core_set
            outcome = store(key, value, ttl)
            if outcome != writes.usual_outcome:
                writes.announce(outcome, None)
                if outcome == OUTDATED:
                    # The core of a host cache has refused it: callers that wait for the value must look again.
                    writes.refused(key)
                return bool(outcome & STORED)
        except Unused:
            self._begin_use()
            return self.set(key, value, ttl)
        return True

    def delete(self, key: Hashable) -> bool:
        """Remove the entry of ``key``. Return whether there was a fresh one."""
        writes = self._writes
        if type(key) is not str or not writes.is_plain:
            return self._delete(key) is not MISSING
        if writes.watchers:
            writes.writing(key)
        try:
            remove = self._core_delete
            was_there = remove(key, MISSING) is not MISSING
        except Unused:
            self._begin_use()
            return self.delete(key)
        if writes.watchers:
            writes.deleted(key)
        return was_there

    def get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """Return a dict with the existing keys among ``keys`` and their values."""
        return self._get_many(keys)

    def add(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL, *, tags: Iterable[str] = NO_TAGS) -> bool:
        """Store ``value`` unless the key exists. Return whether it was stored.

        Jitter does not shorten the TTL, since locks, rate limits and one-time codes depend on it.
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
        """Store many values, as ``set`` does. Return the keys that were not stored.

        Args:
            jitter: False to keep the TTL exactly, as ``add`` does.
            tags: the tags of every entry.
        """
        return self._set_many(values, ttl, jitter=jitter, tags=tags)

    def touch(self, key: Hashable, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry a new TTL, which begins now and is not shortened by jitter. Return False if the key does not
        exist."""
        return self._touch(key, ttl)

    def incr(self, key: Hashable, delta: Any = 1) -> Any:
        """Add ``delta`` to a value, keep its expiry, and return the sum. The call is atomic.

        Raises:
            MissingKey: (a KeyError) if the key does not exist.
            TypeError: if the value and ``delta`` cannot be added.
        """
        return self._incr(key, delta)

    def get_or_load(
        self,
        key: Hashable,
        loader: Callable[..., R],
        ttl: Lifetime = DEFAULT_TTL,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: float | None = None,
        timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = NO_TAGS,
    ) -> R:
        """Return the value of ``key``. If it is missing, call ``loader()``, and store and return its result.

        If many threads and tasks miss a key at the same time, one of them calls its loader, and the others receive the
        value or a copy of the exception. A failed load stores nothing. If the key is set or deleted during the load,
        the callers that are already waiting receive the loaded value, but it is not stored.

        Args:
            loader: the function that computes the value. If it has a parameter ``previous``, it receives the value that
                it replaces, which is fresh or within its grace, or None. It may return ``wheelcache.KEEP`` to renew
                that value.
            ttl: as for ``set``, or a function that receives the value and returns seconds. If it returns None, 0 or
                less, the value is not kept. Its exceptions are treated like those of the loader.
            grace: the seconds after its TTL for which the value may still be returned, while one refresh in the
                background loads a new value. If the refresh fails, the next caller receives the loader's exception.
            refresh_ahead: a fraction of ``ttl``. The first hit after this part of the TTL starts a refresh.
            fail_safe: the seconds after its TTL for which the old value is returned if loading it again fails. The next
                attempt follows after half a second to a second. This pause doubles with each failure, up to a minute.
            timeout: the seconds to wait for a load, which runs in another thread, one of at most 32. After that, the
                caller receives the stale value, if there is one. The load continues, and its result is stored. If the
                system refuses threads, the caller itself loads, without a time limit.
            negative_ttl: the seconds for which to remember that the loader returned None, instead of ``ttl``, and
                without grace.
            tags: as in ``set``. If one of them is dropped during the load, the value is not stored.

        Raises:
            LoadDeadlock: if the loader, directly or through other loaders, loads the same key.
            LoadTimeout: (a TimeoutError) if the timeout has passed and there is no stale value.
        """
        found = self.find(key, MISSING)
        if (
            found is not MISSING
            and (ttl is DEFAULT_TTL or (type(ttl) is int and 0 < ttl < MAX_FAST_TTL))
            and grace is refresh_ahead is fail_safe is timeout is negative_ttl is None
        ):
            return found  # type: ignore[no-any-return]
        policy = self._policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        if found is not MISSING:
            return self._refreshed(key, found, loader, ttl, policy, tags)  # type: ignore[no-any-return]
        # Called here, since loaders may be nested, and every call in between counts towards the limit of recursion.
        return self._load_missed(self._request(key, loader, ttl, policy, tags))  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        # ``Cache`` defines these. Most are the calls above without a fast path.

        def _get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]: ...

        def _add(self, key: Any, value: Any, ttl: Any, tags: Iterable[str]) -> bool: ...

        def _set_many(self, values: Mapping[Any, Any], ttl: Any, *, jitter: bool, tags: Iterable[str]) -> list[Any]: ...

        def _touch(self, key: Any, ttl: Any) -> bool: ...

        def _incr(self, key: Any, delta: Any) -> Any: ...

        def _set(self, key: Any, value: Any, ttl: Any, tags: Iterable[str]) -> bool: ...

        def _delete(self, key: Any) -> Any: ...

        def _begin_use(self) -> None: ...

    # The core's key for a caller's key.
    _adapt: Callable[[Any], Any]

    # The policy of these arguments; a value that was found, and is refreshed if necessary; a load and its value.
    _policy: Callable[..., Any]
    _refreshed: Callable[..., Any]
    _request: Callable[..., Any]
    _load_missed: Callable[[Any], Any]


def _not_found(key: Any, default: Any) -> Any:
    return default


class PrefixAccess:
    """The fast paths of a backend: prefix the key, call the core, and serialize or deserialize the value.

    The backend sets these attributes:
        _prefix: the string that begins every key. None if the backend computes keys itself; then there is no fast path.
        _loads: the function that deserializes a value.
        _encode: the function that returns the stored form of a value.
        _atoms: the types of values that are stored as they are.
        _max_key_length: keys with more characters, spaces or control characters have no fast path, since the backend
            replaces them. 0 if the backend stores every key as it is.
        _overlays: the overlays of open transactions; None if the backend follows no transactions.
        _of_thread: has those of the running thread, in its attribute ``overlays``, where ``get`` looks first.
        _open_transactions: returns those of the running code; None if the backend follows no transactions.
        _immediate: the beginnings of the callers' keys that follow no transaction.
        _chain, _inside, _shared: the first layer, that of an open transaction, and the one that all callers share.
        _scopes_with_misses, _noted: the noted misses, whose scopes these are: see ``NotedMisses``.
        _running_scope: returns the scope of the running code, or None.
        _count_computation: counts the computation that a write of a noted key ends.
    """

    _prefix: str | None
    _loads: Callable[[Any], Any]
    _encode: Callable[[Any], Any]
    _atoms: frozenset[object]
    _max_key_length: int
    _overlays: set[Any] | None = None
    _of_thread: Any = None
    _open_transactions: Callable[[], Any] | None = None
    _immediate: tuple[str, ...] = ()
    _chain: Any = None
    _inside: Any = None
    _shared: Any = None
    _scopes_with_misses: set[int]
    _noted: Any
    _running_scope: Any
    _count_computation: Any
    _find: Callable[[Any, Any], Any] = staticmethod(_not_found)
    _written: CacheAccess | None = None

    def _look_up_in(self, cache: CacheAccess) -> None:
        """Look for values in ``cache`` first. Before this, every ``get`` is a miss."""
        self._find = cache._core_find

    def _write_to(self, cache: CacheAccess | None, waiting: tuple[str, ...] | None) -> None:
        """Let the calls with a fast path act on ``cache`` itself, unless they follow an open transaction; None if they
        have no fast path.

        Args:
            waiting: the beginnings of the keys whose ``get`` may wait after a miss. That of any other key only counts
                and notes the miss. None if each does more.
        """
        self._written = cache

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Return the value of ``key``, or ``default`` if it is missing or expired."""
        if self._overlays and self._of_thread.overlays:
            return self._get_missed(key, default, version)
        if version is None and self._prefix is not None:
            try:
                find = self._find
                stored = find(f"{self._prefix}{key!s}", MISSING)
            except Unused:
                stored = MISSING
            if stored is not MISSING:
                if type(stored) is not Serialized:
                    return stored
                try:
                    loads = self._loads
                    return loads(stored)
                except Exception as error:
                    if not self._undecoded(key, stored, error):
                        raise
        return self._get_missed(key, default, version)

    def _get_at_once(self, key: Any) -> Any:
        """Return the value by the fast path of ``get`` alone; MISSING if this finds no value. No miss is counted."""
        if self._prefix is None or self._overlays:
            return MISSING
        try:
            stored = self._find(f"{self._prefix}{key!s}", MISSING)
        except Unused:
            return MISSING
        try:
            return self._loads(stored) if type(stored) is Serialized else stored
        except Exception as error:
            if not self._undecoded(key, stored, error):
                raise
        return MISSING

    if TYPE_CHECKING:

        def _undecoded(self, key: Any, stored: Any, error: Exception) -> bool:
            """Handle an exception of the deserializer. Return False if it must be raised. Otherwise, the value was
            deleted and does not count as a hit, and the look-up goes on as after a miss."""

        def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
            """Continue a ``get`` for which the fast path found no value."""

    def _layer(self, key: Any = "") -> Any:
        """Return the layer on which a call acts: that of the open transaction, if it follows one, or the shared one.
        Without transactions, it is the first one.

        Args:
            key: the caller's key, if the call has a single one.
        """
        if self._open_transactions is None:
            return self._chain
        return self._inside if self._follows(key) else self._shared

    def _follows(self, key: Any = "") -> bool:
        """Return whether a call follows an open transaction."""
        opened = self._open_transactions
        return opened is not None and bool(opened()) and not str(key).startswith(self._immediate)

    def _set_at_once(self, key: Any, value: Any, ttl: Any) -> bool | None:
        """Store a value if the key and the TTL are usual, and return whether it was stored. Return None, without any
        effect, if they are not."""
        cache_key = None if self._written is None or self._follows(key) else self._usual_key(key)
        if cache_key is None or not (ttl is None or (type(ttl) in SECONDS and 0 < ttl < MAX_FAST_TTL)):
            return None
        if self._scopes_with_misses:
            self._count_computation(cache_key)
        store = self._written.set  # type: ignore[union-attr]
        return store(cache_key, value if type(value) in self._atoms else self._encode(value), ttl)

    def _usual_key(self, key: Any) -> str | None:
        """Return the core's key for a string; None if the key is not stored as it is, or has no prefix."""
        if type(key) is not str or self._prefix is None:
            return None
        cache_key = f"{self._prefix}{key}"
        return cache_key if not self._max_key_length or is_printable(cache_key, self._max_key_length) else None

    # Calls for which only the compiled core has a fast path. If they return None or False, they had no effect.

    def _add_at_once(self, key: Any, value: Any, ttl: Any) -> bool | None:
        """Store a value, as ``add`` does. Return whether it was stored."""
        return None

    def _incr_at_once(self, key: Any, delta: Any) -> Any:
        """Add an int to a value that is an int, as ``incr`` does, and return the sum."""
        return None

    def _get_many_at_once(self, keys: Sequence[Any]) -> list[Any] | None:
        """Return the values of the keys, in their order, with MISSING for each miss."""
        return None

    def _set_many_at_once(self, data: Mapping[Any, Any], ttl: Any) -> bool:
        """Store values, as ``set_many`` does. Return whether all were stored."""
        return False


class VersionedAccess(PrefixAccess):
    """The calls of a backend whose keys have versions, as Django's: each is the core's own, if the key is a plain one
    of the usual version, and no other layer handles writes. Otherwise, it drives the steps of ``_<call>``.

    The backend sets these attributes:
        _own_timeout: the timeout of entries whose caller gives none.
        _default_mark: the framework's argument for that.
    """

    _own_timeout: Any
    _default_mark: Any
    _drive: Any

    def _ttl_of(self, timeout: Any) -> Any:
        return self._own_timeout if timeout is DEFAULT_TTL or timeout is self._default_mark else timeout

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TTL,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool:
        """Store a value unless the key exists. Return whether it was stored."""
        return self._drive(self._add(key, value, timeout, version, tags=tags))  # type: ignore[no-any-return]

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TTL,
        version: int | None = None,
        *,
        nx: bool = False,
        xx: bool = False,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool:
        """Store a value. Return whether it was stored, as django-redis does; if ``timeout`` is 0 or less, whether the
        key existed.

        Args:
            nx: store it only if the key does not exist, as ``add`` does.
            xx: store it only if the key exists. The entry keeps its tags.
            tags: at most 64 non-empty strings. ``delete_tags`` with any of them removes the entry.

        Raises:
            ValueError: if ``xx`` is given with ``nx`` or ``tags``.
        """
        if version is None and tags is NO_TAGS and not (nx or xx):
            is_stored = self._set_at_once(key, value, self._ttl_of(timeout))
            if is_stored is not None:
                return is_stored
        return self._drive(self._set(key, value, timeout, version, nx=nx, xx=xx, tags=tags))  # type: ignore[no-any-return]

    def touch(self, key: Any, timeout: Any = DEFAULT_TTL, version: int | None = None) -> bool:
        """Give an entry a new timeout. Return whether the key exists."""
        return self._drive(self._touch(key, timeout, version))  # type: ignore[no-any-return]

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Delete a key. Return whether it existed."""
        return self._drive(self._delete(key, version))  # type: ignore[no-any-return]

    def incr(self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False) -> int:
        """Add to a number, and return the sum. With ``ignore_key_check``, a missing key is set to ``delta``.

        Raises:
            ValueError: if the key is missing.
        """
        return self._drive(self._incr(key, delta, version, ignore_key_check=ignore_key_check))  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        _add: Callable[..., Any]
        _set: Callable[..., Any]
        _touch: Callable[..., Any]
        _delete: Callable[..., Any]
        _incr: Callable[..., Any]


def is_printable(key: Any, max_length: int) -> bool:
    """Return whether a key is a string of at most ``max_length`` characters, without spaces and control characters."""
    return type(key) is str and len(key) <= max_length and key.isprintable() and " " not in key


def exchange_word(words: memoryview | array[int], index: int, word: int) -> int:
    """Put ``word`` into a buffer of 64-bit words, and return the word that it replaces.

    Only the compiled core does this in one step. Here, a write by another thread may come in between.
    """
    before: int = words[index]
    words[index] = word
    return before
