"""The base class of the backends: the calls of a ``Cache`` that the backends of all frameworks have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core import PrefixAccess
from wheelcache.core.access import NO_TAGS
from wheelcache.core.contract import HIDDEN, MISSING
from wheelcache.engine import options
from wheelcache.engine.codec import ATOMS, NOT_DECODED, Codec
from wheelcache.engine.guests import module_of
from wheelcache.engine.in_memory import InMemory
from wheelcache.engine.layer import Layer
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.policy import LoadPolicy
from wheelcache.engine.loading.request import LoadRequest
from wheelcache.engine.loading.steps import drive
from wheelcache.engine.options import expires_now
from wheelcache.transactions.followed_cache import FollowedCache
from wheelcache.transactions.in_transaction import InTransaction
from wheelcache.transactions.overlay import Fill

NOTHING: Final = object()
"""The default of a look-up that finds nothing."""

ByPrefix = tuple[tuple[str, float], ...]
"""Pairs of a key prefix and the seconds for such keys, the longest prefix first."""


class BackendAccess(PrefixAccess):
    """A base class of backends: stores encoded values, with the timeouts of a framework, under the keys of the cache.

    If a TTL is 0 or less, the entry expires immediately: it is deleted instead of stored. None means no expiry.

    Attributes:
        _cache: the cache of the entries, or of the copies of entries of another cache.
        _misses: the misses that may be followed by a ``set``.
        loading: computes missing values once for all callers.
        _fill_waits: the seconds that a ``get`` waits for another caller to set the key: see ``ByPrefix``.
        _shared: the layer that all share, of the entries or of the copies: see ``engine.layer``.
        has_store: whether there is a store behind.
        _memory: this layer, if it is that of the entries, so that a call may use ``_cache`` directly.
        _in_transaction: the layer of open transactions; None if the calls follow none.
        _immediate: the beginnings of keys that follow no transaction.
        _fill_graces: the seconds after the timeout of a value for which a ``get`` returns it instead of waiting.
    """

    _cache: Cache
    _misses: Misses
    loading: Loads
    _fill_waits: ByPrefix
    _fill_graces: ByPrefix
    _shared: Layer
    has_store: bool
    _memory: InMemory | None = None
    _in_transaction: Any
    _immediate: tuple[str, ...] = ()

    def _use_cache(self, cache: Cache, fill_waits: ByPrefix, fill_graces: ByPrefix = ()) -> None:
        self._cache = cache
        self._fill_waits = fill_waits
        self._fill_graces = fill_graces
        self._misses = cache.engine.misses()
        self.loading = cache.engine.loads()
        self._scopes_with_misses = self._misses.scopes

    def _use_layer(self, layer: Layer, followed: FollowedCache | None = None) -> None:
        """Use a layer for the calls without a fast path.

        Args:
            followed: finds the transactions that the calls follow; None if they follow none.
        """
        self._shared = layer
        self.has_store = layer.has_store
        self._memory = layer if isinstance(layer, InMemory) else None
        if self._fill_waits:
            layer.leases = module_of("fill_waits", "leased_reads").LeasedReads(layer.cache.engine)
        # An attribute of the object: reading one of the class takes 40 ns more.
        self._in_transaction = None if followed is None else InTransaction(layer, followed)
        if followed is not None:
            self._overlays, self._of_thread = followed.overlays, followed.of_thread

    def _layer(self, key: Any = None) -> Any:
        """Return the layer on which a call acts: that of the open transaction, or the one that all share.

        Args:
            key: the caller's key, if the call has a single one.
        """
        inner = self._in_transaction
        return self._shared if inner is None or not inner.is_open() or self._is_immediate(key) else inner

    def _is_immediate(self, key: Any) -> bool:
        return type(key) is str and key.startswith(self._immediate)

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
        return _seconds_of(key, self._fill_waits)

    def _fill_grace(self, key: Any) -> float:
        """Return the seconds after its timeout that the value of ``key`` is kept for callers that would wait."""
        return _seconds_of(key, self._fill_graces) if self._fill_graces and self._fill_wait(key) else 0.0

    def _found_or(self, default: Any, key: Any, cache_key: Any, stored: Any) -> Any:
        """Return the value of an entry that was looked up in the shared layer; ``default`` after a miss."""
        if stored is not MISSING:
            value = self._value_or_miss(cache_key, stored)
            if value is not MISSING:
                return value
        # A caller that passes MISSING goes on, and counts the look-up.
        if default is not MISSING:
            self._misses.note(cache_key)
        if self._in_transaction is not None:
            layer = self._layer(key)
            if layer is not self._shared:
                layer.missed(cache_key)
        return default

    def _get_in_transaction(self, key: Any, default: Any, version: int | None) -> Any:
        if self._is_immediate(key):
            return self._get_shared(key, default, version)
        cache_key, layer = self._key(key, version), self._in_transaction
        found = layer.find(cache_key)
        if type(found) is Fill:
            value = self._value(cache_key, found.value)
            if value is not MISSING:
                return value
        elif found is not HIDDEN:
            # A miss with MISSING is not noted: see ``_found_or``.
            missing = MISSING if default is MISSING else NOTHING
            value = self._get_shared(key, missing, version)
            if value is missing:
                return default
            if not layer.hides(cache_key):
                return value
        self._misses.note(cache_key)
        return default

    # Values that cannot be decoded: see ``codec.NOT_DECODED``.

    def _value(self, cache_key: Any, stored: Any) -> Any:
        """Return the value of a stored object that a look-up has found; MISSING if it was deleted, since it cannot be
        decoded. The look-up then does not count as a hit."""
        try:
            return self._decode(stored)
        except NOT_DECODED as error:
            return self._removed(cache_key, stored, error)

    def _value_or_miss(self, cache_key: Any, stored: Any) -> Any:
        """Do the same for a look-up that ends here, and count and note the miss."""
        value = self._value(cache_key, stored)
        if value is MISSING:
            if self._memory is not None:
                self._misses.count(cache_key)
            self._misses.note(cache_key)
        return value

    def _undecoded(self, key: Any, stored: Any, error: Exception) -> bool:
        if not isinstance(error, NOT_DECODED):
            return False
        self._removed(f"{self._prefix}{key!s}", stored, error)
        return True

    def _removed(self, cache_key: Any, stored: Any, error: Exception) -> Any:
        """Delete a value that cannot be decoded, and return MISSING."""
        layer = self._in_transaction
        if layer is None or not layer.remove_undecoded(cache_key, stored, error):
            # With a store, it is not known whether the look-up has found a copy or has read the value.
            self._cache.engine.remove_undecoded(cache_key, stored, error, was_hit=self._memory is not None)
        return MISSING

    def _key(self, key: Any, version: int | None) -> Any:
        """Return the final key of a caller's key."""
        raise NotImplementedError

    def _note_misses(self, keys: Iterable[Any]) -> None:
        """Note the misses of many keys of the cache."""
        for cache_key in keys:
            self._misses.note(cache_key)

    def _count_computations(self, keys: Collection[Any]) -> None:
        """Count the computations that end with a write of the caller's ``keys``, if these have the usual prefix."""
        if self._scopes_with_misses and self._prefix is not None:
            for key in keys:
                self._misses.count_computation(f"{self._prefix}{key!s}", len(keys))

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
        return self._layer().delete_tags(tags)

    def _tag_names(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Check the tags of an entry, and return the cache's names for them."""
        return () if tags is NO_TAGS else self._shared.names(checked_tags(tags))

    def _request(
        self,
        key: Any,
        cache_key: Any,
        loader: Callable[..., Any],
        ttl: Any,
        policy: LoadPolicy,
        tags: Iterable[str],
        *,
        is_computed: bool = True,
    ) -> LoadRequest:
        """Return the request of a value that was not found, or that must be refreshed.

        Args:
            ttl: seconds, or a function of the value.
            is_computed: see ``LoadRequest``.
        """
        if self._fill_graces:
            policy = policy.with_fill_grace(self._fill_grace(key))
        request = self.loading.request(
            *(cache_key, loader, ttl, policy, () if tags is NO_TAGS else self._tag_names(tags)),
            # Called within the app context of a load in the background, since pickling may need its session.
            encode=self._encode,
            decode=self._decode,
            is_alone=expires_now(ttl),
        )
        if not is_computed:
            request.is_computed = False
        return request

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


def _seconds_of(key: Any, by_prefix: ByPrefix) -> float:
    if by_prefix:
        text = str(key)
        for prefix, seconds in by_prefix:
            if text.startswith(prefix):
                return seconds
    return 0.0
