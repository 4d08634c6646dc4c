"""The calls of a cache for the layers in front of it: the backends, the near cache, the HTTP cache.

A layer uses the public calls of ``Cache`` and those of its ``Engine``, and no other part of the cache: the parts may
change without the layers. Keys are those of the callers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from wheelcache.core.contract import STORED, Watch
from wheelcache.engine.cache_parts import CacheParts
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.steps import StepsTo
from wheelcache.engine.observed import ObservedCache, Part
from wheelcache.engine.options import seconds, whole
from wheelcache.engine.runtime.clock import Clock
from wheelcache.engine.turns import Turns
from wheelcache.engine.writing.write_moments import WritesSince


class Engine:
    """The calls of one cache for layers. Calls that a part offers in the same form are bound once, so they cost no more
    than a call of that part.

    Attributes:
        now, clock: return seconds. Frozen time affects ``now`` only.
        set: stores a value, and returns the core's outcome: see ``EntryWriter.set``.
        delete: removes an entry, and counts this among the writes of a transaction that is being committed: see
            ``EntryWriter.delete``.
        replace: stores a value if there is an entry: see ``EntryWriter.replace``.
        record_writes: returns the moments of all later writes: see ``EntryWriter.record_writes``.
        renew: gives an entry a new TTL: see ``EntryWriter.renew``.
        peek: returns the entry that a loader would replace: see ``Loads.previous``.
        key_batches, deletions, delete_tags, add_group, drop_group: see ``CacheParts``.
        open: begins the use of the cache, as any use of an entry does: see ``Gate``.
        group_by: sets the rules for groups of keys: see ``Core.group_by``.
        wake: wakes the wheel thread, since there is work at an earlier time.
        start_jobs: starts the periodic jobs, at any use of the cache that is neither a look-up nor a write.
        observed: the calls for the observer of the cache.
    """

    def __init__(self, parts: CacheParts) -> None:
        writer = parts.writer
        self._parts: Final = parts
        self.now = parts.core.now
        self.clock = parts.driver.clock
        self.open = parts.gate.open
        self.set = writer.set
        self.delete = writer.delete
        self.replace = writer.replace
        self.record_writes = writer.record_writes
        self.renew = writer.renew
        self.key_batches = parts.key_batches
        self.deletions = parts.deletions
        self.delete_tags = parts.delete_tags
        self.add_group, self.drop_group = parts.add_group, parts.drop_group
        self.peek = parts.loads.previous
        self.group_by = parts.core.group_by
        self.wake = parts.driver.wake
        self.start_jobs = parts.jobs.start_jobs
        self.observed: Final = ObservedCache(parts)

    # Entries.

    def weigh(self, key: Any, value: Any) -> int:
        """Return the weight of an entry of ``key`` and ``value``; 0 without a weigher."""
        writer = self._parts.writer
        return writer.weigh(self._parts.keys.adapt(key), value) if writer.has_weigher else 0

    def remove_undecoded(self, key: Any, stored: Any, error: Exception, *, was_hit: bool = False) -> None:
        """Remove the entry of ``key`` if it still has this value, which cannot be decoded, and log that, at most once a
        minute.

        Args:
            stored: the value; MISSING if it is not in this cache.
            error: the exception, one of NOT_DECODED.
            was_hit: whether the look-up was counted as a hit, which is taken back. The caller counts it as a miss.
        """
        self._parts.writer.remove_undecoded(self._parts.keys.adapt(key), stored, error, was_hit=was_hit)

    def seconds_left(self, key: Any) -> float:
        """Return the seconds until the entry of ``key`` expires; inf if it never does, less than 0 if there is none."""
        core = self._parts.core
        times = core.times(self._parts.keys.adapt(key))
        return -inf if times is None or not times.is_current else times.fresh_until - core.now()

    def evict_to(self, size: int, *, weight: float = inf) -> None:
        """Evict the least recently used entries until at most ``size``, an int >= 0, are left, and their weights are at
        most ``weight`` together."""
        core, writer = self._parts.core, self._parts.writer
        self._parts.gate.open()
        writer.evict_to(whole("size", size))
        while core.weight > weight and len(core):
            writer.evict_to(len(core) - 1)

    def clear_for(self, by: str | None) -> None:
        """Clear the cache, and record the clear among the recent events.

        Args:
            by: the operator that the event names. An empty string stands for the code of the site. Pass None to leave
                the clear out of the events.
        """
        self._parts.clear()
        if by is not None and self._parts.observer is not None:
            self._parts.observer.cleared(by)

    def dropped_since(self, tags: tuple[str, ...], since: int) -> bool:
        """Return whether one of the tags was dropped after the moment ``since``, by any process."""
        return self._parts.core.dropped_since(self._parts.writer.tag_names("", tags), since)

    # Computing missing values.

    def loads(self) -> Loads:
        """Return the part that computes missing values once for all callers, by requests, and that shows the entry that
        a computed value replaces."""
        return self._parts.loads

    def misses(self) -> Misses:
        """Return the part that counts misses, which ``Cache.find`` does not, notes those that callers may answer by a
        write, and counts their computations. The layer notes the misses of its look-ups."""
        return self._parts.misses

    def look_up_leased(self, key: Any, wait: float, may_wait: bool = True, grace: float = 0.0) -> StepsTo[Any]:
        """Return the steps of a look-up by a caller that will compute and set the value if it is missing.

        The steps return the value, or MISSING if the caller must compute it. Of several callers that miss a key at the
        same time, one receives MISSING and a lease, and the others wait for the value that it sets. If the holder of
        the lease deletes the key, its request ends, or ``wait`` is over, one waiter receives MISSING and the lease. A
        caller that holds a lease, runs a loader, or runs under an event loop never waits. See ``fill_turns``.

        Args:
            wait: the maximum seconds to wait, > 0.
            may_wait: False if the holder of the lease may need the same thread that would wait.
            grace: for so many seconds past the TTL of a value, which must be stored with that grace, the others receive
                the old value and do not wait.
        """
        parts = self._parts
        parts.gate.open()
        return parts.leased_reads.get(parts.keys.adapt(key), seconds("wait", wait), may_wait, grace)

    @property
    def has_leases(self) -> bool:
        """Whether any caller has a lease."""
        return bool(self._parts.leases.open)

    def watch(self, key: Any) -> Watch:
        """Watch ``key`` from now on, until ``close``: see ``is_outdated``."""
        return self._parts.core.watch(self._parts.keys.adapt(key))

    def is_outdated(self, watch: Watch) -> bool:
        """Return whether any caller has written the key since ``watch`` began, or trust has begun or ended."""
        return watch.broken or self._parts.core.trust != watch.trust

    # For transactions.

    def store_committed(
        self, key: Any, value: Any, ttl: float | None, grace: float, tags: tuple[str, ...], others: WritesSince
    ) -> bool:
        """Store the value that a transaction has computed, as a fill, unless others have written the key, or dropped a
        tag, since the transaction began. Return whether it was stored.

        Callers that wait for a lease on the key receive a stored value, and otherwise look again.
        """
        parts = self._parts
        key = parts.keys.adapt(key)
        watch = parts.core.watch(key)
        names = parts.writer.tag_names(key, tags)
        # After the watch began, which shows later writes: those are recorded before they happen.
        if others.contain([key, *names]):
            parts.leases.refuse(key)
            return False
        outcome, removed = parts.writer.store(key, value, ttl, grace, watch, names)
        if not outcome & STORED:
            parts.leases.refuse(key)
        parts.misses.pop_miss(key)
        parts.writer.announce(outcome, removed)
        return bool(outcome & STORED)

    # For copies of values in a store behind.

    def keep_copies_of(self, store: Part) -> None:
        """Include the statistics of ``store``, whose copies are here. The layer in front calls ``start_jobs``."""
        self._parts.stats.parts["store"] = store
        self._parts.gate.open_early()

    def lease_fill(self, key: Any) -> Callable[[Any, tuple[str, ...]], None]:
        """Return a function that passes a value, with its tags, to the callers that wait for a lease on ``key``.

        The value must be read or written in the store behind after this call: see ``LeasedReads.fill``.
        """
        fill = self._parts.leased_reads.fill(self._parts.keys.adapt(key))
        return lambda value, tags: fill(value, self._parts.writer.tag_names("", tags))

    def refuse_fill(self, key: Any) -> None:
        """Pass on the lease on ``key``, since the value that was computed may be outdated."""
        self._parts.leases.refuse(self._parts.keys.adapt(key))

    def begin_store_write(self, key: Any) -> None:
        """Record the write of ``key`` in the store behind, which follows."""
        self._parts.writer.will_be_written(self._parts.keys.adapt(key))

    def invalidate(self, key: Any) -> None:
        """Delete ``key``, which was written in the store behind. A caller that waits for a lease reads it there."""
        self._parts.writer.delete(key)
        # After the delete, which must not make the ``lease_fill`` of the next holder outdated.
        self.refuse_fill(key)

    def discard_stale(self, key: Any) -> None:
        """Remove the stale copy of ``key``, which is no longer in the store behind."""
        self._parts.writer.discard(self._parts.keys.adapt(key))

    # For pages.

    def keep_pages(
        self,
        figures: Part,
        clock: Clock,
        *,
        purge: Callable[[str], int],
        before_clear: Callable[[], object],
    ) -> Turns:
        """Include the statistics of pages, whose weights are bytes. Return the turns of the requests that compute them.

        Args:
            clock: returns seconds, for the times at which turns end by themselves.
            purge: carries out an operator's request to purge a URL or a host.
            before_clear: called before each clear.
        """
        parts = self._parts
        parts.stats.parts["pages"] = figures
        parts.actions["purge"] = purge
        parts.before_clear = before_clear
        turns = Turns(parts.core, parts.core.watch, clock)
        # Until the pages are stored, the cache must receive the requests of operators that outdate them.
        parts.idle_check.is_computing = lambda: bool(turns.open)
        return turns
