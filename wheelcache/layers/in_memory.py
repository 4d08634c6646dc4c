"""The layer of the entries in memory: see ``layers``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.codec import Codec
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.contract import ABSENT, MISSING, STORED
from wheelcache.errors import MissingKey
from wheelcache.loading.steps import StepsTo
from wheelcache.options import expires_now
from wheelcache.transactions.overlay import Fill

NO_GRACES: Final[Mapping[Any, float]] = MappingProxyType({})

MakeRoom = Callable[[Iterable[Any]], object]
"""Called with the keys that are about to be stored."""


class InMemory:
    """Entries of a ``Cache``.

    A TTL of None means no expiry. If it is 0 or less, the entry expires immediately: it is deleted.

    Args:
        cache: the entries.
        max_weight: the bound of the cache; None for no bound.
        make_room: drops entries of a full cache; None if the cache evicts one by one.

    Attributes:
        cache: see above.
        codec: encodes the values.
        tag_prefix: the beginning of the names of all tags.
    """

    has_store = False

    __slots__ = ("_engine", "_make_room", "_max_weight", "_misses", "cache", "codec", "tag_prefix")

    def __init__(
        self, cache: Cache, codec: Codec, max_weight: int | None = None, make_room: MakeRoom | None = None
    ) -> None:
        self.cache = cache
        self.codec = codec
        self.tag_prefix = ""
        self._engine = cache.engine
        self._misses = cache.engine.misses()
        self._max_weight = max_weight
        self._make_room = make_room

    def fits(self, key: Any, stored: Any) -> bool:
        """Return whether an encoded value alone does not exceed the bound."""
        return self._max_weight is None or self._engine.weigh(key, stored) <= self._max_weight

    def names(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Return the names of tags in the cache."""
        prefix = self.tag_prefix
        return tuple([prefix + tag for tag in tags])

    def look_up(
        self,
        key: Any,
        wait: float = 0.0,
        may_wait: bool = True,
        grace: float = 0.0,
        leader: Any = None,
        *,
        is_sure: bool = False,
    ) -> Any | StepsTo[Any]:
        """Return the encoded value, or MISSING.

        Args:
            wait, may_wait, grace, leader: see ``Engine.look_up_leased``; ``wait`` of 0 for no lease.
            is_sure: whether None must be told from a miss, which takes some stores a second question.
        """
        if wait:
            return self._engine.look_up_leased(key, wait, may_wait, grace, leader)
        return self.cache.get(key, MISSING)

    def get_many(self, keys: list[Any]) -> dict[Any, Any]:
        """Return the encoded values of the keys that were found, and note the misses for later writes."""
        found = self.cache.get_many(keys)
        if len(found) < len(keys) and not self._engine.reports_writes:
            for key in keys:
                if key not in found:
                    self._misses.note(key)
        return found

    def has(self, key: Any) -> bool:
        return key in self.cache

    def seconds_left(self, key: Any) -> float | None:
        """Return the seconds until the entry expires; None if it never does, 0.0 without an entry."""
        try:
            left = self.cache.expires_in(key)
        except MissingKey:
            return 0.0
        return None if left is None else max(left, 0.0)

    def set(
        self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = (), since: int = 0, grace: float = 0.0
    ) -> bool:
        """Store a value. Return whether it was stored; if it expires immediately, whether the key existed.

        Args:
            tags: as the caller spells them.
            since: the moment at which the computation of the value began; 0 if the noted miss of the key shows it.
            grace: the seconds after its TTL for which the value is kept for callers that would wait.
        """
        since = since or self._counted_since(key)
        if ttl is not None and ttl <= 0:
            return self.cache.delete(key)
        return self._store(key, self.codec.encode(value), ttl, self.names(tags) if tags else (), since, grace)

    def _store(
        self,
        key: Any,
        stored: Any,
        ttl: float | None,
        names: tuple[str, ...],
        since: int,
        grace: float,
        *,
        is_exact: bool = False,
    ) -> bool:
        if self._make_room is not None:
            self._make_room((key,))
        store = self._engine.set
        return bool(store(key, stored, ttl, grace=grace, exact=is_exact, tags=names, since=since) & STORED)

    def encode_with_room(self, key: Any, value: Any) -> Any:
        """Return the encoded value of a load, for which there is room now."""
        stored = self.codec.encode(value)
        if self._make_room is not None:
            self._make_room((key,))
        return stored

    def add(self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = ()) -> bool:
        """Store a value unless the key exists, in one step and without jitter. Return whether it was stored."""
        since = self._counted_since(key)
        if expires_now(ttl):
            if key in self.cache:
                return False
            # An entry that expires immediately only ends a lease on its key.
            self.cache.delete(key)
            return True
        stored = self.codec.encode(value)
        if self._make_room is not None:
            self._make_room((key,))
        if not tags:
            return self.cache.add(key, stored, ttl)
        store = self._engine.set
        return bool(store(key, stored, ttl, exact=True, mode=ABSENT, tags=self.names(tags), since=since) & STORED)

    def replace(self, key: Any, value: Any, ttl: float | None, grace: float = 0.0) -> bool:
        """Store a value if the key exists, whose tags it keeps. Return whether the key existed."""
        self._counted_since(key)
        if expires_now(ttl):
            return self.cache.delete(key)
        return self._engine.replace(key, self.codec.encode(value), ttl, grace)

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: float | None,
        tags: tuple[str, ...] = (),
        graces: Mapping[Any, float] = NO_GRACES,
        *,
        is_exact: bool = False,
    ) -> list[Any]:
        """Store values. Return the keys that were not stored.

        Args:
            graces: by key: see ``set``.
            is_exact: whether the TTL has no jitter.
        """
        stored = {key: self.codec.encode(value) for key, value in values.items()}
        since = {key: self._counted_since(key, len(stored)) for key in stored}
        if expires_now(ttl):
            self.cache.delete_many(stored)
            return []
        if self._make_room is not None:
            self._make_room(stored)
        if not (tags or graces):
            return self.cache.set_many(stored, ttl, jitter=not is_exact)
        names = self.names(tags)
        return [
            key
            for key, value in stored.items()
            if not self._store(key, value, ttl, names, since[key], graces.get(key, 0.0), is_exact=is_exact)
        ]

    def touch(self, key: Any, ttl: float | None) -> bool:
        """Give an entry a new TTL, without jitter. Return whether the key exists."""
        return self.cache.delete(key) if expires_now(ttl) else self.cache.touch(key, ttl)

    def add_to(self, key: Any, delta: Any, start: Any = MISSING, ttl: float | None = None) -> Any:
        """Add to a number, which keeps its expiry. Return the sum; MISSING if the key is missing and has no ``start``.

        Args:
            start: the value of a missing key or of None. For a missing key, the sum is stored with ``ttl``.
        """
        encode, decode = self.codec.encode, self.codec.decode

        def added(stored: Any) -> Any:
            value = decode(stored)
            return encode((start if value is None and start is not MISSING else value) + delta)

        while True:
            try:
                return decode(self.cache.update(key, added))
            except MissingKey:
                if start is MISSING:
                    return MISSING
                total = start + delta
                if self.add(key, total, ttl) or not self.fits(key, encode(total)):
                    return total

    def delete(self, key: Any) -> bool:
        """Return whether the key existed."""
        return self.cache.delete(key)

    def delete_many(self, keys: list[Any]) -> int:
        """Return the number of keys that existed."""
        return self.cache.delete_many(keys)

    def delete_tags(self, tags: Iterable[str]) -> None:
        self._engine.delete_tags(tags, self.tag_prefix)

    def delete_pattern(
        self, select: Callable[[list[Any]], list[Any]], pattern: str = "", itersize: int | None = None
    ) -> int:
        """Delete the keys that ``select`` returns, given known ones. Return their number."""
        return sum(self.deletions(select))

    def deletions(self, select: Callable[[list[Any]], list[Any]]) -> Iterator[int]:
        """Do the same in batches. Yield the number of each."""
        yield from self._engine.deletions(select)
        if self._engine.reports_writes:
            # Other processes may have keys that this process does not know.
            self.cache.clear()

    def clear(self) -> None:
        self.cache.clear()

    def store_committed(
        self,
        key: Any,
        fill: Fill,
        ttl: float | None,
        grace: float,
        tags: tuple[str, ...],
        others: WritesSince,
    ) -> None:
        """Share a value of a transaction that was committed, unless it is outdated: see ``Engine.store_committed``."""
        if self._make_room is not None:
            self._make_room((key,))
        self._engine.store_committed(key, fill.value, ttl, grace, fill.tags, others)

    def _counted_since(self, key: Any, together: int = 1) -> int:
        """Count the computation that ends with a write of a key, unless it was counted. Return its moment; 0 if it is
        not known."""
        return self._misses.count_computation(key, together) if self._misses.scopes else 0
