"""The path of a write: open the gate, weigh, one step of the core, wake the wheel thread, notify waiters and listener.

Every write by a caller passes through ``EntryWriter.adapted``, and every TTL through ``EntryWriter.seconds``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from wheelcache.core import WriteState
from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, TTL
from wheelcache.core.contract import (
    BATCH,
    CHANGED,
    COMPLETED,
    KEEP_TTL,
    MISSING,
    MORE,
    OUTDATED,
    STORED,
    WAKE,
    Core,
    Labels,
    RemovalCause,
    Removals,
    Watch,
)
from wheelcache.engine import options
from wheelcache.engine.codec import UndecodedLog, size_of
from wheelcache.engine.gate import Gate
from wheelcache.engine.keys import CALLERS, GROUP, KeyProxies, group_of, unwrap
from wheelcache.engine.write_watcher import WriteWatcher
from wheelcache.runtime.reusable import USUAL, check_reusable
from wheelcache.runtime.wheel_driver import WheelDriver

logger = logging.getLogger("wheelcache")

W = TypeVar("W", bound=WriteWatcher)

Weigher = Callable[[Any, Any], int]

NOTHING_YET: Final = -1
"""A number that differs from every outcome."""


Listener = Callable[[Any, Any, RemovalCause], object]


class RemovalListener:
    """Removes due entries of one core, as the wheel of a ``WheelDriver``, and calls the listener for all removals.

    Args:
        name: the name of the cache.
        function: the listener, ``function(key, value, cause)``, or None. It may be replaced at any time.
    """

    __slots__ = ("_core", "_name", "function")

    def __init__(self, name: str, core: Core, function: Listener | None) -> None:
        self._name = name
        self._core = core
        self.set(function)

    def __repr__(self) -> str:
        return f"<Cache {self._name!r}, {len(self._core)} entries>"

    def set(self, function: Listener | None) -> None:
        self.function = options.function_or_none("on_removal", function)

    def list(self) -> Removals | None:
        """Return a list in which a step of the core collects removals; None if there is no listener."""
        return None if self.function is None else []

    def notify(self, done: Removals | None) -> None:
        """Call the listener for each removal, without a lock.

        Exceptions are logged, except for an exit or Ctrl-C, which is raised immediately: the listener misses the rest.
        """
        function = self.function
        if not done or function is None:
            return
        for key, value, cause in done:
            try:
                function(unwrap(key), value, cause)
            except Exception:
                logger.exception("on_removal of the cache %r raised for %r.", self._name, unwrap(key))

    @property
    def next_due(self) -> float:
        return self._core.next_due

    def take_due(self, budget: int) -> Removals | None:
        removed = self.list()
        self._core.advance(budget, removed)
        return removed

    def use_clock(self, clock: Callable[[], float]) -> None:
        self._core.use_clock(clock)


class EntryWriter(WriteState):
    """The writes of one cache.

    Args:
        options: the arguments of ``Cache``, checked.
        keys: adapts the callers' keys to the core.
        start_jobs: called after the first write, and after the first write since ``expect_first_write``.

    Attributes:
        name: the name of the cache.
        listener: notified of removals.
        watchers: notified of writes. Their order does not matter.
        usual_outcome: the outcome of a ``set`` that needs no further work. It equals no outcome if the next write must
            start the wheel thread (after a fork) or the periodic jobs.
    """

    __slots__ = (
        *("_attaching", "_start_jobs", "_core", "_driver", "_keys", "_gate", "_ttl", "_undecoded", "_weigher"),
        *("listener", "name", "watchers"),
    )

    def __init__(
        self,
        options: Any,
        core: Core,
        driver: WheelDriver,
        listener: RemovalListener,
        keys: KeyProxies,
        gate: Gate,
        start_jobs: Callable[[], object],
    ) -> None:
        self.name = options.name
        self._core = core
        self._driver = driver
        self.listener = listener
        weigher = options.weigher
        # A weight in bytes includes the entry itself, whose size only the core knows.
        self._weigher: Weigher | None = (
            partial(size_of, entry_bytes=core.entry_bytes) if weigher is size_of else weigher
        )
        self._keys = keys
        self._ttl: float | None = options.ttl
        self._gate = gate
        self._start_jobs = start_jobs
        self._undecoded = UndecodedLog(self.name, driver.clock)
        self.watchers: tuple[WriteWatcher, ...] = ()
        self.leased = None
        self._attaching: Any = threading.RLock()
        self.usual_outcome = NOTHING_YET
        self.listen(listener.function)

    def listen(self, function: Any) -> None:
        """Notify ``function`` of removals from now on."""
        self.listener.set(function)
        self.is_plain = self.listener.function is None and self._weigher is None

    # Watchers.

    def watcher(self, kind: type[W], make: Callable[[], W]) -> W:
        """Return the watcher of a kind. The first call makes and attaches it."""
        with self._attaching:
            for each in self.watchers:
                if isinstance(each, kind):
                    return each
            made = make()
            self._notify(made)
            self.watchers = (*self.watchers, made)
        return made

    def _notify(self, watcher: WriteWatcher) -> None:
        """Let the compiled calls notify a watcher."""
        if watcher.words is not None:
            self.record_in(watcher.words)
        else:
            self.leased = watcher.open

    def writing(self, name: Hashable) -> None:
        for each in self.watchers:
            each.writing(name)

    def writing_any(self) -> None:
        for each in self.watchers:
            each.writing_any()

    def refused(self, key: Hashable) -> None:
        for each in self.watchers:
            each.refused(key)

    def deleted(self, key: Hashable) -> None:
        for each in self.watchers:
            each.deleted(key)

    @property
    def records_misses(self) -> bool:
        return self._driver.is_frozen

    def missed(self, key: Any) -> None:
        """Remove an entry that a call found expired in frozen time: a test may move the time back, but the entry must
        not reappear."""
        if self._driver.is_frozen:
            times = self._core.times(key)
            if times is not None and times.expires_at <= self._core.now():
                self.discard(key)

    # Writes by callers, with their keys and TTLs.

    def adapted(self, key: Any) -> Any:
        """Begin a write of the entry of ``key``. Return the key for the core."""
        if self._gate.is_shut or self._gate.is_closed:
            self._gate.open()
        return key if type(key) is str else self._keys.adapt(key)

    def seconds(self, ttl: TTL) -> float | None:
        """Return ``ttl`` in seconds; None for no expiry.

        Raises:
            TypeError, ValueError: if ``ttl`` is neither a number of seconds > 0 nor None.
        """
        if ttl is DEFAULT_TTL:
            return self._ttl
        if ttl is None or (type(ttl) is int and 0 < ttl < MAX_FAST_TTL):
            return ttl
        return options.ttl("ttl", ttl)

    def weigh(self, key: Any, value: Any) -> int:
        """Return the weight of an entry, whose key is that of the core; 0 without a weigher."""
        if self._weigher is None:
            return 0
        weight = self._weigher(key if type(key) is str else unwrap(key), value)
        return weight if type(weight) is int and weight >= 0 else options.whole("the result of the weigher", weight)

    def _labels(self, key: Any, tags: tuple[str, ...], since: int = 0, group: str | None = None) -> Labels | None:
        names = self.tag_names(key, tags) if tags or type(key) is not str else ()
        return (names, since, group) if names or group is not None else None

    def tag_names(self, key: Any, tags: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the tags of an entry for the core: the caller's ``tags``, and the group of the core's ``key``."""
        names = tuple([CALLERS + tag for tag in tags]) if tags else ()
        group = None if type(key) is str else group_of(key)
        return names if group is None else (*names, GROUP + group)

    def set(
        self,
        key: Any,
        value: Any,
        ttl: TTL,
        *,
        grace: float = 0.0,
        exact: bool = False,
        tags: tuple[str, ...] = (),
        since: int = 0,
        group: str | None = None,
    ) -> int:
        """Store ``value``. Return the core's outcome.

        Args:
            tags: checked by ``options.tags``.
            since: the moment at which the computation of the value began, if the caller knows it; otherwise 0. If one
                of the tags was dropped after that, the value is not stored.
            group: the name of the entry's group of keys; None if the key decides.
        """
        seconds = ttl if type(ttl) is int and 0 < ttl < MAX_FAST_TTL else self.seconds(ttl)
        key = self.adapted(key)
        labels = self._labels(key, tags, since, group)
        weight, removed = self._begin(key, value)
        outcome = self._core.set(key, value, seconds, grace, exact, weight, labels, removed)
        if outcome == OUTDATED and labels is not None and labels[0]:
            # Readers must not receive the older value after this call. A waiter may then set a newer one.
            self._core.delete(key, removed=removed)
        return self._end(key, outcome, removed)

    def add(self, key: Any, value: Any, ttl: TTL, tags: tuple[str, ...] = (), since: int = 0) -> int:
        """Store ``value``, without jitter, unless the key exists. Return the core's outcome. See ``set``."""
        seconds = self.seconds(ttl)
        key = self.adapted(key)
        labels = self._labels(key, tags, since)
        weight, removed = self._begin(key, value)
        return self._end(key, self._core.add(key, value, seconds, weight, labels, removed), removed)

    def set_many(
        self,
        items: Iterable[tuple[Any, Any]],
        ttl: TTL,
        *,
        exact: bool,
        tags: tuple[str, ...] = (),
    ) -> list[Any]:
        """Store the pairs of key and value. Return the keys that were not stored."""
        seconds, items = self.seconds(ttl), list(items)
        # All items are checked before the first write, so an invalid one changes nothing.
        for key, value in items:
            self.adapted(key)
            check_reusable(value)
        return [key for key, value in items if not self.set(key, value, seconds, exact=exact, tags=tags) & STORED]

    def update(self, key: Any, function: Callable[[Any], Any]) -> Any:
        """Replace a value by ``function(value)``; keep its times. Return the new value, or MISSING without an entry."""
        return self._replace(key, function, KEEP_TTL)[0]

    def replace(self, key: Any, value: Any, ttl: TTL, grace: float) -> bool:
        """Store ``value`` if there is a fresh and current entry, which keeps its tags. Return whether it was stored."""
        return bool(self._replace(key, lambda old: value, self.seconds(ttl), grace)[1] & STORED)

    def renew(self, key: Any, value: Any, ttl: TTL = DEFAULT_TTL, grace: float = 0.0) -> bool:
        """Give an entry whose value equals ``value`` a new TTL from now, without jitter. Return whether it exists."""

        def same(old: Any) -> Any:
            return old if type(old) is type(value) and old == value else MISSING

        return bool(self._replace(key, same, self.seconds(ttl), grace, exact=True)[1] & STORED)

    def _replace(
        self, key: Any, function: Callable[[Any], Any], ttl: float | None, grace: float = 0.0, *, exact: bool = False
    ) -> tuple[Any, int]:
        """Replace a value by ``function(value)``, unless that is MISSING. Return the new value and the core's outcome;
        MISSING and 0 without an entry."""
        key = self.adapted(key)
        while (record := self._core.peek(key)) is not None:
            times = record.times
            if not times.is_current or times.fresh_until <= self._core.now():
                break
            value = function(record.value)
            if value is MISSING:
                return MISSING, 0
            weight, removed = self._begin(key, value)
            outcome = self._core.replace(key, value, ttl, record.value, grace, exact, weight, removed)
            self._end(key, outcome, removed)
            if not outcome & CHANGED:
                return value, outcome
        self.missed(key)
        return MISSING, 0

    def touch(self, key: Any, ttl: TTL) -> bool:
        """Give a fresh and current entry a new TTL from now, without jitter. Return False if there is no such entry."""
        seconds = self.seconds(ttl)
        key = self.adapted(key)
        if self.watchers:
            self.writing(key)
        outcome = self._core.touch(key, seconds)
        self.announce(outcome, None)
        if not outcome:
            self.missed(key)
        return bool(outcome & STORED)

    def delete(self, key: Any) -> Any:
        """Remove an entry. Return its value if it was fresh and current, otherwise MISSING."""
        key = self.adapted(key)
        if self.watchers:
            self.writing(key)
        removed = self.listener.list()
        value = self._core.delete(key, MISSING, removed=removed)
        self.listener.notify(removed)
        if self.watchers:
            self.deleted(key)
        return value

    def delete_many(self, keys: Iterable[Any]) -> int:
        """Remove entries. Return the number of removed entries that were fresh and current."""
        keys = list(keys)
        for key in keys:
            self.adapted(key)
        return len([key for key in keys if self.delete(key) is not MISSING])

    # Other writes, with keys of the core.

    def _begin(self, key: Any, value: Any) -> tuple[int, Removals | None]:
        """Check and weigh a value, and notify the watchers. Return the weight, and the list for the listener."""
        if type(value) not in USUAL:
            check_reusable(value)
        weight = 0 if self._weigher is None else self.weigh(key, value)
        if self.watchers:
            self.writing(key)
        return weight, None if self.listener.function is None else []

    def _end(self, key: Any, outcome: int, removed: Removals | None) -> int:
        """Handle the outcome of a write, and return it."""
        if outcome == OUTDATED:
            self.refused(key)
        if outcome != self.usual_outcome or self._driver.calls_for_thread:
            self.announce(outcome, removed)
        elif removed:
            self.listener.notify(removed)
        return outcome

    def store(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float,
        watch: Watch,
        names: tuple[str, ...],
        group: str | None = None,
    ) -> tuple[int, Removals | None]:
        """Store a loaded value, unless the key was written, or one of its tags dropped, since ``watch`` began. Return
        the arguments of ``announce``. A value with a TTL of 0 or less is not stored."""
        if ttl is not None and ttl <= 0:
            # An older value that is kept past its time must not be returned after this one.
            self.discard(key)
            return 0, None
        labels = (names, 0, group) if names or group is not None else None
        weight = 0 if self._weigher is None else self.weigh(key, value)
        removed: Removals | None = None if self.listener.function is None else []
        return self._core.fill(key, value, ttl, watch, grace, weight, labels, removed), removed

    def drop_tag(self, name: str) -> int:
        """Turn all entries with a tag, given by the core's name, into misses. Return how many of them are in memory.

        The wheel thread removes the entries and notifies the listener, within a second.
        """
        if self.watchers:
            self.writing(name)
        try:
            return self._core.drop_tag(name)
        finally:
            # Later drops do not wake the thread, which takes longer than the drop.
            if self._core.next_due == -inf or self._driver.calls_for_thread:
                self._driver.wake()

    def discard(self, key: Any) -> None:
        """Remove an entry that is stale or not current."""
        removed = self.listener.list()
        self._core.delete(key, only_dead=True, removed=removed)
        self.listener.notify(removed)

    def remove_undecoded(self, key: Any, value: Any, error: Exception, *, was_hit: bool = False) -> None:
        """Remove the entry of ``key`` if it has this ``value``, whose decoding has raised ``error``, and log that.

        Args:
            was_hit: whether the look-up was counted as a hit, which is taken back. The caller counts it as a miss.
        """
        removed = self.listener.list()
        self._core.remove_value(key, value, removed, was_hit=was_hit)
        self.listener.notify(removed)
        self._undecoded.note(unwrap(key), error)

    def evict_to(self, size: int) -> None:
        more = True
        while more:
            removed = self.listener.list()
            more = self._core.evict(BATCH, removed, size=size)
            self.listener.notify(removed)

    def clear(self, *, invalidate: bool = True) -> None:
        """Remove every entry, and notify the listener of each.

        Args:
            invalidate: False if the cache closes: entries that processes share stay.
        """
        if invalidate:
            for each in self.watchers:
                each.writing_any()
                each.cleared()
        self._drain(self._core.clear(invalidate=invalidate))

    def _drain(self, detached: int = 0) -> None:
        """Notify the listener of all detached entries. Without a listener, the wheel thread drops the entries that do
        not fit into one batch.

        Args:
            detached: the number of entries, if it is known. If there are more than a batch, the caller drops none: the
                core notes each of them among the departed keys, whose table may be too large to be in memory yet, and
                a batch then takes 2 ms.
        """
        if self.listener.function is None:
            if detached <= BATCH:
                self._core.drain()
            self._driver.wake()
            return
        more = True
        while more:
            removed: Removals = []
            more = self._core.drain(BATCH, removed)
            self.listener.notify(removed)

    def announce(self, outcome: int, removed: Removals | None, count: int = 1) -> None:
        """Handle the outcome of a step of the core that wrote ``count`` entries."""
        driver = self._driver
        if self.usual_outcome != STORED:
            # Assigned before the call, which may write itself.
            self.usual_outcome = STORED
            try:
                self._start_jobs()
            except BaseException:
                self.expect_first_write()
                raise
        while outcome & MORE:
            outcome &= ~MORE
            if self._core.evict(BATCH, removed):
                outcome |= MORE
        if outcome & COMPLETED:
            for each in self.watchers:
                each.completed()
        if outcome & WAKE or driver.calls_for_thread:
            driver.written(count)
        if removed:
            self.listener.notify(removed)

    def expect_first_write(self) -> None:
        """Let the next write call ``start_jobs``."""
        self.usual_outcome = NOTHING_YET

    def after_fork_in_child(self) -> None:
        self._attaching = threading.RLock()
        for each in self.watchers:
            each.after_fork_in_child()
            self._notify(each)
        self.expect_first_write()
