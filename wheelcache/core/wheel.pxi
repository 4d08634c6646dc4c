# The timing wheel: 11 levels of 64 slots. A timer is on the level of the highest digit, in base 64, in which its tick
# differs from the current one. So all timers of a level come before those of the next one, a bit for each slot finds
# the earliest, and empty ticks cost nothing.

cdef enum:
    LEVELS = 11
    SLOTS = 64

cdef uint64_t FARTHEST_TICK = <uint64_t>1 << 62


cdef struct Timer:
    Link link  # first, so that a pointer to it is one to the timer
    uint64_t tick


cdef struct Wheel:
    double interval
    double origin  # the time of tick 0
    double next_due  # never too late
    uint64_t tick
    Py_ssize_t timers
    uint64_t occupied[LEVELS]  # a bit for each slot that may have timers
    Link slots[LEVELS][SLOTS]
    Link cascade  # the timers of a coarse slot that the wheel has reached, to be filed again


cdef void start_wheel(Wheel *wheel, double interval, double now) noexcept:
    cdef int level, slot
    wheel.interval, wheel.origin, wheel.tick = interval, now, 0
    for level in range(LEVELS):
        for slot in range(SLOTS):
            empty(&wheel.slots[level][slot])
    empty_wheel(wheel)


cdef void empty_wheel(Wheel *wheel) noexcept:
    """Forget all timers, without touching them."""
    cdef int level, slot
    for level in range(LEVELS):
        while wheel.occupied[level]:
            slot = lowest_bit(wheel.occupied[level])
            empty(&wheel.slots[level][slot])
            wheel.occupied[level] &= ~(<uint64_t>1 << slot)
    empty(&wheel.cascade)
    wheel.timers = 0
    wheel.next_due = INF


cdef inline double time_of(Wheel *wheel, uint64_t tick) noexcept:
    return wheel.origin + <double>tick * wheel.interval


cdef inline uint64_t tick_of(Wheel *wheel, double due) noexcept:
    """The first tick that is not before ``due``. Rounding must make it neither early nor a tick late."""
    cdef double ticks = ceil((due - wheel.origin) / wheel.interval)
    cdef uint64_t tick
    if ticks >= <double>FARTHEST_TICK:
        return FARTHEST_TICK
    if ticks <= 0:
        return 0
    tick = <uint64_t>ticks
    if time_of(wheel, tick) < due:
        return tick + 1
    return tick - 1 if time_of(wheel, tick - 1) >= due else tick


cdef inline uint64_t tick_at(Wheel *wheel, double now) noexcept:
    """The last tick that is not after ``now``."""
    cdef double ticks = floor((now - wheel.origin) / wheel.interval)
    cdef uint64_t tick
    if ticks >= <double>FARTHEST_TICK:
        return FARTHEST_TICK
    tick = <uint64_t>ticks if ticks > 0 else 0
    if tick and time_of(wheel, tick) > now:
        return tick - 1
    return tick + 1 if time_of(wheel, tick + 1) <= now else tick


cdef inline void place(Wheel *wheel, Timer *timer, uint64_t tick) noexcept:
    """Into the slot of a tick from the current one on."""
    cdef uint64_t difference = tick ^ wheel.tick
    cdef int level = highest_bit(difference) // 6 if difference else 0
    cdef int slot = (tick >> (6 * level)) & 63
    timer.tick = tick
    append(&wheel.slots[level][slot], &timer.link)
    wheel.occupied[level] |= <uint64_t>1 << slot


cdef inline void cancel(Wheel *wheel, Timer *timer) noexcept:
    if timer.link.next is not NULL:
        unlink(&timer.link)
        wheel.timers -= 1


cdef inline bint schedule(Wheel *wheel, Timer *timer, double due, double now) noexcept:
    """Give a timer another time. Whether the wheel is due earlier for it."""
    cdef uint64_t tick
    if due == INF:
        cancel(wheel, timer)
        return False
    if wheel.timers == 0:
        # Idle until now: the wheel's tick is an old one.
        wheel.tick = max(wheel.tick, tick_at(wheel, now))
    tick = max(tick_of(wheel, due), wheel.tick + 1)
    if timer.link.next is NULL:
        wheel.timers += 1
    elif timer.tick == tick:
        return False
    else:
        unlink(&timer.link)
    place(wheel, timer, tick)
    if time_of(wheel, tick) >= wheel.next_due:
        return False
    wheel.next_due = time_of(wheel, tick)
    return True


cdef bint find_slot(Wheel *wheel, int *level, int *slot, uint64_t *tick) noexcept:
    """The earliest slot with timers, and its first tick. False if there is none."""
    cdef int each, index, shift
    for each in range(LEVELS):
        while wheel.occupied[each]:
            index = lowest_bit(wheel.occupied[each])
            if wheel.slots[each][index].next is not &wheel.slots[each][index]:
                level[0], slot[0] = each, index
                shift = 6 * (each + 1)
                tick[0] = (wheel.tick >> shift << shift if shift < 64 else 0) | (<uint64_t>index << (6 * each))
                return True
            wheel.occupied[each] &= ~(<uint64_t>1 << index)
    return False


cdef void find_next_due(Wheel *wheel) noexcept:
    cdef int level, slot
    cdef uint64_t tick
    cdef double turns
    if wheel.cascade.next is not &wheel.cascade:
        turns = time_of(wheel, wheel.tick)
    else:
        turns = time_of(wheel, tick) if find_slot(wheel, &level, &slot, &tick) else INF
    # No timer left is due before: one that only waits to move to a finer level is not late.
    wheel.next_due = max(wheel.next_due, turns)


cdef Link *next_expired(Wheel *wheel, double now, Py_ssize_t budget, Py_ssize_t *looked) noexcept:
    """The next timer that is due, in order of tick. NULL if there is none, or ``budget`` timers were looked at."""
    cdef uint64_t target = tick_at(wheel, now), tick
    cdef int level, slot
    cdef Link *head
    while looked[0] < budget:
        if wheel.cascade.next is not &wheel.cascade:
            # Before anything else, or a later tick of a finer slot would come first.
            head = wheel.cascade.next
            unlink(head)
            place(wheel, <Timer *>head, (<Timer *>head).tick)
            looked[0] += 1
        elif not find_slot(wheel, &level, &slot, &tick) or tick > target:
            wheel.tick = max(wheel.tick, target)
            return NULL
        else:
            wheel.tick = tick
            head = &wheel.slots[level][slot]
            if level == 0:
                looked[0] += 1
                return head.next
            # The list changes its head.
            wheel.cascade = head[0]
            wheel.cascade.next.prev = wheel.cascade.prev.next = &wheel.cascade
            empty(head)
    return NULL
