"""The calls on a ``Cache`` that the backends of all frameworks make in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wheelcache.cache import Cache
from wheelcache.codec import ATOMS, Codec
from wheelcache.core import PrefixAccess
from wheelcache.core.contract import MISSING


class BackendAccess(PrefixAccess):
    """A base class of backends: encoded values with the timeouts of a framework, under the keys of the cache.

    A TTL in seconds is over immediately if it is 0 or less: then the entry is deleted instead of stored. None means
    never.

    Attributes:
        _cache: the entries, or the copies of the entries of another cache.
        _fill_waits: pairs of a key prefix and how long a ``get`` waits for another caller to set such a key, in
            seconds; the longest prefix first.
    """

    _cache: Cache
    _fill_waits: tuple[tuple[str, float], ...]

    def _use_cache(self, cache: Cache, fill_waits: tuple[tuple[str, float], ...]) -> None:
        self._cache = cache
        self._fill_waits = fill_waits
        self._fill_times = cache.parts.fill_times
        self._missed_at = cache.parts.fill_times.missed_at

    def _use_codec(self, codec: Codec, *, keeps_atoms: bool) -> None:
        """
        Args:
            keeps_atoms: whether immutable values are stored as they are.
        """
        self._codec = codec
        self._loads, self._encode, self._decode = codec.loads, codec.encode, codec.decode
        self._atoms = ATOMS if keeps_atoms else frozenset()

    def _fill_wait(self, key: Any) -> float:
        """Return the seconds that a ``get`` waits for another caller to set ``key``."""
        if self._fill_waits:
            text = str(key)
            for prefix, wait in self._fill_waits:
                if text.startswith(prefix):
                    return wait
        return 0.0

    def _found_or(self, default: Any, cache_key: Any, stored: Any) -> Any:
        """Return the value of an entry that was looked up; ``default`` after a miss."""
        if stored is MISSING:
            self._fill_times.missed(cache_key)
            return default
        return self._decode(stored)

    def _store(self, cache_key: Any, stored: Any, ttl: float | None) -> bool:
        if _is_over(ttl):
            self._cache.delete(cache_key)
            return True
        self._make_room((cache_key,))
        return self._cache.set(cache_key, stored, ttl)

    def _add_new(self, cache_key: Any, stored: Any, ttl: float | None) -> bool:
        if _is_over(ttl):
            if cache_key in self._cache:
                return False
            # The entry comes and goes immediately, and with it a lease.
            self._cache.delete(cache_key)
            return True
        self._make_room((cache_key,))
        return self._cache.add(cache_key, stored, ttl)

    def _store_many(self, stored: Mapping[Any, Any], ttl: float | None, *, jitter: bool = True) -> list[Any]:
        """Store many entries. Return the keys of the cache that were not stored."""
        if _is_over(ttl):
            self._cache.delete_many(stored)
            return []
        self._make_room(stored)
        return self._cache.set_many(stored, ttl, jitter=jitter)

    def _make_room(self, keys: Iterable[Any]) -> None:
        """Called before entries are stored under ``keys``. A cache makes room by itself, one by one."""

    def _for_waiters(self, value: Any, ttl: float | None, is_stored: bool = True) -> Any:
        """Return the encoded value for the callers that wait for a lease; MISSING if there is none for them."""
        if not is_stored or not self._fill_waits or _is_over(ttl):
            return MISSING
        return self._encode(value)


def _is_over(ttl: float | None) -> bool:
    return ttl is not None and ttl <= 0
