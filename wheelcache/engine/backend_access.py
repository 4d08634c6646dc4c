"""The base class of the backends: the calls of a ``Cache`` that the backends of all frameworks have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core import PrefixAccess
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import MISSING
from wheelcache.engine import options
from wheelcache.engine.codec import ATOMS, NOT_DECODED, Codec
from wheelcache.engine.guests import module_of
from wheelcache.engine.in_memory import InMemory
from wheelcache.engine.layer import Above, Layer, SharedLayer
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.request import LoadPolicy
from wheelcache.engine.options import expires_now
from wheelcache.runtime.request_scope import running_scope
from wheelcache.runtime.steps import drive

NOTHING: Final = object()
"""The default of a look-up that finds nothing."""

ByPrefix = tuple[tuple[str, float], ...]
"""Pairs of a key prefix and the seconds for such keys, the longest prefix first."""


class BackendAccess(PrefixAccess):
    """A base class of backends: stores encoded values, with the timeouts of a framework, under the keys of the cache.

    If a TTL is 0 or less, the entry expires immediately: it is deleted instead of stored. None means no expiry.

    Attributes:
        _cache: the cache of the entries, or of the copies of entries of another cache.
        _chain, _shared: the first and the last layer: see ``engine.layer``, and ``_layer`` for the choice.
        has_store: whether there is a store behind.
        loading: computes missing values once for all callers.
        _misses: the misses that may be followed by a ``set``.
        _fill_waits: the seconds that a ``get`` waits for another caller to set the key: see ``ByPrefix``.
        _waiting: the prefixes of keys whose ``get`` waits.
        _graces: the seconds after the timeout of a value for which a ``get`` returns it instead of waiting.
    """

    _cache: Cache
    _chain: Layer
    _shared: Any
    has_store: bool
    loading: Loads
    _misses: Misses
    _fill_waits: ByPrefix
    _waiting: tuple[str, ...]
    _graces: ByPrefix
    _drive = staticmethod(drive)

    def _use_cache(self, cache: Cache, fill_waits: ByPrefix, graces: ByPrefix = ()) -> None:
        self._cache = cache
        self._fill_waits = fill_waits
        self._waiting = tuple([prefix for prefix, seconds in fill_waits if seconds])
        self._graces = graces
        self._misses = misses = cache.engine.misses()
        self.loading = cache.engine.loads()
        self._scopes_with_misses, self._noted, self._running_scope = misses.scopes, misses.noted, running_scope
        self._count_computation = misses.count_computation

    def _use_layers(self, shared: SharedLayer, above: Above | None) -> None:
        """Choose the calls: those of the core itself, if all callers share its entries, or those of the first layer.

        Args:
            above: makes the layer of a guest; None if there is none.
        """
        self._shared, self.has_store = shared, shared.has_store
        if self._fill_waits:
            shared.leases = module_of("fill_waits", "leased_reads").LeasedReads(shared.cache.engine)
        self._chain = chain = shared if above is None else above(shared)
        # Only open transactions have values that others do not see.
        self._overlays, self._of_thread = getattr(chain, "overlays", None), getattr(chain, "of_thread", None)
        self._open_transactions = getattr(chain, "open_transactions", None)
        self._immediate, self._inside = getattr(chain, "immediate", ()), getattr(chain, "inside", None)
        is_plain = isinstance(shared, InMemory) and not self._graces
        self._write_to(self._cache if is_plain else None, self._waiting if is_plain else None)

    def _layer_of_all(self, keys: Iterable[Any], cache_keys: Iterable[Any]) -> Any:
        """Return the layer on which a call for several keys acts: the callers' ``keys``, and the final ones."""
        layer = self._layer()
        if layer is self._shared:
            return layer
        apart = [final for key, final in zip(keys, cache_keys, strict=True) if self._layer(key) is self._shared]
        return layer.apart(apart) if apart else layer

    def _use_codec(self, codec: Codec, *, keeps_atoms: bool) -> None:
        """Encode values with ``codec``.

        Args:
            keeps_atoms: whether immutable values are stored as they are.
        """
        self._codec = codec
        self._loads, self._encode, self._decode = codec.loads, codec.encode, codec.decode
        self._atoms = ATOMS if keeps_atoms else frozenset()

    def _fill_wait(self, key: Any) -> float:
        """Return the seconds that a ``get`` waits for another caller to set ``key``."""
        text = str(key)
        return _seconds_of(text, self._fill_waits) if text.startswith(self._waiting) else 0.0

    def _grace(self, key: Any) -> float:
        """Return the seconds after its timeout that the value of ``key`` is kept for callers that would wait."""
        return _seconds_of(str(key), self._graces) if self._graces and self._fill_wait(key) else 0.0

    def _found_or(self, default: Any, cache_key: Any, stored: Any) -> Any:
        """Return the value of an entry that was looked up; ``default`` after a miss."""
        if stored is not MISSING:
            value = self._value(cache_key, stored)
            if value is not MISSING:
                return value
            if not self.has_store:
                self._misses.count(cache_key)
        # A caller that passes MISSING goes on, and counts the look-up.
        if default is not MISSING:
            self._misses.note(cache_key)
        return default

    # Values that cannot be decoded: see ``codec.NOT_DECODED``.

    def _value(self, cache_key: Any, stored: Any) -> Any:
        """Return the value of a stored object that a look-up has found; MISSING if it was deleted, since it cannot be
        decoded. The look-up then does not count as a hit."""
        try:
            return self._decode(stored)
        except NOT_DECODED as error:
            self._chain.remove_undecoded(cache_key, stored, error)
        return MISSING

    def _undecoded(self, key: Any, stored: Any, error: Exception) -> bool:
        if not isinstance(error, NOT_DECODED):
            return False
        self._chain.remove_undecoded(f"{self._prefix}{key!s}", stored, error)
        return True

    def _key(self, key: Any, version: int | None) -> Any:
        """Return the final key of a caller's key."""
        raise NotImplementedError

    def delete_tags(self, *tags: str) -> None:
        """Delete every entry that was stored with one of the tags and has the key prefix of this object, in O(1) per
        tag.

        The entries of a tag disappear in one step. A value that is
        being computed at that time will not be stored by ``get_or_set``, ``get_or_load`` or the decorators, nor by a
        ``set`` or ``add`` within 60 seconds of a ``get`` by the same thread or task. Within a second, the wheel thread
        begins to free the memory.

        Raises:
            TypeError, ValueError: if a tag is not a string, or is empty.
        """
        drive(self._delete_tags(*tags))

    def _delete_tags(self, *tags: str) -> Any:
        return self._chain.delete_tags(tags)

    def _tag_names(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Check the tags of an entry, and return the cache's names for them."""
        return () if tags is NO_TAGS else self._shared.names(checked_tags(tags))

    def _needs_refresh(self, cache_key: Any, stored: Any, ttl: Any, policy: LoadPolicy) -> bool:
        """Return whether a value that was found must be loaded again."""
        return not (policy.refresh_ahead is None or expires_now(ttl)) and self.loading.needs_refresh(
            cache_key, stored, ttl, policy
        )


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of an entry.

    Raises:
        TypeError, ValueError: if they are no valid tags.
    """
    return NO_TAGS if tags is NO_TAGS else options.tags("tags", tags)


def _seconds_of(key: str, by_prefix: ByPrefix) -> float:
    return next((seconds for prefix, seconds in by_prefix if key.startswith(prefix)), 0.0)
