"""The protocol of the layers under the adapters of the frameworks: entries in memory, copies of the entries of a store.

An adapter translates the calls of a framework once, to *final* keys and raw values. A final key is the text under which
the entry, the copy and the value in the store are known; a tuple of it if the framework may warn of the key, so that no
copy is kept; or a tuple ``(group, *arguments)`` of a memoized function. Values go down raw and come up encoded: the
store has a serializer of its own, and each caller decodes a copy of its own.

An operation returns its result, or *steps* to it if it may wait for a store or for another caller: ``drive`` and
``drive_async`` take both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import Codec
from wheelcache.engine.writing.write_moments import WritesSince
from wheelcache.transactions.overlay import Fill, Select

NO_GRACES: Final[Mapping[Any, float]] = MappingProxyType({})


class Operations(Protocol):
    """What an adapter calls: on a layer that all callers share, or on ``InTransaction``.

    Each operation returns its result, or steps to it. ``ttl`` is in seconds, None for no expiry; at 0 or less, the
    entry expires immediately. ``tags`` are as the caller spells them, and checked.

    Attributes:
        has_store: whether the entries are in a store.
    """

    has_store: bool

    def get_many(self, keys: list[Any]) -> Any:
        """Return a dict of the encoded values that were found, and note the misses for later writes."""

    def has(self, key: Any) -> Any: ...

    def seconds_left(self, key: Any) -> Any:
        """Return the seconds until the entry expires; None if it never does, 0.0 without an entry."""

    def set(
        self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = (), since: int = 0, grace: float = 0.0
    ) -> Any:
        """Store a value. Return whether it was stored; without a store, if it expires immediately, whether the key
        existed.

        Args:
            since: the moment at which the computation of the value began; 0 if the noted miss of the key shows it.
            grace: the seconds after its TTL for which the value is kept for callers that would wait.
        """

    def add(self, key: Any, value: Any, ttl: float | None, tags: tuple[str, ...] = ()) -> Any:
        """Store a value unless the key exists, without jitter. Return whether it was stored."""

    def replace(self, key: Any, value: Any, ttl: float | None, grace: float = 0.0) -> Any:
        """Store a value if the key exists, whose tags it keeps. Return whether the key existed."""

    def set_many(
        self,
        values: Mapping[Any, Any],
        ttl: float | None,
        tags: tuple[str, ...] = (),
        graces: Mapping[Any, float] = NO_GRACES,
        *,
        is_exact: bool = False,
    ) -> Any:
        """Store values. Return a list of the keys that were not stored.

        Args:
            graces: by key: see ``set``.
            is_exact: whether the TTL has no jitter.
        """

    def touch(self, key: Any, ttl: float | None) -> Any:
        """Give an entry a new TTL, without jitter. Return whether the key exists."""

    def add_to(
        self, key: Any, delta: Any, start: Any = MISSING, ttl: float | None = None, *, or_none: bool = False
    ) -> Any:
        """Add to a number, which keeps its expiry. Return the sum; MISSING if the key is missing and has no ``start``.

        Args:
            start: the value of a missing key, for which the sum is stored with ``ttl``.
            or_none: whether ``start`` is also the value of None.
        """

    def delete(self, key: Any) -> Any:
        """Return whether the key existed."""

    def delete_many(self, keys: list[Any]) -> Any:
        """Return the number of keys that existed, or what the store returns."""

    def delete_tags(self, tags: Iterable[str]) -> Any:
        """Check the tags, and delete every entry with one of them."""

    def delete_pattern(self, select: Select, pattern: str, itersize: int | None = None) -> Any:
        """Delete the keys that ``select`` returns, given known ones, and those that match ``pattern`` in a store.
        Return their number."""

    def clear(self) -> Any: ...


class Layer(Operations, Protocol):
    """A layer that all callers share.

    Attributes:
        cache: the entries, or the copies.
        codec: encodes the values.
        leases: the look-ups that wait for other callers: see ``fill_waits.leased_reads``. None if there are none.
        tag_prefix: the beginning of the names of all tags; empty with a store.
    """

    cache: Cache
    codec: Codec
    leases: Any
    tag_prefix: str

    def names(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Return the names of tags in ``cache``."""

    def fits(self, key: Any, stored: Any) -> bool:
        """Return whether an encoded value alone does not exceed the bound of the entries."""

    def look_up(
        self,
        key: Any,
        wait: float = 0.0,
        may_wait: bool = True,
        grace: float = 0.0,
        *,
        is_sure: bool = False,
    ) -> Any:
        """Return the encoded value, or MISSING.

        Args:
            wait, may_wait, grace: see ``LeasedReads.get``; ``wait`` of 0 for no lease.
            is_sure: whether None must be told from a miss, which takes some stores a second question.
        """

    # For transactions.

    def tags_of(self, key: Any) -> Any:
        """Return the names in ``cache`` of the tags of an entry; none if there is no entry."""

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
