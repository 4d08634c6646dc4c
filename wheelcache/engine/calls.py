"""The calls of a cache for the layers in front of it: the backends, the near cache, the HTTP cache.

A layer uses the public calls of ``Cache`` and those of its ``Engine``, and no other part of the cache: the parts may
change without the layers. Keys are those of the callers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from wheelcache.core.contract import STORED, Core, Watch
from wheelcache.engine.cache_parts import CacheParts
from wheelcache.engine.figures import Part
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.observed import ObservedCache
from wheelcache.engine.options import whole
from wheelcache.engine.turns import Claims, Turns
from wheelcache.engine.write_watcher import WritesSince
from wheelcache.runtime.clock import Clock


class Engine:
    """The calls of one cache for layers. Calls that a part offers in the same form are bound once, so they cost no more
    than a call of that part.

    Attributes:
        now, clock: return seconds. Frozen time affects ``now`` only.
        set, add: store a value, and return the core's outcome: see ``EntryWriter``.
        delete: removes an entry, and counts this among the writes of a transaction that is being committed: see
            ``EntryWriter.delete``.
        replace: stores a value if there is an entry: see ``EntryWriter.replace``.
        watcher: returns the watcher of the writes of a kind: see ``EntryWriter.watcher``.
        missed: removes an entry that was found expired in frozen time: see ``EntryWriter.missed``.
        adapt: returns the core's key of a caller's key.
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
        self.set, self.add = writer.set, writer.add
        self.delete = writer.delete
        self.replace = writer.replace
        self.watcher, self.missed = writer.watcher, writer.missed
        self.adapt = parts.keys.adapt
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

    def core(self) -> Core:
        """Return the entries, by the keys that ``adapt`` returns."""
        return self._parts.core

    def weigh(self, key: Any, value: Any) -> int:
        """Return the weight of an entry of ``key`` and ``value``; 0 without a weigher."""
        return self._parts.writer.weigh(self._parts.keys.adapt(key), value)

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

    def claims(self) -> Claims | None:
        """Return the claims of the processes that share the entries: see ``Turns``. None if each has its own."""
        return self._parts.claims

    def loads(self) -> Loads:
        """Return the part that computes missing values once for all callers, by requests, and that shows the entry that
        a computed value replaces."""
        return self._parts.loads

    def misses(self) -> Misses:
        """Return the part that counts misses, which ``Cache.find`` does not, notes those that callers may answer by a
        write, and counts their computations. The layer notes the misses of its look-ups."""
        return self._parts.misses

    def watch(self, key: Any) -> Watch:
        """Watch ``key`` from now on, until ``close``: see ``is_outdated``."""
        return self._parts.core.watch(self._parts.keys.adapt(key))

    def is_outdated(self, watch: Watch) -> bool:
        """Return whether any caller has written the key since ``watch`` began, or trust has begun or ended."""
        return watch.broken or self._parts.core.trust != watch.trust

    def refuse_fill(self, key: Any) -> None:
        """Let the callers that wait for the value of ``key`` look again, since the computed one may be outdated."""
        self._parts.writer.refused(self._parts.keys.adapt(key))

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
            parts.writer.refused(key)
            return False
        outcome, removed = parts.writer.store(key, value, ttl, grace, watch, names)
        if not outcome & STORED:
            parts.writer.refused(key)
        parts.misses.pop_miss(key)
        parts.writer.announce(outcome, removed)
        return bool(outcome & STORED)

    # For copies of values in a store behind.

    def keep_copies_of(self, store: Part) -> None:
        """Include the statistics of ``store``, whose copies are here. The layer in front calls ``start_jobs``."""
        self._parts.stats.by_guest["store"] = store
        self._parts.gate.open_early()

    def begin_store_write(self, key: Any) -> None:
        """Record the write of ``key`` in the store behind, which follows."""
        self._parts.writer.writing(self._parts.keys.adapt(key))

    def invalidate(self, key: Any) -> None:
        """Delete ``key``, which was written in the store behind. A caller that waits for its value reads it there."""
        self._parts.writer.delete(key)
        # After the delete, which breaks the watch of the next caller that computes the value.
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
        parts.stats.by_guest["pages"] = figures
        parts.actions["purge"] = purge
        parts.before_clear = before_clear
        turns = Turns(parts.core, parts.core.watch, clock)
        # Until the pages are stored, the cache must receive the requests of operators that outdate them.
        parts.idle_check.is_computing = lambda: bool(turns.open)
        return turns
