"""The parts of a cache, and their connections. Each part receives the parts that it needs; none knows the cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from wheelcache.core import HOW_TO_CHANGE, IMPLEMENTATION, CoreClass
from wheelcache.core.contract import BATCH, Core, GroupRule
from wheelcache.engine.entry_writer import EntryWriter, RemovalListener
from wheelcache.engine.figures import StatsReader
from wheelcache.engine.gate import Gate
from wheelcache.engine.keys import CALLERS, GROUP, KeyProxies
from wheelcache.engine.loading.loads import Loads
from wheelcache.engine.loading.memoize import Group, Groups
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.waiting_loads import WaitingLoads
from wheelcache.engine.observer import Observer
from wheelcache.engine.options import tag
from wheelcache.engine.stats_log import StatsLog
from wheelcache.engine.turns import Claims
from wheelcache.engine.write_watcher import WriteMoments
from wheelcache.errors import DirectoryUnusable, FileUnusable
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import now, unfrozen
from wheelcache.runtime.frozen_time import follow
from wheelcache.runtime.periodic_jobs import IdleCheck, PeriodicJobs
from wheelcache.runtime.wheel_driver import WheelDriver

logger = logging.getLogger("wheelcache")

UP_TO_COLON: Final = (GroupRule("", "", ":"),)
"""The groups of keys: the texts up to the first colon."""


def core_in_memory(options: Any) -> Core:
    """Return the core of a cache in the memory of this process."""
    return CoreClass(
        max_entries=options.max_entries,
        max_weight=options.max_weight,
        jitter=options.jitter,
        interval=options.interval,
        clock=unfrozen(options.clock),
        trust=options.trust,
        policy=options.policy,
    )


class CacheParts:
    """The parts of one cache.

    Args:
        options: the arguments of ``Cache``, checked, and the ``interval`` of its wheel.
        core: the entries.
        moments, claims, own_part: if processes share the entries: see ``WriteMoments``, ``Turns`` and ``StatsReader``.

    Attributes:
        options: see above.
        core: the entries.
        keys: adapts the callers' keys to the core.
        driver: advances the core.
        claims: see above.
        writer: the path of a write.
        loads: the loads, by the callers' keys.
        groups: the groups of keys of memoized functions.
        gate: whether the cache is unused, open or closed.
        is_closed: whether ``close`` has finished.
        actions: the functions that run the requests of operators, by action.
        before_clear: called by ``clear`` before it removes the entries; None unless an HTTP cache sets it.
        stats: reads the figures, also those of a store behind or of pages.
        idle_check: whether the cache is idle, so that the jobs can be paused.
        jobs: the periodic jobs: the log line, and the jobs of the observer.
        observer: the observer of the cache, or None.
    """

    def __init__(
        self,
        options: Any,
        core: Core,
        *,
        moments: WriteMoments | None = None,
        claims: Claims | None = None,
        own_part: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.options = options
        self.is_closed = False
        self._closing_thread = 0
        name = options.name
        self.core = core
        if options.policy == "adaptive" and IMPLEMENTATION == "python":
            logger.warning("Cache %r evicts by LRU: only the compiled core is adaptive. %s", name, HOW_TO_CHANGE)
        self.core.group_by(UP_TO_COLON)
        listener = RemovalListener(name, self.core, options.on_removal)
        self.keys = KeyProxies()
        self.driver = WheelDriver(listener, options.interval, options.clock)
        self.claims = claims
        self.gate = Gate(name, self.core)

        def start_jobs() -> None:
            # Looked up at the call, since the jobs are created after the parts that they read.
            self.jobs.start_jobs()

        self.misses = Misses(self.core, self.keys, start_jobs)
        self.writer = EntryWriter(options, self.core, self.driver, listener, self.keys, self.gate, start_jobs)
        if moments is not None:
            self.writer.watcher(WriteMoments, lambda: moments)
        self.loads = Loads(self.core, self.writer, self.keys, self.misses)
        waiting = WaitingLoads(self.core, self.loads, self.writer)
        self.loads.load, self.loads.refresh = waiting.load, waiting.refresh
        self.loads.turns.claims = claims
        self.groups = Groups()
        self.stats = StatsReader(self.core, self.misses.counts)
        if own_part is not None:
            self.stats.own_part, self.stats.is_shared = own_part, True
        self.actions: dict[str, Callable[..., Any]] = {"clear": self.clear}
        self.before_clear: Callable[[], object] | None = None
        self.idle_check = IdleCheck(self.stats.activity, self.writer.expect_first_write, lambda: not self.loads.is_idle)
        self.jobs = PeriodicJobs(self.driver.clock, self.idle_check)
        self.jobs.add(StatsLog(name, self.driver.clock, self.stats))
        self.observer: Observer | None = None

    def observe(self, observer: Observer) -> None:
        """Notify ``observer`` from now on. An observer with jobs, which run while the cache is used, must be attached
        before the first use."""
        self.observer = observer
        self.misses.observe(observer)
        self.jobs.add(*observer.jobs)
        if observer.publishes:
            self.gate.begin_with(self.jobs.start_jobs)

    def start(self) -> None:
        """Register with the wheel thread, the fork hooks and the frozen-time support."""
        self.driver.start()
        if self.driver.clock is now:
            follow(self.driver)
        lifecycle.HELD.add_weakly(self)

    def add_group(self, name: str) -> Group:
        """Add a group of keys named ``name``: see ``Groups.add``."""
        return Group(self.groups.add(name), self.drop_group)

    def drop_group(self, name: str) -> int:
        """Delete every key of a group: see ``Group``."""
        self.gate.open()
        return self.writer.drop_tag(GROUP + name)

    def delete_tags(self, tags: Iterable[str], prefix: str = "") -> int:
        """Do the same as ``Cache.delete_tags``, for tags that begin with ``prefix`` in the cache. Return the number of
        their entries in memory."""
        names = [CALLERS + prefix + tag("tags", each) for each in tags]
        # Each call of a Python function that the processor has not cached takes 2 us, a tenth of the whole.
        if self.gate.is_shut:
            self.gate.open()
        if self.misses.scopes:
            # A later ``set`` by this caller does not answer an earlier miss.
            self.misses.outdate_all()
        return sum([self.writer.drop_tag(name) for name in names])

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

        The value of a load of such a key that began before the first item is not stored. Nor is any value that a
        transaction has computed since an earlier moment: its key may match.
        """
        self.writer.writing_any()
        yield self.writer.delete_many(wanted(self.keys.unwrapped(self.loads.keys_in_progress())))
        for keys in self.key_batches():
            yield self.writer.delete_many(wanted(keys))

    def clear(self) -> None:
        """Remove every entry, and forget the failed loads."""
        self.gate.open()
        if self.before_clear is not None:
            self.before_clear()
        if self.misses.scopes:
            self.misses.outdate_all()
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
            for watcher in self.writer.watchers:
                watcher.close()
            self.writer.clear(invalidate=False)
            # This comes last, so that the next close finishes an interrupted one.
            self.is_closed = True
        finally:
            self._closing_thread = 0

    def before_fork(self) -> None:
        """Wait until no step of the core is in progress. At the moment of the fork, no thread is in one."""
        self.core.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """Release the locks of ``before_fork``. In the child, reset locks and counts, and drop the parent's waiters."""
        self.core.after_fork(in_child=in_child)
        if not in_child:
            return
        if (trust := self.options.trust) is not None:
            # The connection that reports writes is that of the parent.
            trust[0] = (trust[0] | 1) + 1
        self.keys.forget_locks()
        self.driver.after_fork_in_child()
        self.loads.after_fork_in_child()
        self.misses.counts.count_from_zero()
        if self.observer is not None:
            self.observer.after_fork_in_child()
        self.stats.after_fork_in_child()
        self.writer.after_fork_in_child()
        self.gate.after_fork_in_child()
        self.jobs.start_over()


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Let an error about a directory name the option that the directory comes from."""
    try:
        yield
    except FileUnusable as error:
        accepted = "must be None, or a private directory of this user that exists or can be created"
        raise DirectoryUnusable(option, f"{accepted}: {error}") from error
