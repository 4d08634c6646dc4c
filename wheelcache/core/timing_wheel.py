"""A hierarchical timing wheel: schedule, move and cancel in O(1), whatever the number of timers.

The structure is scheme 7 of Varghese & Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987). Level 0 has
``slots`` slots of one tick each. Each further level has 64 slots, each as wide as the whole level below it. A timer
waits in the coarsest level whose slots still tell it apart from now; when the wheel comes to that slot, its timers are
filed again, one level finer at least. A timer further off than the last level waits in its furthest slot.

It is driven from outside: it has no thread, no lock and no clock. ``advance(now)`` hands out what is due. An owner that
must stay consistent between any two steps turns the wheel by ``turn`` and takes each timer out of its slot itself.

Why a hierarchy and not one wheel with rounds (scheme 6): the latter looks at every timer once a turn, until it is due.
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

The first row is the cost of taking out and scheduling again 1,300 timers a tick, which both pay.

A slot is a doubly linked list threaded through the timers themselves, so a timer costs its owner three references, a
cancel touches two neighbours and leaves nothing behind, and no table keeps the size it once had.

An asynchronous exception (a time limit, Ctrl-C) can interrupt a method where it calls another one or goes round a loop.
So what links a timer, or takes it out, is written without calls, after all that needs some: a timer is in one slot,
whatever comes.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from wheelcache import options

COARSE_SLOTS: Final = 64
COARSE_LEVELS: Final = 3

FINEST_SLOTS: Final = 512
"""The slots of a core's finest level. At 1 s per tick, this level spans 8.5 min and the coarser ones 9 hours, 24 days
and 4 years."""

FINEST_TICKS: Final = 1 << 52
"""Ticks from zero, either way, that floats can tell apart: 140 million years at a tick a second."""

NEVER: Final = 1 << 62
"""The tick of what is due later than a float can count ticks. It is filed again every few years."""


class Timer:
    """Something due at a time. Subclass it to say what; the wheel knows only when.

    ``due`` is in seconds on the clock that drives the wheel. The rest belongs to the wheel: the neighbours, which are
    None while the timer is in no slot, and ``filed``, the time that its slot was chosen for, never after ``due``.
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
    """The head of a circular list of timers: first is ``next``, last is ``prev``, and itself when empty."""

    __slots__ = ()

    def __init__(self) -> None:
        self.due = inf
        self.prev = self
        self.next = self


class _Level:
    """One ring of slots, each ``span`` ticks wide. A slot is made when first used."""

    __slots__ = ("reach", "slots", "span", "width")

    def __init__(self, width: int, span: int) -> None:
        self.width = width
        self.span = span
        self.reach = width * span
        self.slots: list[Slot | None] = [None] * width

    def next_tick(self, tick: int, before: float) -> float:
        """The first tick after ``tick`` at which a slot with timers comes by; inf if none does ahead of ``before``."""
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
    """Timers in slots, one slot a tick, a tick every ``interval`` seconds since ``now``.

    A timer never comes out early, and at most one interval after it was due, given that ``advance`` is called in time.

    Args:
        interval: seconds a tick, at least a microsecond.
        slots: ticks that the finest level spans, 1 to 16,384.
        now: the time of tick 0, in seconds on the caller's clock.

    Raises:
        TypeError, ValueError: naming the argument.
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
        # The slot whose timers have their turn, in no level any more; and the others of this tick, as level and index.
        self._current: Slot | None = None
        self._passed: list[tuple[_Level, int]] = []

    def schedule(self, timer: Timer, due: float) -> None:
        """File a timer, out of the slot that it may be in. Due at or before the current tick means the next tick."""
        slot = self.slot_for(due)
        # No calls from here on. Its neighbours are not looked up before: what is above may start the collector.
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
        """The slot of a timer that is due then. A timer is filed before the wheel turns, or it may come out late."""
        # tick_of, spelled out, as is the common case of _coarse_slot: every set of a cache comes by here.
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
                # Made first: making it may start the collector, and with it a __del__ that sets a timer here.
                made = Slot()
                self._finest[index] = slot = self._finest[index] or made
            return slot
        return self._coarse_slot(tick)

    def cancel(self, timer: Timer) -> bool:
        """Take a timer out of its slot, at once. False if it is in none."""
        before, after = timer.prev, timer.next
        if before is None or after is None:
            return False
        before.next = after
        after.prev = before
        timer.prev = timer.next = None
        return True

    def move(self, timer: Timer, due: float) -> None:
        """Give a timer another time.

        As long as that is not before the time its slot was chosen for, the timer stays where it is, and is filed again
        when the wheel comes by. A key that is set over and over with a jittered TTL is therefore filed once a TTL.
        """
        if timer.prev is not None and timer.filed <= due:
            timer.due = due
        else:
            self.schedule(timer, due)

    def advance(self, now: float, budget: float = inf, due: list[Timer] | None = None) -> list[Timer]:
        """Move on to ``now`` and take out the timers that are due, earliest tick first.

        Args:
            now: seconds; a time before the last one does nothing.
            budget: how many timers to look at, at most; what is left waits for the next call, and
                ``next_wake() <= now`` tells that there is some.
            due: where the timers go, and are to be found if this is interrupted.

        Raises:
            ValueError: ``now`` is so far off that a float cannot tell it from the next tick.
        """
        due = [] if due is None else due
        while budget > 0 and (slot := self.turn(now)) is not None:
            reached = self.time_of(self.tick)
            # The slot is in no level any more, so it may be taken apart from the front and joined up once, at the end:
            # cancelling each timer would take half as long again.
            timer: Any = slot.next
            try:
                while timer is not slot and budget > 0:
                    current = timer
                    if current.due <= reached:
                        timer = current.next
                        current.prev = current.next = None
                        due.append(current)
                    else:
                        # Joined up before, so that it can be unlinked.
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
        """Move on towards ``now`` as far as the next slot with timers, and return it; None if none comes by until then.

        The slot comes again until it is empty. Its timers are due if that is at ``time_of(tick)`` or before; the others
        are filed again. It is in no level any more, so none of them comes back to it.

        Raises:
            ValueError: ``now`` is so far off that a float cannot tell it from the next tick.
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
                # No call from here to the end: an asynchronous exception finds the slot in one place or the other.
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
        """When ``advance`` has something to do next, in seconds; inf when there are no timers."""
        current = self._current
        if self._passed or (current is not None and current.next is not current):
            return self.time_of(self.tick)
        return self.time_of(self._next_tick())

    def next_time(self, due: float) -> float:
        """When a timer that is filed now for ``due`` comes out, in seconds."""
        return self.time_of(max(self.tick_of(due), self.tick + 1))

    def emptied(self) -> TimingWheel:
        """A wheel at the same tick without timers: how to drop a million of them without touching one."""
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
        """The first tick that is not before ``due``."""
        # ceil((due - origin) / interval), and then whatever tick is right by time_of: both round, and a timer must not
        # be early by one bit, nor late by one tick for it.
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
        """When a tick is, in seconds."""
        return self.origin + tick * self.interval

    def _next_tick(self) -> Any:
        """The next tick at which a slot with timers comes by, an int; inf if there are no timers."""
        tick = inf
        for level in self._levels:
            tick = min(tick, level.next_tick(self.tick, tick))
        return tick
