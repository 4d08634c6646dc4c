"""The parts of a cache, and how they are put together: each gets what it needs, and knows nothing of the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from wheelcache.codec import size_of
from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core import CoreClass
from wheelcache.core.contract import BATCH, Core
from wheelcache.keys import KeyProxies, unwrap
from wheelcache.leases.fill_leases import FillLeases
from wheelcache.leases.leased_reads import LeasedReads
from wheelcache.loading.fill_times import FillTimes
from wheelcache.loading.groups import Groups, group_of
from wheelcache.loading.key_loading import KeyLoading
from wheelcache.loading.loads import Loads
from wheelcache.observability.observers import IdleChecker, ObservedStore, Observer, StatsReader
from wheelcache.observability.worker_requests import CLEAR, LOAD, SAVE
from wheelcache.persistence.autosave import Autosave
from wheelcache.persistence.gate import Gate
from wheelcache.persistence.snapshots import Snapshots
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock, unfrozen
from wheelcache.runtime.frozen_time import follow
from wheelcache.runtime.periodic_jobs import PeriodicJobs
from wheelcache.runtime.wheel_driver import WheelDriver, driver_of
from wheelcache.writing.entry_writer import EntryWriter
from wheelcache.writing.expiry import Expiry
from wheelcache.writing.removal_listener import RemovalListener

MAX_JITTER: Final = 60.0
"""Seconds. What is set together expires over a minute at most: 5% of two weeks would end a session 16 hours early."""


class CacheParts:
    """The parts of one cache.

    Attributes:
        options: what they were made of: see ``cache_options.CacheOptions``.
        core: the entries.
        keys: adapts the callers' keys to the core.
        driver: has the core advanced.
        leases, leased: the right to fill a key, and the look-ups that wait for the value.
        stamps, writer: what other processes write, and the way of a write.
        loads, loading: what loads, by the core's keys and by the callers'.
        groups: of the keys of memoized functions.
        gate: whether the cache is unloaded, open or closed.
        snapshots, keeper: saves and loads the entries, when asked to and, if there is a ``snapshot_dir``, by itself.
        is_closed: ``close`` is done.
        observer, jobs: what looks at the cache from outside, and what is done every so many seconds.
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
            slots=options.slots,
            clock=unfrozen(options.clock),
            stamps=stamps,
        )
        # Bytes are weighed with those of the entry, which only the core knows.
        weigher = options.weigher
        if weigher is size_of:
            weigher = partial(size_of, entry_bytes=self.core.entry_bytes)
        listener = RemovalListener(name, options.on_removal)
        self.keys = KeyProxies()
        self.driver = WheelDriver(Expiry(name, self.core, listener), options.interval, options.clock)
        self.leases = FillLeases(self.core, self.driver.clock)
        self.stamps = KeyStamps(name, self.core, self.driver.clock, stamps)
        self.writer = EntryWriter(name, self.core, self.driver, self.leases, listener, weigher, self.stamps)
        self.loads = Loads(self.core, self.writer)
        self.fill_times = FillTimes(self.loads, self.driver.clock)
        self.loading = KeyLoading(self.loads, self.keys, options.ttl, self.stamps.noted)
        self.groups = Groups()
        self.gate = Gate(name, self.core)
        self.leased = LeasedReads(self.core, self.gate.check, self.leases, self.writer, self.loads)
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
        stats = StatsReader(self.core, self.loads)
        failures = self.loads.failures
        actions, in_use = self._actions(), self.gate.is_in_use
        self.observer = Observer(options, self.core, stats, failures, self.driver, actions, in_use)
        jobs = self.observer.jobs if self.keeper is None else [*self.observer.jobs, self.keeper]
        idle_checker = IdleChecker(stats, self.writer.expect_first_write)
        self.jobs = PeriodicJobs(self.driver.clock, driver_of(options.clock), idle_checker, jobs)
        self.writer.on_first_write = self.jobs.start
        # A cache whose every load fails is never written to.
        failures.on_first = self.jobs.start

    def start(self) -> None:
        """From here on the wheel thread, forks, and what freezes the time in tests, know of the cache."""
        self.driver.start()
        if unfrozen(self.options.clock) is SystemClock.monotonic:
            follow(self.driver)
        lifecycle.HELD.add_weakly(self)

    def observe_store(self, store: ObservedStore) -> None:
        """The entries are copies of what ``store`` has: its figures are among those of the cache."""
        self.observer.stats.store = store
        # While it fails, nothing is written here that would start them.
        store.on_call = self.jobs.start

    def delete_group(self, name: str) -> int:
        """Delete every key of a group. How many were there."""
        # First what is being loaded: what is stored in between is an entry by then.
        keys = {key: None for key in self.loads.keys_in_progress() if group_of(unwrap(key)) == name}
        scan = self.core.scan()
        while some := scan.keys(BATCH):
            keys |= {key: None for key in some if group_of(unwrap(key)) == name}
        # Which of them other processes have is not known.
        self.stamps.write_all()
        return self.writer.delete_many(keys)

    def clear(self) -> None:
        """Remove every entry, and forget which loads failed."""
        self.gate.skip_load()
        self.writer.clear()
        self.loads.forget_failures()

    def close(self) -> None:
        """Drop all entries, and shut the gate for good."""
        if self._closing_thread == threading.get_ident():
            # A listener closes the cache that is being closed: else it would be called within itself, batch by batch.
            return
        try:
            self._closing_thread = threading.get_ident()
            # First, as what was counted is published once more.
            self.jobs.close()
            self.loads.close()
            self.gate.close()
            self.leases.close()
            self.writer.clear(news=False)
            # Last: an interrupted close is finished by the next one.
            self.is_closed = True
        finally:
            self._closing_thread = 0

    def before_fork(self) -> None:
        """Return when no step of the core is in progress. Until ``after_fork``, no other thread begins one."""
        self.core.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """In the child: fresh locks, counts from zero, and no thread, task or waiter of the parent. Entries stay."""
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
        keeper = Autosave(options.snapshot_dir, options.snapshot_interval, options.snapshot_key, self.snapshots)
        self.gate.load_first(keeper.load)
        return keeper

    def _actions(self) -> dict[str, Callable[[], object]]:
        """What operators may ask for."""
        actions: dict[str, Callable[[], object]] = {CLEAR: self.clear}
        if self.keeper is not None:
            actions |= {SAVE: self.keeper.run, LOAD: self.keeper.run_load}
        return actions
