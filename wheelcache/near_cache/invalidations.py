"""Chooses the source of invalidations for the copies of one process."""

from __future__ import annotations

import encodings.idna  # noqa: F401
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from wheelcache.cache import Cache
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.trust_epoch import TrustEpoch

# Not at the first use: the child of a fork that happens during an import waits for its lock forever. ``getaddrinfo``
# imports the codec for the name of a server.
try:
    from wheelcache.near_cache import cluster_tracking, redis_tracking, sentinels
except ImportError:
    redis_tracking = None  # type: ignore[assignment]


class Invalidations:
    """The source of invalidations: a Redis or Valkey that is the store, or none.

    Args:
        store: the cache behind the copies.
        prefix: the prefix of all keys on the server; empty for every key.

    Attributes:
        is_notified: whether this process receives reports of the writes of other processes.
        trust: the trust in the copies, for their cache; None if nothing reports writes.
    """

    __slots__ = ("_epoch", "_rule", "_tracking", "is_notified", "trust")

    def __init__(self, store: Any, prefix: str) -> None:
        self._tracking = _tracking(store, prefix)
        self._rule = OutageRule(store)
        self._epoch = None if self._tracking is None else TrustEpoch()
        self.is_notified = self._epoch is not None
        self.trust: array[int] | None = None if self._epoch is None else self._epoch.word

    def near_cache(self, copies: Cache, checked: Mapping[str, Any]) -> NearCache:
        """Return a near cache that keeps its copies in ``copies``, a cache with this ``trust``.

        Args:
            checked: the options of a TieredCache, by their names in ``option_table``.
        """
        near_cache = NearCache(
            copies,
            checked["l1_timeout"],
            self._rule,
            epoch=self._epoch,
            fail_safe=checked["fail_safe"],
        )
        near_cache.marks_commits = bool(checked.get("transactions"))
        if self._tracking is not None:
            tracking = self._tracking(near_cache)
            near_cache.start_tracking, near_cache.stop_tracking = tracking.start, tracking.stop
        return near_cache


def _tracking(store: Any, prefix: str) -> Callable[[NearCache], Any] | None:
    """Return a function that makes the tracking connection to a Redis or Valkey.

    None if ``store`` is neither, or reads from replicas: a replica may still have the old value after the primary has
    reported the write.
    """
    if redis_tracking is None:
        return None
    cluster = cluster_tracking.cluster_of(store)
    if cluster is not None:
        return None if cluster_tracking.reads_from_replicas(store) else partial(_cluster_tracking, cluster, prefix)
    client = redis_client(store)
    if client is None or _reads_from_replicas(store, client):
        return None
    return lambda near_cache: redis_tracking.Tracking(
        redis_tracking.connect_like(client), prefix.encode(), near_cache, question=sentinels.sentinels_of(client)
    )


def _cluster_tracking(cluster: Callable[[], Any], prefix: str, near_cache: NearCache) -> Any:
    topology = cluster_tracking.Topology(cluster)
    return redis_tracking.Tracking(topology.masters, prefix.encode(), near_cache, question=topology)


def redis_client(store: Any) -> Any:
    """Return the client that writes for ``store``; None if it is not a Redis or Valkey behind redis-py."""
    if redis_tracking is None:
        return None
    cluster = cluster_tracking.cluster_of(store)
    if cluster is not None:
        return cluster()
    try:
        return redis_tracking.client_of(store)
    except TypeError:
        return None


def _reads_from_replicas(store: Any, client: Any) -> bool:
    """Return whether a cache over Redis has another client for reads, or several servers and writes to the first."""
    if getattr(store, "_read_client", client) is not client:
        return True
    servers: Any = getattr(store, "_servers", None) or getattr(getattr(store, "client", None), "_server", ())
    return not isinstance(servers, str) and len(servers) > 1
