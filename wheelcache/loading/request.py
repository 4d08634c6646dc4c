"""The two ends of a load: the caller's request, and the part of the cache that stores the value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from wheelcache.core.access import TTL
from wheelcache.core.contract import Removals, TagName, Watch
from wheelcache.loading.policy import PLAIN, LoadPolicy
from wheelcache.loading.steps import Loader

Stored = tuple[int, Removals | None]
"""The outcome of ``core.set``, and the entries that it removed."""


@dataclass(slots=True, eq=False)
class LoadRequest:
    """One look-up that missed, or one refresh.

    Attributes:
        key: the key in the core.
        caller_key: the key as the caller wrote it.
        watched: the key in the core whose writes outdate the value; usually ``key``.
        loader: called without arguments. In a coroutine, an awaitable result is awaited.
        ttl: the seconds for which the value is fresh; None for no expiry.
        names: the tags of the entry, by their names in the core.
        fresh_until: the end of the freshness of the entry that is refreshed.
        is_counted: whether the look-up has ended, as a hit or a miss.
        cause: why the look-up missed: see ``Core.miss_cause``.
        is_hit: whether the look-up was a hit: the value was found after its key was claimed, or a stale value was
            served.
        leaves_miss: whether the caller counts the miss if the load returns MISSING.
        is_computed: whether the value is computed, which counts as a load, and not found, or given by the caller.
        given_up: whether the caller's timeout has passed.
        may_wait: whether the caller may wait for other loads of the key.
        started: the time on the cache's clock at which its own load began.
        contexts: entered around the load if it runs in the background: see ``background.made_for_load``.
    """

    key: Any
    caller_key: Hashable
    watched: Any
    loader: Loader
    ttl: float | None
    policy: LoadPolicy = PLAIN
    names: tuple[TagName, ...] = ()
    fresh_until: float = inf
    is_counted: bool = False
    cause: int = 0
    is_hit: bool = False
    leaves_miss: bool = False
    is_computed: bool = True
    given_up: bool = False
    may_wait: bool = True
    started: float = 0.0
    contexts: Sequence[AbstractContextManager[Any]] = ()


@dataclass(frozen=True, slots=True)
class Unstored:
    """The result of a loader that only passes a value on: the leader and every waiter receive ``value``, and nothing is
    stored.

    Attributes:
        is_computed: False if the loader has found the value instead of computing it, so that it counts as no load.
    """

    value: Any
    is_computed: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a loader that chooses the lifetime: ``value`` is fresh for ``ttl`` seconds, None for forever. With
    0.0 it is not stored, and an older value does not outlive it."""

    value: Any
    ttl: float | None


@dataclass(frozen=True, slots=True)
class Tagged:
    """The result of a loader that learned the tags of its value: ``value`` is stored with these tags of the caller."""

    value: Any
    tags: tuple[str, ...]


def untagged(value: Any) -> Any:
    """Return ``value``, or its value if it is Tagged."""
    return value.value if type(value) is Tagged else value


class Target(Protocol):
    """The services that loading needs from its cache, in addition to the core."""

    @property
    def name(self) -> str:
        """The name of the cache, for logs."""

    def adapt_and_pop_miss(self, key: Any) -> tuple[Any, object]:
        """Return the core's key for a caller's key. Forget its miss, so that no later ``set`` is a fill."""

    def seconds(self, ttl: TTL) -> float | None:
        """Return a caller's TTL in seconds; None for no expiry. Raise TypeError or ValueError if it is invalid."""

    def tag_names(self, key: Any, tags: tuple[str, ...]) -> tuple[TagName, ...]:
        """Return the core's names for the tags of an entry: for the caller's tags, and for the group of ``key``."""

    def store(
        self, key: Any, value: Any, ttl: float | None, grace: float, watch: Watch, names: tuple[TagName, ...]
    ) -> Stored:
        """Weigh the value and call ``core.set`` with ``watch`` and its stamps. Raise the weigher's error."""

    def announce(self, outcome: int, removed: Removals | None) -> None:
        """Notify the listener and the leases, wake the wheel, evict more. Called when no caller waits, since a
        listener may look up the key that was loaded."""

    def discard(self, key: Any) -> None:
        """Remove an entry that is stale or not current, and notify the listener."""

    def delete(self, key: Any) -> object:
        """Remove an entry, and notify the listener and the other processes."""
