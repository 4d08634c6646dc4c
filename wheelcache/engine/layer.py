"""The protocol of the layers under the adapters of the frameworks: entries in memory, copies of the entries of a store.

An adapter translates the calls of a framework once, to *final* keys and raw values. A final key is the text under which
the entry, the copy and the value in the store are known; a tuple of it if the framework may warn of the key, so that no
copy is kept; or a tuple ``(group, *arguments)`` of a memoized function. Values go down raw and come up encoded: the
store has a serializer of its own, and each caller decodes a copy of its own.

The layers are a chain: an adapter calls the first one, and a guest's layer, such as that of open transactions, answers
a call itself or passes it on to the layer below. The last one, which all callers share, has the entries or the copies.

An operation returns its result, or *steps* to it if it may wait for a store or for another caller: ``drive`` and
``drive_async`` take both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from wheelcache.cache import Cache
from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import Codec
from wheelcache.engine.loading.memoize import Group
from wheelcache.engine.loading.request import LoadRequest
from wheelcache.engine.write_watcher import WritesSince

NO_GRACES: Final[Mapping[Any, float]] = MappingProxyType({})
"""No grace for any key, for a write of several."""

Select = Callable[[list[Any]], list[Any]]
"""Returns the keys that match a pattern."""


class Layer(Protocol):
    """A link of the chain under an adapter.

    Each operation returns its result, or steps to it. ``ttl`` is in seconds, None for no expiry; at 0 or less, the
    entry expires immediately. ``tags`` are as the caller spells them, and checked.

    Attributes:
        has_store: whether the entries are in a store.
    """

    has_store: bool

    def shares(self) -> bool:
        """Return whether the values of the running code are those of all."""

    def find(self, key: Any, default: Any) -> Any:
        """Return the encoded value in memory, or ``default``. The caller counts a miss."""

    def look_up(
        self, key: Any, wait: float = 0.0, may_wait: bool = True, grace: float = 0.0, *, goes_on: bool = False
    ) -> Any:
        """Return the encoded value, or MISSING, which is counted.

        Args:
            wait, may_wait, grace: see ``LeasedReads.get``; ``wait`` of 0 for no lease.
            goes_on: whether the caller computes a missing value, and counts the miss. It must be sure that a None is no
                miss, which takes some stores a second question.
        """

    def load(self, request: LoadRequest, found: Any = MISSING) -> Any:
        """Return the value of a request after a ``find`` that has found nothing, or ``found``: see ``Loads.get``."""

    async def aload(self, request: LoadRequest, found: Any = MISSING) -> Any: ...

    def remove_undecoded(self, key: Any, stored: Any, error: Exception) -> None:
        """Delete a value that was found and cannot be decoded. The look-up does not count as a hit."""

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

    def delete_group(self, group: Group) -> int:
        """Delete the values of a memoized function. Return the number of those in memory."""

    def clear(self) -> Any: ...

    def seen(self, keys: Iterable[Any]) -> Iterable[Any]:
        """Return those of the existing ``keys`` that the running code sees."""

    def own_keys(self) -> Iterable[Any]:
        """Return the other keys that the running code sees."""

    def hides(self, key: Any) -> bool:
        """Return whether the running code has deleted ``key``, which others still see."""


class Shared:
    """Some answers of a layer that all callers share: nobody sees anything else there."""

    __slots__ = ()

    def shares(self) -> bool:
        return True

    def seen(self, keys: Iterable[Any]) -> Iterable[Any]:
        return keys

    def own_keys(self) -> Iterable[Any]:
        return ()

    def hides(self, key: Any) -> bool:
        return False


class SharedLayer(Layer, Protocol):
    """The last layer, which all callers share.

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

    # For transactions.

    def tags_of(self, key: Any) -> Any:
        """Return the names in ``cache`` of the tags of an entry; none if there is no entry."""

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
        """Share a value of a transaction that was committed, unless it is outdated: see ``Engine.store_committed``.

        Args:
            stored: the encoded value.
            names: the names in ``cache`` of ``tags``.
        """


Above = Callable[[SharedLayer], Any]
"""Makes the layer of a guest above the shared one."""
