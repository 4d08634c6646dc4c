"""Chooses the source of invalidations for the copies of one process."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule


class TrustEpoch:
    """Stamps with a single slot, which contains the number of the present epoch. An entry is current during its epoch.

    An epoch lasts as long as all writes are reported to this process. Its end makes all entries suspect in one step:
    they may be old, and reads miss them. They stay in memory until they are replaced, deleted or expire, for callers
    that cannot get another value. A value that is stored after the end of the epoch in which it was read is suspect as
    well.

    Attributes:
        table: the number of the epoch, as the only slot.
        invalidations: unused, since the end of an epoch does not mean that a key was written.
        first: None, for the same reason.
        tags: None, since tags are dropped in this process only.
        is_notified: whether writes are reported to this process. Entries that are stored while it is False are suspect.
    """

    __slots__ = ("_number", "invalidations", "is_notified", "table")

    first: Final = None
    tags: Final = None

    def __init__(self) -> None:
        self._number = array("Q", [1])
        self.table = memoryview(self._number)
        self.invalidations = memoryview(array("Q", [0]))
        self.is_notified = True

    def open(self) -> None:
        """Do nothing: there is no file to open."""

    def open_in_child(self) -> None:
        """Make all inherited entries suspect, in the child of a fork."""
        self.write_all()

    def is_gone(self) -> bool:
        return False

    def slot(self, key: object) -> int:
        return 0

    def write_all(self) -> None:
        """End the epoch, without a lock."""
        self._number[0] += 1


class Invalidations:
    """The source of invalidations: the stamps of this machine, a Redis or Valkey that is the store, or none.

    Args:
        store: the cache behind the copies.
        prefix: the prefix of all keys on the server; empty for every key.
        shared: the stamps of this machine, if the copies use them.

    Attributes:
        stamps: the stamps for the cache of the copies; None if nothing reports writes.
    """

    __slots__ = ("_epoch", "_rule", "_tracking", "stamps")

    def __init__(self, store: Any, prefix: str, shared: Stamps | None) -> None:
        self._tracking = None if shared is not None else _tracking(store, prefix)
        self._rule = OutageRule(store)
        self._epoch = None if self._tracking is None else TrustEpoch()
        self.stamps = self._epoch if shared is None else shared

    @property
    def is_notified(self) -> bool:
        """Whether this process receives reports of the writes of other processes."""
        return self.stamps is not None

    def near_cache(self, copies: Cache, checked: Mapping[str, Any]) -> NearCache:
        """Return a near cache that keeps its copies in ``copies``, a cache with these ``stamps``.

        Args:
            checked: the options of a TieredCache, by their names in ``option_table``.
        """
        near_cache = NearCache(
            copies,
            checked["l1_timeout"],
            self._rule,
            epoch=self._epoch,
            fail_safe=checked["fail_safe"],
            grace=checked["grace"],
            fill_grace=max((seconds for _, seconds in checked["fill_grace"]), default=0.0),
            drop_writes=checked["writes_without_l2"] == "drop",
        )
        if self._tracking is not None:
            tracking = self._tracking(near_cache)
            near_cache.start_tracking, near_cache.stop_tracking = tracking.start, tracking.stop
        return near_cache


def _tracking(store: Any, prefix: str) -> Callable[[NearCache], Any] | None:
    """Return a function that makes the tracking connection to a Redis or Valkey.

    None if ``store`` is neither, or reads from replicas: a replica may still have the old value after the primary has
    reported the write.
    """
    try:
        from wheelcache.near_cache.redis_tracking import Tracking, client_of, connect_like
    except ImportError:
        return None
    try:
        client = client_of(store)
    except TypeError:
        return None
    if _reads_from_replicas(store, client):
        return None
    return lambda near_cache: Tracking(connect_like(client), prefix.encode(), near_cache)


def _reads_from_replicas(store: Any, client: Any) -> bool:
    """Return whether a cache over Redis has another client for reads, or several servers and writes to the first."""
    if getattr(store, "_read_client", client) is not client:
        return True
    servers: Any = getattr(store, "_servers", None) or getattr(getattr(store, "client", None), "_server", ())
    return not isinstance(servers, str) and len(servers) > 1
