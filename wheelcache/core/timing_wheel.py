"""A hierarchical timing wheel: schedule, move and cancel in O(1), whatever the number of timers.

The structure is scheme 7 of Varghese & Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987). Level 0 has
``slots`` slots of one tick each. Each further level has 64 slots, each as wide as the whole level below it. A timer
waits on the finest level that reaches its tick. When the wheel reaches a slot of a coarser level, it files the timers
of that slot again, at least one level finer. A timer beyond the reach of the last level waits in its furthest slot.

The wheel has no thread, no lock and no clock. ``advance(now)`` returns the timers that are due. An owner that must stay
consistent between any two steps calls ``turn`` and removes each timer from its slot itself.

A single wheel with rounds (scheme 6) was rejected: it looks at every timer once per revolution until the timer is due.
With 200,000 timers on 512 slots of 1 s, a tick took, on average over a simulated hour (CPython 3.11,
``python -m benchmarks.wheel_design``):

    =============  ========  =========
    delays up to   rounds    hierarchy
    =============  ========  =========
    5 minutes      299 us    338 us
    1 hour         77 us     78 us
    1 day          61 us     7.7 us
    30 days        63 us     4.8 us
    =============  ========  =========

The first row is dominated by removing and scheduling again 1,300 timers per tick, which costs the same in both designs.

A slot is a doubly linked list whose links are attributes of the timers. A timer therefore needs three references, a
cancel changes only two neighbors, and no table keeps its former size.

An asynchronous exception (a time limit, Ctrl-C) can interrupt a method at a call or at the end of a loop's body. The
lines that link or unlink a timer therefore contain no calls and come after all calls: after any exception, a timer is
in exactly one slot or in none.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from wheelcache.engine import options

COARSE_SLOTS: Final = 64
COARSE_LEVELS: Final = 3

FINEST_SLOTS: Final = 512
"""The number of slots of a core's finest level. At 1 s per tick, this level spans 8.5 minutes, and the coarser levels
span 9 hours, 24 days and 4 years."""

FINEST_TICKS: Final = 1 << 52
"""The number of ticks before or after zero that floats can distinguish: 140 million years at one tick per second."""

NEVER: Final = 1 << 62
"""The tick of timers that are due later than a float can count ticks. They are filed again every few years."""


class Timer:
    """A timer. A subclass adds the data of the owner.

    Attributes:
        due: the time at which the timer is due, in seconds on the owner's clock.
        filed: for the wheel: the time for which the slot was chosen, never after ``due``.
        prev, next: for the wheel: the neighbors in the slot; None while the timer is in no slot.
    """

    __slots__ = ("due", "filed", "next", "prev")

    due: float
    filed: float
    prev: Timer | None
    next: Timer | None

    def __init__(self) -> None:
        self.prev = None
        self.next = None


class Slot(Timer):
    """The head of a circular list of timers: ``next`` is the first timer and ``prev`` the last one. In an empty list,
    both are the head itself."""

    __slots__ = ()

    def __init__(self) -> None:
        self.due = inf
        self.prev = self
        self.next = self


class _Level:
    """A ring of slots, each ``span`` ticks wide. A slot is created when it is first used."""

    __slots__ = ("reach", "slots", "span", "width")

    def __init__(self, width: int, span: int) -> None:
        self.width = width
        self.span = span
        self.reach = width * span
        self.slots: list[Slot | None] = [None] * width

    def next_tick(self, tick: int, before: float) -> float:
        """Return the first tick after ``tick`` at which the wheel reaches a slot with timers; inf if there is no such
        tick earlier than ``before``."""
        slots, width, span = self.slots, self.width, self.span
        turn = tick // span
        for step in range(turn + 1, turn + width + 1):
            if step * span >= before:
                break
            slot = slots[step % width]
            if slot is not None:
                if slot.next is not slot:
                    return step * span
                slots[step % width] = None
        return inf


class TimingWheel:
    """A hierarchical timing wheel with one tick every ``interval`` seconds since ``now``.

    A timer never fires early, and it fires at most one interval late if ``advance`` is called in time.

    Args:
        interval: seconds per tick, at least a microsecond.
        slots: the number of ticks that the finest level spans, 1 to 16,384.
        now: the time of tick 0, in seconds on the caller's clock.

    Raises:
        TypeError, ValueError: if an argument is invalid; the message names it.
    """

    __slots__ = ("_current", "_finest", "_latest", "_levels", "_passed", "interval", "origin", "slots", "tick")

    def __init__(self, interval: float, slots: int, now: float) -> None:
        self.interval = options.interval("interval", interval)
        self.slots = options.slots("slots", slots)
        self._latest = self.interval * FINEST_TICKS
        self._check_time(now)
        self.origin = now
        self.tick = 0
        self._levels = [_Level(slots, 1)]
        for _ in range(COARSE_LEVELS):
            self._levels.append(_Level(COARSE_SLOTS, self._levels[-1].reach))
        self._finest = self._levels[0].slots
        # The slot whose timers are handled now, which is no longer part of a level; and the remaining slots of this
        # tick, as pairs (level, index).
        self._current: Slot | None = None
        self._passed: list[tuple[_Level, int]] = []

    def schedule(self, timer: Timer, due: float) -> None:
        """File a timer, and remove it from its present slot, if any. A timer that is due at or before the current tick
        is filed for the next tick."""
        slot = self.slot_for(due)
        # No calls from here on. The neighbors are read only now: a call may start the collector, which may change them.
        before, after = timer.prev, timer.next
        if before is not None and after is not None:
            before.next = after
            after.prev = before
        timer.due = timer.filed = due
        last = slot.prev
        timer.prev = last
        timer.next = slot
        last.next = slot.prev = timer  # type: ignore[union-attr]  # a slot's ring has no gaps

    def slot_for(self, due: float) -> Slot:
        """Return the slot for a timer that is due at ``due``. Link the timer before the wheel turns, or it may fire
        late."""
        # This repeats tick_of and the common case of _coarse_slot, since every set of a cache calls this method.
        try:
            tick = -int((self.origin - due) // self.interval)
        except OverflowError:
            tick = NEVER
        if self.origin + tick * self.interval < due:
            tick += 1
        elif self.origin + (tick - 1) * self.interval >= due:
            tick -= 1
        if 0 < tick - self.tick < self.slots:
            index = tick % self.slots
            slot = self._finest[index]
            if slot is None:
                # Creating a slot may start the collector, and a __del__ may file a timer in this slot: look again.
                made = Slot()
                self._finest[index] = slot = self._finest[index] or made
            return slot
        return self._coarse_slot(tick)

    def cancel(self, timer: Timer) -> bool:
        """Remove a timer from its slot. Return False if it is in no slot."""
        before, after = timer.prev, timer.next
        if before is None or after is None:
            return False
        before.next = after
        after.prev = before
        timer.prev = timer.next = None
        return True

    def move(self, timer: Timer, due: float) -> None:
        """Give a timer another time.

        Unless the new time is earlier than the time for which the slot was chosen, the timer stays in its slot and is
        filed again when the wheel reaches that slot. Therefore a key that is set repeatedly with a jittered TTL is
        filed once per TTL.
        """
        if timer.prev is not None and timer.filed <= due:
            timer.due = due
        else:
            self.schedule(timer, due)

    def advance(self, now: float, budget: float = inf, due: list[Timer] | None = None) -> list[Timer]:
        """Advance to ``now``. Remove and return the timers that are due, earliest tick first.

        Args:
            now: the time in seconds. A time before that of the last call has no effect.
            budget: the number of timers to look at, at most. While ``next_wake() <= now``, there is work left for the
                next call.
            due: the list that receives the timers. If an exception interrupts this method, the removed timers are in
                it.

        Raises:
            ValueError: if ``now`` is too large for a float to distinguish it from the next tick.
        """
        due = [] if due is None else due
        while budget > 0 and (slot := self.turn(now)) is not None:
            reached = self.time_of(self.tick)
            # The slot is no longer part of a level, so its timers are removed from the front, and the list is repaired
            # once, at the end. Cancelling each timer would take 1.5 times as long.
            timer: Any = slot.next
            try:
                while timer is not slot and budget > 0:
                    current = timer
                    if current.due <= reached:
                        timer = current.next
                        current.prev = current.next = None
                        due.append(current)
                    else:
                        # Repair the list first, so that ``schedule`` can unlink the timer.
                        slot.next = current
                        current.prev = slot
                        self.schedule(current, current.due)
                        timer = slot.next
                    budget -= 1
            finally:
                slot.next = timer
                timer.prev = slot
        return due

    def turn(self, now: float) -> Slot | None:
        """Advance to the next slot with timers that the wheel reaches by ``now``, and return it; None if there is none.

        Each call returns the same slot until it is empty. The caller removes the timers that are due at
        ``time_of(tick)`` or before, and files the others again. The slot is no longer part of a level, so no timer is
        filed in it again.

        Raises:
            ValueError: if ``now`` is too large for a float to distinguish it from the next tick.
        """
        self._check_time(now)
        target = int((now - self.origin) // self.interval)
        if self.time_of(target) > now:
            target -= 1
        elif self.time_of(target + 1) <= now:
            target += 1
        while True:
            slot = self._current
            if slot is not None and slot.next is not slot:
                return slot
            if self._passed:
                level, index = self._passed[-1]
                # No call in these lines: an asynchronous exception finds the slot in one place or the other.
                del self._passed[-1]
                self._current = level.slots[index]
                level.slots[index] = None
                continue
            tick = self._next_tick()
            if tick > target:
                if target > self.tick:
                    self.tick = target
                return None
            passed = []
            for level in self._levels:
                if tick % level.span:
                    break
                passed.append((level, tick // level.span % level.width))
            self.tick, self._passed = tick, passed

    def next_wake(self) -> float:
        """Return the next time at which ``advance`` has work, in seconds; inf if there are no timers."""
        current = self._current
        if self._passed or (current is not None and current.next is not current):
            return self.time_of(self.tick)
        return self.time_of(self._next_tick())

    def next_time(self, due: float) -> float:
        """Return the time at which a timer that is filed now for ``due`` fires, in seconds."""
        return self.time_of(max(self.tick_of(due), self.tick + 1))

    def emptied(self) -> TimingWheel:
        """Return a wheel at the same tick without timers. Replacing a wheel drops all its timers in O(1)."""
        wheel = TimingWheel(self.interval, self.slots, self.origin)
        wheel.tick = self.tick
        return wheel

    def _check_time(self, now: float) -> None:
        if not -self._latest <= now <= self._latest:
            raise ValueError(
                f"clock must return seconds at which floats can tell intervals of {self.interval:g} s apart, "
                f"at most {self._latest:g}, not {now!r}"
            )

    def _coarse_slot(self, tick: int) -> Slot:
        tick = max(tick, self.tick + 1)
        delta = tick - self.tick
        for level in self._levels:
            if delta < level.reach:
                break
        else:
            tick = self.tick + level.reach - 1
        index = tick // level.span % level.width
        slot = level.slots[index]
        if slot is None:
            made = Slot()
            level.slots[index] = slot = level.slots[index] or made
        return slot

    def tick_of(self, due: float) -> int:
        """Return the first tick that is not before ``due``."""
        # This is ceil((due - origin) / interval), corrected by time_of. Both are rounded, and rounding must make a
        # timer neither early by one bit nor late by one tick.
        try:
            tick = -int((self.origin - due) // self.interval)
        except OverflowError:
            return NEVER
        if self.origin + tick * self.interval < due:
            tick += 1
        elif self.origin + (tick - 1) * self.interval >= due:
            tick -= 1
        return tick

    def time_of(self, tick: float) -> float:
        """Return the time of a tick, in seconds."""
        return self.origin + tick * self.interval

    def _next_tick(self) -> Any:
        """Return the next tick, an int, at which the wheel reaches a slot with timers; inf if there are no timers."""
        tick = inf
        for level in self._levels:
            tick = min(tick, level.next_tick(self.tick, tick))
        return tick
