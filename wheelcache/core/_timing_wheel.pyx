# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True
"""The timing wheel, compiled: the twin of timing_wheel.py, which explains it.

A step is atomic as long as no Python code runs within it: nothing is allocated, and no last reference dropped, between
the first change and the last one. The links are references as those of any object, so that the garbage collector sees
a timer whose job refers to its wheel.
"""

cimport cython
from libc.math cimport floor
from libc.stdint cimport int64_t

from wheelcache import options
from wheelcache.core import timing_wheel

cdef double INF = float("inf")
cdef int64_t NEVER = timing_wheel.NEVER
cdef double FAR = <double>NEVER
cdef double FINEST_TICKS = timing_wheel.FINEST_TICKS
cdef int64_t COARSE_SLOTS = timing_wheel.COARSE_SLOTS
cdef int COARSE_LEVELS = timing_wheel.COARSE_LEVELS


@cython.auto_pickle(False)
@cython.trashcan(True)
cdef class Timer:
    """Something due at a time. Subclass it to say what; the wheel knows only when."""

    cdef public double due
    cdef readonly double filed
    # Writable, as those of the twin: ``timing.timer_table`` takes a timer out by itself.
    cdef public Timer prev
    cdef public Timer next


cdef inline Timer new_slot():
    cdef Timer slot = Timer.__new__(Timer)
    slot.due = INF
    slot.prev = slot.next = slot
    return slot


cdef inline void drop_slot(Timer slot) noexcept:
    """An empty one, which refers to itself: without this it would be there until the next garbage collection."""
    slot.prev = slot.next = None


cdef inline bint unlink(Timer timer) noexcept:
    """Take a timer out of the slot that it may be in. Whether it was in one. Its caller refers to it."""
    cdef Timer before = timer.prev, after = timer.next
    if before is None or after is None:
        return False
    before.next = after
    after.prev = before
    timer.prev = timer.next = None
    return True


cdef inline int append(Timer slot, Timer timer) except -1:
    cdef Timer last = slot.prev
    if last is None:
        raise RuntimeError("the links of a slot of the timing wheel were broken")
    timer.prev = last
    timer.next = slot
    last.next = timer
    slot.prev = timer
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class Level:
    """One ring of slots, each ``span`` ticks wide. A slot is made when first used."""

    cdef int64_t width
    cdef int64_t span
    cdef int64_t reach
    cdef list slots

    cdef Timer slot_of(self, int64_t tick):
        cdef Py_ssize_t index = modulo(tick // self.span, self.width)
        slot = self.slots[index]
        if slot is None:
            # Made first: making it may start the collector, and with it a ``__del__`` that sets a timer here.
            made = new_slot()
            slot = self.slots[index]
            if slot is None:
                self.slots[index] = slot = made
        return <Timer>slot

    cdef int64_t next_tick(self, int64_t tick, int64_t before):
        """The first tick after ``tick`` at which a slot with timers comes by; NEVER if none does ahead of ``before``."""
        cdef int64_t step, turn = tick // self.span
        for step in range(turn + 1, turn + self.width + 1):
            if step * self.span >= before:
                break
            slot = self.slots[<Py_ssize_t>modulo(step, self.width)]
            if slot is not None:
                if (<Timer>slot).next is not slot:
                    return step * self.span
                self.slots[<Py_ssize_t>modulo(step, self.width)] = None
                drop_slot(<Timer>slot)
        return NEVER


cdef Level new_level(int64_t width, int64_t span):
    cdef Level level = Level.__new__(Level)
    level.width, level.span, level.reach, level.slots = width, span, width * span, [None] * width
    return level


cdef inline int64_t modulo(int64_t number, int64_t divisor) noexcept:
    """As Python's."""
    return number % divisor


@cython.auto_pickle(False)
cdef class TimingWheel:
    """Timers in slots, one slot a tick, a tick every ``interval`` seconds since ``now``.

    A timer never comes out early, and at most one interval after it was due, given that ``advance`` is called in time.

    Args:
        interval: seconds a tick, at least a microsecond.
        slots: ticks that the finest level spans, 1 to 16,384.
        now: the time of tick 0, in seconds on the caller's clock.

    Raises:
        TypeError, ValueError: naming the argument.
    """

    cdef readonly double interval
    cdef readonly double origin
    cdef readonly int64_t slots
    cdef readonly int64_t tick
    cdef double latest
    cdef Level finest
    cdef list levels
    # The slot whose timers have their turn, in no level any more; and those of this tick whose turn is to come.
    cdef Timer current
    cdef list passed

    def __init__(self, interval, slots, now):
        cdef int64_t width
        self.interval = options.interval("interval", interval)
        self.slots = options.slots("slots", slots)
        self.latest = self.interval * FINEST_TICKS
        self.check_time(now)
        self.origin = now
        self.finest = new_level(self.slots, 1)
        self.levels = [self.finest]
        for _ in range(COARSE_LEVELS):
            self.levels.append(new_level(COARSE_SLOTS, (<Level>self.levels[len(self.levels) - 1]).reach))
        self.passed = []

    def schedule(self, Timer timer not None, double due):
        """File a timer, out of the slot that it may be in. Due at or before the current tick means the next tick."""
        self.file(timer, due)

    cdef inline int file(self, Timer timer, double due) except -1:
        cdef Timer slot = self.find_slot(due)
        unlink(timer)
        timer.due = timer.filed = due
        append(slot, timer)
        return 0

    def slot_for(self, double due):
        """The slot of a timer that is due then. A timer is filed before the wheel turns, or it may come out late."""
        return self.find_slot(due)

    cdef Timer find_slot(self, double due):
        cdef int64_t tick = max(self.find_tick(due), self.tick + 1)
        cdef int64_t delta = tick - self.tick
        cdef Level level = self.finest
        if delta < level.width:
            return level.slot_of(tick)
        for level in self.levels:
            if delta < level.reach:
                break
        else:
            tick = self.tick + level.reach - 1
        return level.slot_of(tick)

    def cancel(self, Timer timer not None):
        """Take a timer out of its slot, at once. False if it is in none."""
        return unlink(timer)

    def move(self, Timer timer not None, double due):
        """Give a timer another time.

        As long as that is not before the time its slot was chosen for, the timer stays where it is, and is filed again
        when the wheel comes by. A key that is set over and over with a jittered TTL is therefore filed once a TTL.
        """
        if timer.prev is not None and timer.filed <= due:
            timer.due = due
        else:
            self.file(timer, due)

    def advance(self, double now, budget=INF, list due=None):
        """Move on to ``now`` and take out the timers that are due, earliest tick first.

        Args:
            now: seconds; a time before the last one does nothing.
            budget: how many timers to look at, at most; what is left waits for the next call, and
                ``next_wake() <= now`` tells that there is some.
            due: where the timers go, and are to be found if this is interrupted.

        Raises:
            ValueError: ``now`` is so far off that a float cannot tell it from the next tick.
        """
        cdef double left = budget, reached
        cdef Timer slot, timer
        if due is None:
            due = []
        while left > 0:
            slot = self.turn_to(now)
            if slot is None:
                break
            reached = self.find_time(self.tick)
            timer = slot.next
            while timer is not slot and timer is not None and left > 0:
                if timer.due <= reached:
                    due.append(timer)
                    unlink(timer)
                else:
                    self.file(timer, timer.due)
                timer = slot.next
                left -= 1
        return due

    def turn(self, double now):
        """Move on towards ``now`` as far as the next slot with timers, and return it; None if none comes by until then.

        The slot comes again until it is empty. Its timers are due if that is at ``time_of(tick)`` or before; the others
        are filed again. It is in no level any more, so none of them comes back to it.

        Raises:
            ValueError: ``now`` is so far off that a float cannot tell it from the next tick.
        """
        return self.turn_to(now)

    cdef Timer turn_to(self, double now):
        cdef int64_t target, tick
        cdef Py_ssize_t index
        cdef Level level
        cdef list passed
        self.check_time(now)
        target = <int64_t>floor((now - self.origin) / self.interval)
        if self.find_time(target) > now:
            target -= 1
        elif self.find_time(target + 1) <= now:
            target += 1
        while True:
            if self.current is not None and self.current.next is not self.current:
                return self.current
            if self.passed:
                level = <Level>self.passed.pop()
                index = modulo(self.tick // level.span, level.width)
                if self.current is not None:
                    drop_slot(self.current)
                self.current, level.slots[index] = level.slots[index], None
                continue
            # First: it may start the collector, and with it a ``__del__`` that sets an earlier timer.
            passed = []
            tick = self.find_next_tick()
            if tick > target:
                if target > self.tick:
                    self.tick = target
                return None
            for level in self.levels:
                if tick % level.span:
                    break
                passed.append(level)
            self.tick, self.passed = tick, passed

    def next_wake(self):
        """When ``advance`` has something to do next, in seconds; inf when there are no timers."""
        cdef int64_t tick
        if self.passed or self.current is not None and self.current.next is not self.current:
            return self.find_time(self.tick)
        tick = self.find_next_tick()
        return INF if tick == NEVER else self.find_time(tick)

    def next_time(self, double due):
        """When a timer that is filed now for ``due`` comes out, in seconds."""
        return self.find_time(max(self.find_tick(due), self.tick + 1))

    def emptied(self):
        """A wheel at the same tick without timers: how to drop a million of them without touching one."""
        cdef TimingWheel wheel = TimingWheel(self.interval, self.slots, self.origin)
        wheel.tick = self.tick
        return wheel

    def tick_of(self, double due):
        """The first tick that is not before ``due``."""
        return self.find_tick(due)

    def time_of(self, tick):
        """When a tick is, in seconds."""
        return self.origin + tick * self.interval

    cdef inline int64_t find_tick(self, double due) except? -1:
        # Rounding must make it neither early by one bit, nor a tick late.
        cdef double ticks = floor((due - self.origin) / self.interval)
        cdef int64_t tick
        if not -FAR < ticks < FAR:
            if ticks != ticks:
                raise ValueError("a timer cannot be due at NaN")
            return NEVER if ticks > 0 else -NEVER
        tick = <int64_t>ticks
        if self.find_time(tick) < due:
            tick += 1
            return tick + 1 if self.find_time(tick) < due else tick
        return tick - 1 if self.find_time(tick - 1) >= due else tick

    cdef inline double find_time(self, int64_t tick) noexcept:
        return self.origin + <double>tick * self.interval

    cdef int check_time(self, double now) except -1:
        if not -self.latest <= now <= self.latest:
            raise ValueError(
                f"clock must return seconds at which floats can tell intervals of {self.interval:g} s apart, "
                f"at most {self.latest:g}, not {now!r}"
            )
        return 0

    cdef int64_t find_next_tick(self):
        """The next tick at which a slot with timers comes by; NEVER if there are no timers."""
        cdef int64_t tick = NEVER
        cdef Level level
        for level in self.levels:
            tick = min(tick, level.next_tick(self.tick, tick))
        return tick
