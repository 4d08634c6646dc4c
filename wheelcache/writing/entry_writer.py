"""The way of a write: weigh, step of the core, wake the wheel thread, tell waiters and the listener.

``Cache`` and ``Loads`` write through it. It has what a write takes beside the core, and knows neither of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from wheelcache import options
from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core import WriteState
from wheelcache.core.contract import (
    ANY,
    BATCH,
    CHANGED,
    DEAD,
    KEEP,
    MISSING,
    MORE,
    OUTDATED,
    RESTORE,
    SAME,
    STORED,
    TOLD,
    WAKE,
    Core,
    RemovalCause,
    Removals,
    Seen,
    TagName,
    Times,
    Watch,
)
from wheelcache.keys import group_of, unwrap
from wheelcache.leases.fill_leases import FillLeases
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.writing.removal_listener import RemovalListener, call_all

Weigher = Callable[[Any, Any], int]

NOTHING_YET: Final = -1
"""Unlike every outcome."""


class EntryWriter(WriteState):
    """What a write of one cache takes. Keys are those of the core.

    Attributes:
        name: of the cache.
        leases: whose waiters are told of values.
        quiet: the outcome of a ``set`` after which there is nothing more to do. No outcome is, where the next write has
            to start something: the wheel thread after a fork, and the periodic jobs.
        on_first_write: called after such a write.
    """

    __slots__ = (
        *("_core", "_driver", "_weigher", "listener", "name", "on_first_write"),
        *("seen", "stamps", "tells_of_writes", "watch"),
    )

    def __init__(
        self,
        name: str,
        core: Core,
        driver: WheelDriver,
        leases: FillLeases,
        listener: RemovalListener,
        weigher: Weigher | None,
        stamps: KeyStamps,
    ) -> None:
        self.name = name
        self._core = core
        self._driver = driver
        self.leases = leases
        self.listener = listener
        self._weigher = weigher
        self.stamps = stamps
        self.seen, self.watch, self.tells_of_writes = stamps.seen, stamps.watch, stamps.tells_of_writes
        self.quiet = NOTHING_YET
        self.on_first_write: Callable[[], object] | None = None
        self.listen(listener.function)

    def listen(self, function: Any) -> None:
        """Tell ``function`` of removals from now on."""
        self.listener.set(function)
        self.is_plain = self.listener.function is None and self._weigher is None and not self.stamps.are_there

    @property
    def hears_misses(self) -> bool:
        return self.stamps.are_there or self._driver.is_frozen

    def get_many(self, keys: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        """Return the values of those ``keys`` that are there. Keys are given as the caller's key and the core's, and
        the values are by the caller's key."""
        found = {}
        misses = 0
        find, hears_misses = self._core.find, self.hears_misses
        for caller_key, key in keys:
            value = find(key, MISSING)
            if value is not MISSING:
                found[caller_key] = value
                continue
            misses += 1
            if hears_misses:
                self.missed(key)
        self._core.count(misses=misses)
        return found

    def times(self, key: Any) -> Times | None:
        """The times of a fresh and current entry."""
        times = self._core.times(key)
        if times is not None and times.is_current and times.fresh_until > self._core.now():
            return times
        self._found_expired(key)
        return None

    def missed(self, key: Any) -> None:
        """``key`` was missed, and may be set soon."""
        self._found_expired(key)
        self._check_stamps()
        self.stamps.missed(key)

    def _found_expired(self, key: Any) -> None:
        """A call found no fresh entry. What a test has found expired must not come back when it moves the time back."""
        if self._driver.is_frozen:
            times = self._core.times(key)
            if times is not None and times.expires_at <= self._core.now():
                self.discard(key, RemovalCause.EXPIRED)

    # Writing.

    def weigh(self, key: Any, value: Any) -> int:
        if self._weigher is None:
            return 0
        return options.whole("what the weigher returns", self._weigher(unwrap(key), value))

    def tags(self, key: Any) -> tuple[TagName, ...]:
        """Return the tags of an entry of ``key``: its group, if it is in one."""
        group = None if type(key) is str else group_of(unwrap(key))
        return () if group is None else ((group, self.stamps.slot(group)),)

    def set(self, key: Any, value: Any, ttl: float | None, *, exact: bool = False, mode: int = ANY) -> int:
        """Store ``value`` for a caller, whose miss of ``key`` it may answer. Return the core's outcome."""
        seen, since = self.stamps.noted(key)
        return self._set(key, value, ttl, exact=exact, mode=mode, seen=seen, since=since)

    def restore(self, key: Any, value: Any, ttl: float | None, grace: float, seen: Seen | None, since: int) -> int:
        """Store a value that was saved after the moment ``since``, unless there is a newer one or no room. Return the
        core's outcome."""
        return self._set(key, value, ttl, grace, exact=True, mode=RESTORE, seen=seen, since=since)

    def _set(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        mode: int = ANY,
        expected: Any = MISSING,
        seen: Seen | None = None,
        since: int = 0,
    ) -> int:
        """Call ``core.set``, and do what follows from its outcome."""
        weight = 0 if self._weigher is None else self.weigh(key, value)
        removed = self.listener.list()
        slot = self.stamps.slot(key)
        tags = self.tags(key)
        try:
            outcome = self._core.set(
                key, value, ttl, grace, exact, weight, mode, expected, None, slot, seen, removed, tags, since
            )
            if outcome == self.quiet and self.is_plain:
                return outcome
            if outcome == OUTDATED:
                # The value may be old by now: no waiter gets it.
                self.leases.refuse(key)
            self.announce(outcome, removed)
        except BaseException:
            self.interrupted()
            raise
        return outcome

    def store(self, key: Any, value: Any, ttl: float | None, grace: float, watch: Watch) -> tuple[int, Removals | None]:
        """Store what was loaded under ``watch``, unless the key was written since. What to ``announce`` of it."""
        seen = self.stamps.seen_by_load(watch.seen)
        weight = self.weigh(key, value)
        removed = self.listener.list()
        try:
            outcome = self._core.set(
                *(key, value, ttl, grace, False, weight, ANY, MISSING, watch, self.stamps.slot(key), seen, removed),
                tags=self.tags(key),
            )
        except BaseException:
            self.interrupted()
            raise
        if outcome == OUTDATED:
            self.leases.refuse(key)
        return outcome, removed

    def update(self, key: Any, function: Callable[[Any], Any]) -> Any:
        """Put ``function(value)`` in the place of a value, with its times. The new value; MISSING without an entry."""
        self.stamps.noted(key)
        while (record := self._core.peek(key)) is not None:
            times = record.times
            if not times.is_current or times.fresh_until <= self._core.now():
                break
            value = function(record.value)
            if not self._set(key, value, KEEP, mode=SAME, expected=record.value) & CHANGED:
                return value
        self._found_expired(key)
        return MISSING

    def renew(self, key: Any, value: Any, ttl: float | None) -> bool:
        """Give an entry that has ``value`` already ``ttl`` seconds from now, exactly and quietly. Whether there is."""
        record = self._core.peek(key)
        if record is None or type(record.value) is not type(value) or record.value != value:
            return False
        outcome = self._set(key, record.value, ttl, exact=True, mode=SAME, expected=record.value, seen=record.seen)
        return bool(outcome & STORED)

    def set_many(self, items: Sequence[tuple[Any, Any]], ttl: float | None, *, exact: bool) -> list[int]:
        """``set`` for pairs of key and value. Return their outcomes."""
        ready = [
            (key, value, self.weigh(key, value), self.stamps.slot(key), *self.stamps.noted(key), self.tags(key))
            for key, value in items
        ]
        removed = self.listener.list()
        try:
            outcomes = [
                self._core.set(
                    key, value, ttl, 0.0, exact, weight, ANY, MISSING, None, slot, seen, removed, tags, since
                )
                for key, value, weight, slot, seen, since, tags in ready
            ]
            together = 0
            for (key, _), outcome in zip(items, outcomes, strict=True):
                if outcome == OUTDATED:
                    self.leases.refuse(key)
                together |= outcome
            self.announce(together, removed, len(items))
        except BaseException:
            self.interrupted()
            raise
        return outcomes

    def delete(self, key: Any) -> Any:
        """Remove an entry. Its value if it was fresh and current, else MISSING."""
        removed = self.listener.list()
        # What was missed before is no longer filled by a ``set`` that comes after.
        self.stamps.noted(key)
        value = self._core.delete(key, MISSING, slot=self.stamps.slot(key), removed=removed)
        if self.leases.in_force:
            self.leases.deleted(key)
        self.listener.tell(removed)
        return value

    def delete_many(self, keys: Iterable[Any]) -> int:
        """``delete`` for many. Return how many were fresh and current."""
        return sum(self.delete(key) is not MISSING for key in keys)

    def drop_tag(self, name: str) -> int:
        """Remove the entries with a tag, and return how many were in memory. The listener is notified of each before
        this returns; without one, the wheel thread removes them."""
        dropped = self._core.drop_tag(name, self.stamps.slot(name))
        if self.listener.function is None:
            self._driver.wake()
        else:
            call_all(self._batches_to_tell())
        return dropped

    def discard(self, key: Any, cause: RemovalCause = RemovalCause.DELETED) -> None:
        """Remove an entry that is stale or not current."""
        removed = self.listener.list()
        self._core.delete(key, only=DEAD, cause=cause, removed=removed)
        self.listener.tell(removed)

    def evict(self, key: Any) -> None:
        """Remove an entry for want of room."""
        removed = self.listener.list()
        self._core.delete(key, cause=RemovalCause.EVICTED, slot=self.stamps.slot(key), removed=removed)
        self.listener.tell(removed)

    def touch(self, key: Any, ttl: float | None) -> bool:
        """Give a fresh and current entry ``ttl`` seconds from now, exactly. Whether there is one."""
        self.stamps.noted(key)
        try:
            outcome = self._core.touch(key, ttl)
            self.announce(outcome, None)
        except BaseException:
            self.interrupted()
            raise
        if not outcome:
            self._found_expired(key)
        return bool(outcome & STORED)

    def evict_to(self, size: int) -> None:
        more = True
        while more:
            removed = self.listener.list()
            more = self._core.evict(BATCH, removed, size=size)
            self.listener.tell(removed)

    def clear(self, *, news: bool = True) -> None:
        """Remove every entry, and tell the listener of each.

        Args:
            news: every slot of the stamps has news, and no waiter and no later ``set`` has to do with what was here.
        """
        if news:
            self.leases.cleared()
            self.stamps.forget_misses()
        try:
            self._core.clear(news=news)
            self._drain()
        except BaseException:
            # The wheel thread drops what is left, and tells of it.
            self._driver.wake()
            raise

    def _drain(self) -> None:
        """Notify the listener of all entries that were detached; without a listener, the wheel thread drops most of
        them."""
        if self.listener.function is None:
            self._core.drain()
            self._driver.wake()
        else:
            call_all(self._batches_to_tell())

    def _batches_to_tell(self) -> Iterator[Callable[[], object]]:
        more = True
        while more:
            removed: Removals = []
            more = self._core.drain(BATCH, removed)
            yield partial(self.listener.tell, removed)

    def announce(self, outcome: int, removed: Removals | None, count: int = 1) -> None:
        """After a step of the core that wrote ``count`` entries: what follows from its outcome."""
        driver = self._driver
        if self.quiet != STORED:
            # First: what it starts may write.
            self.quiet = STORED
            try:
                if self.on_first_write is not None:
                    self.on_first_write()
            except BaseException:
                self.expect_first_write()
                raise
        while outcome & MORE:
            outcome &= ~MORE
            if self._core.evict(BATCH, removed):
                outcome |= MORE
        if outcome & TOLD:
            self.leases.completed()
        if outcome & WAKE or driver.calls_for_thread:
            driver.written(count)
        if removed:
            self.listener.tell(removed)
        self._check_stamps()

    def interrupted(self) -> None:
        """An exception from outside came between a step of the core and the end of ``announce``: what the step has
        scheduled and completed is not forgotten."""
        self._driver.wake()
        self.leases.completed()

    def expect_first_write(self) -> None:
        """The next write has to start something."""
        self.quiet = NOTHING_YET

    def after_fork_in_child(self) -> None:
        self.expect_first_write()
        self.stamps.after_fork_in_child()

    def _check_stamps(self) -> None:
        if self.stamps.are_there and self.stamps.check():
            self._drain()


def batched(items: Iterable[Any], count: int = BATCH) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, count)):
        yield batch
