"""The parts of a cache, and their connections. Each part receives the parts that it needs; none knows the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from wheelcache.codec import size_of
from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core import CoreClass
from wheelcache.core.contract import BATCH, Core
from wheelcache.errors import DirectoryUnusable, FileUnusable, Unloaded
from wheelcache.keys import CALLERS, GROUP, KeyProxies
from wheelcache.leases.fill_leases import FillLeases
from wheelcache.leases.leased_reads import LeasedReads
from wheelcache.loading.fill_times import FillTimes
from wheelcache.loading.loads import Loads
from wheelcache.loading.memoize import Groups
from wheelcache.loading.steps import StepsTo
from wheelcache.observability.inquiries import Inspector
from wheelcache.observability.observers import IdleChecker, Observer, StatsReader
from wheelcache.observability.stats_log import log_core
from wheelcache.observability.worker_requests import CLEAR, LOAD, SAVE
from wheelcache.options import seconds, tag, whole
from wheelcache.persistence.autosave import Autosave
from wheelcache.persistence.gate import Gate
from wheelcache.persistence.snapshots import Snapshots
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock, unfrozen
from wheelcache.runtime.frozen_time import follow
from wheelcache.runtime.periodic_jobs import PeriodicJobs
from wheelcache.runtime.request_scope import current_scope
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.writing.entry_writer import EntryWriter
from wheelcache.writing.removal_listener import RemovalListener

MAX_JITTER: Final = 60.0
"""Seconds by which jitter may shorten a TTL: 5% of two weeks would end a session 16 hours early."""


class CacheParts:
    """The parts of one cache.

    Attributes:
        options: the arguments of ``Cache``, checked.
        core: the entries.
        keys: adapts the callers' keys to the core.
        driver: advances the core.
        leases, leased_reads: the rights to fill missing keys, and the look-ups that wait for a value.
        stamps, writer: the reports of writes by other processes, and the path of a write.
        loads: the loads, by the callers' keys.
        groups: the groups of keys of memoized functions.
        gate: whether the cache is unloaded, open or closed.
        snapshots, keeper: save and load the entries on request and, if there is a ``snapshot_dir``, periodically.
        is_closed: whether ``close`` has finished.
        actions: the functions that run the requests of operators, by action.
        before_clear: called by ``clear`` before it removes the entries; None unless an HTTP cache sets it.
        observer, jobs: the parts that read the cache's figures, and the periodic jobs.
    """

    def __init__(self, options: Any) -> None:
        self.options = options
        self.is_closed = False
        self._closing_thread = 0
        name, stamps = options.name, options.stamps
        self.core: Core = CoreClass(
            max_entries=options.max_entries,
            max_weight=options.max_weight,
            jitter=options.jitter,
            max_jitter=MAX_JITTER,
            interval=options.interval,
            clock=unfrozen(options.clock),
            stamps=stamps,
        )
        # A weight in bytes includes the entry itself, whose size only the core knows.
        weigher = options.weigher
        if weigher is size_of:
            weigher = partial(size_of, entry_bytes=self.core.entry_bytes)
        listener = RemovalListener(name, self.core, options.on_removal)
        self.keys = KeyProxies()
        self.driver = WheelDriver(listener, options.interval, options.clock)
        self.leases = FillLeases(self.core, self.driver.clock)
        self.stamps = KeyStamps(name, self.core, self.driver.clock, stamps)
        self.gate = Gate(name, self.core)

        def cache_is_used() -> None:
            # Looked up at the call, since the jobs are created after the parts that they read.
            self.jobs.cache_is_used()

        self.writer = EntryWriter(
            name,
            self.core,
            self.driver,
            self.leases,
            listener,
            weigher,
            self.stamps,
            keys=self.keys,
            ttl=options.ttl,
            open_gate=self.gate.open,
            cache_is_used=cache_is_used,
        )
        self.loads = Loads(self.core, self.writer, self.stamps, self.keys, cache_is_used)
        self.fill_times = FillTimes(self.loads.counts, self.driver.clock)
        self.groups = Groups()
        self.leased_reads = LeasedReads(
            self.core, self.gate.check, self.leases, self.stamps, self.writer, self.loads.counts
        )
        self.snapshots = Snapshots(
            name,
            self.core,
            self.writer,
            self.keys,
            max_entries=options.max_entries,
            is_coherent=stamps is not None,
            is_portable=self.groups.is_portable,
            is_in_use=self.gate.is_in_use,
        )
        self.keeper = self._autosave()
        stats = StatsReader(self.core, self.loads.counts)
        self.actions, in_use = self._actions(), self.gate.is_in_use
        self.before_clear: Callable[[], object] | None = None
        inspector = Inspector(self.core, self.writer.delete_many, self.deletions, self.delete_tags)
        with _naming("figures_dir"):
            self.observer = Observer(
                options, self.core, stats, self.loads.failures, self.driver, self.actions, inspector, in_use
            )
        jobs = self.observer.jobs if self.keeper is None else [*self.observer.jobs, self.keeper]
        self.idle_checker = IdleChecker(stats, self.writer.expect_first_write, lambda: not self.loads.is_idle)
        self.jobs = PeriodicJobs(self.driver.clock, self.idle_checker, jobs)

    def start(self) -> None:
        """Log the core, and register with the wheel thread, the fork hooks and the frozen-time support."""
        log_core()
        self.driver.start()
        if unfrozen(self.options.clock) is SystemClock.monotonic:
            follow(self.driver)
        lifecycle.HELD.add_weakly(self)

    def delete_group(self, name: str) -> int:
        """Delete every key that is a tuple whose first item is ``name``, such as the keys of a memoized function, in
        O(1). Return the number of entries in memory, as ``len`` counts them."""
        self.gate.open()
        return self.writer.drop_tag(GROUP + name)

    def delete_tags(self, tags: Iterable[str], prefix: str = "") -> None:
        """Do the same as ``Cache.delete_tags``, for tags that begin with ``prefix`` in the cache."""
        names = [CALLERS + prefix + tag("tags", each) for each in tags]
        # Each call of a Python function that the processor has not cached takes 2 us, a tenth of the whole.
        if self.gate.is_shut:
            self.gate.open()
        if self.stamps.reports_writes:
            # As after ``clear``, a later ``set`` by this caller is not a fill.
            self.stamps.forget_misses()
        for name in names:
            self.writer.drop_tag(name)

    def key_batches(self) -> Iterator[list[Any]]:
        """Yield the callers' keys of all entries, including expired ones, in batches.

        A key that exists from the first batch to the last comes at least once, possibly twice.
        """
        self.gate.open()
        scan = self.core.scan()
        while keys := scan.keys(BATCH):
            yield self.keys.unwrapped(keys)

    def deletions(self, wanted: Callable[[list[Any]], Iterable[Any]]) -> Iterator[int]:
        """Delete the keys that ``wanted`` selects from lists of callers' keys. Yield the number deleted from each list.

        The value of a load of such a key that began before the first item is not stored.
        """
        yield self.writer.delete_many(wanted(self.keys.unwrapped(self.loads.keys_in_progress())))
        for keys in self.key_batches():
            yield self.writer.delete_many(wanted(keys))

    # For backends and near caches, by the callers' keys.

    def look_up_leased(
        self, key: Any, wait: float, may_wait: bool = True, grace: float = 0.0, leader: Any = None
    ) -> StepsTo[Any]:
        """Return the steps of a look-up by a caller that will compute and set the value if it is missing.

        The steps return the value, or MISSING if the caller must compute it. Of several callers that miss a key at the
        same time, one receives MISSING and a lease, and the others wait for the value that it sets. If the holder of
        the lease deletes the key, its request ends, or ``wait`` is over, one waiter receives MISSING and the lease. A
        caller that holds a lease, runs a loader, or runs under an event loop never waits. See ``fill_leases``.

        Args:
            wait: the maximum seconds to wait, > 0.
            may_wait: False if the holder of the lease may need the same thread that would wait.
            grace: for so many seconds past the TTL of a value, which must be stored with that grace, the others receive
                the old value and do not wait.
            leader: a key whose lease stands for that of ``key``, too, since both values are computed together. While
                another caller has that lease, this one receives the old value of ``key``, if there is one.
        """
        self.gate.open()
        key = self.keys.adapt(key)
        leader = key if leader is None else self.keys.adapt(leader)
        return self.leased_reads.get(key, seconds("wait", wait), may_wait, grace, leader)

    def lease_fill(self, key: Any) -> Callable[[Any], None]:
        """Return a function that passes a value to the callers that wait for a lease on ``key``.

        The value must be read or written in the store behind after this call: see ``LeasedReads.fill``.
        """
        return self.leased_reads.fill(self.keys.adapt(key))

    def is_leased(self, key: Any) -> bool:
        """Return whether the running thread or task has a lease on ``key``."""
        return self.leases.is_of(self.keys.adapt(key), current_scope())

    def invalidate(self, key: Any) -> None:
        """Delete ``key``, which was written in the store behind. A caller that waits for a lease reads it there."""
        self.writer.delete(key)
        # After the delete, which must not make the ``lease_fill`` of the next holder outdated.
        self.leases.refuse(self.keys.adapt(key))

    def discard_stale(self, key: Any) -> None:
        """Remove the stale copy of ``key``, which is no longer in the store behind."""
        self.writer.discard(self.keys.adapt(key))

    def weigh(self, key: Any, value: Any) -> int:
        """Return the weight of an entry of ``key`` and ``value``; 0 without a weigher."""
        return self.writer.weigh(self.keys.adapt(key), value)

    def evict_to(self, size: int) -> None:
        """Evict the least recently used entries until at most ``size``, an int >= 0, are left. Load no snapshot."""
        with suppress(Unloaded):
            self.writer.evict_to(whole("size", size))

    def clear_for(self, by: str | None) -> None:
        """Clear the cache, and record the clear among the recent events.

        Args:
            by: the operator that the event names. An empty string stands for the code of the site. Pass None to leave
                the clear out of the events.
        """
        self.clear()
        if by is not None:
            self.observer.events.note_clear(by)

    def clear(self) -> None:
        """Remove every entry, and forget the failed loads."""
        if self.before_clear is not None:
            self.before_clear()
        self.gate.skip_load()
        self.writer.clear()
        self.loads.forget_failures()

    def close(self) -> None:
        """Drop all entries, and close the gate forever."""
        if self._closing_thread == threading.get_ident():
            # A listener closes the cache during ``close``. It would be called recursively, once per batch.
            return
        try:
            self._closing_thread = threading.get_ident()
            # The jobs come first, since they publish the counts for the last time.
            self.jobs.close()
            self.loads.close()
            self.gate.close()
            self.leases.close()
            self.writer.clear(invalidate=False)
            # This comes last, so that the next close finishes an interrupted one.
            self.is_closed = True
        finally:
            self._closing_thread = 0

    def before_fork(self) -> None:
        """Wait until no step of the core is in progress, and keep other threads from beginning one."""
        self.core.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """Release the locks of ``before_fork``. In the child, reset locks and counts, and drop the parent's waiters."""
        self.core.after_fork(in_child=in_child)
        if not in_child:
            return
        self.keys.forget_locks()
        self.driver.after_fork_in_child()
        self.leases.after_fork_in_child()
        self.loads.after_fork_in_child()
        self.observer.after_fork_in_child()
        self.writer.after_fork_in_child()
        self.gate.after_fork_in_child()
        self.jobs.start_over()

    def _autosave(self) -> Autosave | None:
        options = self.options
        if options.snapshot_dir is None:
            return None
        with _naming("snapshot_dir"):
            keeper = Autosave(options.snapshot_dir, options.snapshot_interval, options.snapshot_key, self.snapshots)
        self.gate.load_first(keeper.load)
        return keeper

    def _actions(self) -> dict[str, Callable[..., object]]:
        """Return the actions that operators can request."""
        actions: dict[str, Callable[..., object]] = {CLEAR: self.clear}
        if self.keeper is not None:
            actions |= {SAVE: self.keeper.run, LOAD: self.keeper.run_load}
        return actions


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Let an error about a directory name the option that the directory comes from."""
    try:
        yield
    except FileUnusable as error:
        accepted = "must be None, or a private directory of this user that exists or can be created"
        raise DirectoryUnusable(option, f"{accepted}: {error}") from error
