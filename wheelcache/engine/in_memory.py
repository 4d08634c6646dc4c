"""The layer of the entries in memory: see ``engine.layer``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING, STORED
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.keys import callers_tags
from wheelcache.engine.layer import NO_GRACES, Select, Shared
from wheelcache.engine.loading.memoize import Group
from wheelcache.engine.options import expires_now
from wheelcache.engine.write_watcher import WritesSince
from wheelcache.errors import MissingKey, note_key
from wheelcache.runtime.steps import PAUSE, StepsTo

MOST_ADDS: Final = 1000
"""The attempts to begin a counter, between which others have begun and deleted it. A host cache without a file refuses
all of them."""


class InMemory(Shared):
    """Entries of a ``Cache``.

    Args:
        cache: the entries.
        max_weight: the bound of the cache; None for no bound.

    Attributes:
        leases: see ``Layer``.
    """

    has_store = False

    __slots__ = ("_engine", "_max_weight", "_misses", "aload", "cache", "codec", "find", "leases", "load", "tag_prefix")

    def __init__(self, cache: Cache, codec: Codec, max_weight: int | None = None) -> None:
        self.cache, self.codec, self.tag_prefix = cache, codec, ""
        self.leases: Any = None
        self._engine, self._misses, self._max_weight = cache.engine, cache.engine.misses(), max_weight
        loads = cache.engine.loads()
        self.find, self.load, self.aload = cache.find, loads.get, loads.aget

    def fits(self, key: Any, stored: Any) -> bool:
        return self._max_weight is None or self._engine.weigh(key, stored) <= self._max_weight

    def names(self, tags: Iterable[str]) -> tuple[str, ...]:
        prefix = self.tag_prefix
        return tuple([prefix + tag for tag in tags])

    def look_up(
        self, key: Any, wait: float = 0.0, may_wait: bool = True, grace: float = 0.0, *, goes_on: bool = False
    ) -> Any | StepsTo[Any]:
        if wait:
            return self.leases.get(key, wait, may_wait, grace)
        return (self.cache.find if goes_on else self.cache.get)(key, MISSING)

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        self._engine.remove_undecoded(key, stored, error, was_hit=True)

    def get_many(self, keys: list[Any]) -> dict[Any, Any]:
        found = self.cache.get_many(keys)
        if len(found) < len(keys):
            for key in keys:
                if key not in found:
                    self._misses.note(key)
        return found

    def has(self, key: Any) -> bool:
        return key in self.cache

    def seconds_left(self, key: Any) -> float | None:
        try:
            left = self.cache.expires_in(key)
        except MissingKey:
            return 0.0
        return None if left is None else max(left, 0.0)

    def set(
        self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = (), since: int = 0, grace: float = 0.0
    ) -> bool:
        # A value with tags may have begun before its miss, whose computation is counted all the same.
        counted_since = self._counted_since(key)
        if ttl is not None and ttl <= 0:
            return self.cache.delete(key)
        return self._store(key, self._encoded(key, value), ttl, tags, since or counted_since, grace)

    def _store(
        self,
        key: Any,
        stored: Any,
        ttl: float | None,
        tags: tuple[str, ...],
        since: int,
        grace: float,
        *,
        is_exact: bool = False,
    ) -> bool:
        if not (tags or grace or is_exact):
            return self.cache.set(key, stored, ttl)
        store, names = self._engine.set, self.names(tags)
        return bool(store(key, stored, ttl, grace=grace, exact=is_exact, tags=names, since=since) & STORED)

    def _encoded(self, key: Any, value: Any) -> Any:
        try:
            return self.codec.encode(value)
        except Exception as error:
            note_key(error, key)
            raise

    def add(self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = ()) -> bool:
        since = self._counted_since(key)
        if expires_now(ttl):
            if key in self.cache:
                return False
            # An entry that expires immediately only ends a lease on its key.
            self.cache.delete(key)
            return True
        stored = self._encoded(key, value)
        if not tags:
            return self.cache.add(key, stored, ttl)
        return bool(self._engine.add(key, stored, ttl, self.names(tags), since) & STORED)

    def replace(self, key: Any, value: Any, ttl: float | None, grace: float = 0.0) -> bool:
        self._counted_since(key)
        if expires_now(ttl):
            return self.cache.delete(key)
        return self._engine.replace(key, self._encoded(key, value), ttl, grace)

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: float | None,
        tags: tuple[str, ...] = (),
        graces: Mapping[Any, float] = NO_GRACES,
        *,
        is_exact: bool = False,
    ) -> list[Any]:
        stored = {key: self._encoded(key, value) for key, value in values.items()}
        since = {key: self._counted_since(key, len(stored)) for key in stored}
        if expires_now(ttl):
            self.cache.delete_many(stored)
            return []
        if not (tags or graces):
            return self.cache.set_many(stored, ttl, jitter=not is_exact)
        return [
            key
            for key, value in stored.items()
            if not self._store(key, value, ttl, tags, since[key], graces.get(key, 0.0), is_exact=is_exact)
        ]

    def touch(self, key: Any, ttl: float | None) -> bool:
        return self.cache.delete(key) if expires_now(ttl) else self.cache.touch(key, ttl)

    def add_to(
        self, key: Any, delta: Any, start: Any = MISSING, ttl: float | None = None, *, or_none: bool = False
    ) -> Any:
        encode, decode = self.codec.encode, self.codec.decode
        was_removed = False

        def added(stored: Any) -> Any:
            nonlocal was_removed
            try:
                value = decode(stored)
            except NOT_DECODED as error:
                self._engine.remove_undecoded(key, stored, error)
                was_removed = True
                raise MissingKey(key) from error
            return encode((start if value is None and or_none else value) + delta)

        for _ in range(MOST_ADDS):
            try:
                return decode(self.cache.update(key, added))
            except MissingKey:
                if was_removed:
                    # Another caller may have set a new value.
                    was_removed = False
                    continue
                if start is MISSING:
                    return MISSING
                if self.add(key, start + delta, ttl) or not self.fits(key, encode(start + delta)):
                    break
        return start + delta

    def delete(self, key: Any) -> bool:
        return self.cache.delete(key)

    def delete_many(self, keys: list[Any]) -> int:
        return self.cache.delete_many(keys)

    def delete_tags(self, tags: Iterable[str]) -> None:
        self._engine.delete_tags(tags, self.tag_prefix)

    def delete_pattern(self, select: Select, pattern: str = "", itersize: int | None = None) -> StepsTo[int]:
        """Delete the keys that ``select`` returns, given known ones, in batches. Return their number."""
        count = 0
        for deleted in self._engine.deletions(select):
            count += deleted
            yield PAUSE
        return count

    def delete_group(self, group: Group) -> int:
        return group.delete()

    def clear(self) -> None:
        self.cache.clear()

    def tags_of(self, key: Any) -> tuple[str, ...]:
        record = self._engine.peek(key)
        return () if record is None else callers_tags(record.tags)

    def store_committed(
        self,
        key: Any,
        stored: Any,
        ttl: float | None,
        grace: float,
        tags: tuple[str, ...],
        names: tuple[str, ...],
        others: WritesSince,
    ) -> None:
        self._engine.store_committed(key, stored, ttl, grace, names, others)

    def _counted_since(self, key: Any, together: int = 1) -> int:
        """Count the computation that ends with a write of a key, unless it was counted. Return its moment; 0 if it is
        not known."""
        return self._misses.count_computation(key, together) if self._misses.scopes else 0
