# The timing wheel: 11 levels of 64 slots. In base 64, the highest digit in which the tick of a timer differs from the
# current tick is its level. So all timers of a level are due before those of the next level. One bit per slot finds the
# earliest slot, and empty ticks cost nothing. The timers are the entries; a slot is a list of them, linked by index.

cdef enum:
    LEVELS = 11
    SLOTS = 64
    NOWHERE = 0xFFFF

cdef uint64_t FARTHEST_TICK = <uint64_t>1 << 62


cdef struct Wheel:
    double interval
    double origin  # the time of tick 0
    double next_due  # never too late
    uint64_t tick
    uint64_t timers
    int cascade  # the coarse slot that the wheel has reached, whose timers must be filed again; -1 for none
    uint64_t occupied[LEVELS]  # a bit for each slot that may have timers
    uint32_t first[LEVELS * SLOTS]


cdef void start_wheel(Wheel *wheel, double interval, double now) noexcept:
    memset(wheel, 0, sizeof(Wheel))
    wheel.interval, wheel.origin = interval, now
    wheel.cascade, wheel.next_due = -1, INFINITY


cdef void empty_wheel(Wheel *wheel) noexcept:
    """Forget all timers, without touching them."""
    memset(wheel.occupied, 0, sizeof(wheel.occupied))
    memset(wheel.first, 0, sizeof(wheel.first))
    wheel.timers = 0
    wheel.cascade, wheel.next_due = -1, INFINITY


cdef inline double time_of(Wheel *wheel, uint64_t tick) noexcept:
    return wheel.origin + <double>tick * wheel.interval


cdef inline uint64_t tick_of(Wheel *wheel, double due) noexcept:
    """Return the first tick that is not before ``due``. Rounding must make a timer neither early nor a tick late."""
    cdef double ticks = (due - wheel.origin) / wheel.interval
    cdef uint64_t tick
    if ticks >= <double>FARTHEST_TICK:
        return FARTHEST_TICK
    if ticks <= 0:
        return 0
    tick = <uint64_t>ticks
    if time_of(wheel, tick) < due:
        return tick + 1 if time_of(wheel, tick + 1) >= due else tick + 2
    return tick - 1 if tick and time_of(wheel, tick - 1) >= due else tick


cdef inline uint64_t tick_at(Wheel *wheel, double now) noexcept:
    """Return the last tick that is not after ``now``."""
    cdef double ticks = (now - wheel.origin) / wheel.interval
    cdef uint64_t tick
    if ticks >= <double>FARTHEST_TICK:
        return FARTHEST_TICK
    tick = <uint64_t>ticks if ticks > 0 else 0
    if tick and time_of(wheel, tick) > now:
        return tick - 1
    return tick + 1 if time_of(wheel, tick + 1) <= now else tick


cdef inline void place(Map *map, uint32_t index, Entry *entry, uint64_t tick) noexcept:
    """File a timer in the slot of ``tick``, which is not before the current tick."""
    cdef Wheel *wheel = &map.wheel
    cdef uint64_t difference = tick ^ wheel.tick
    cdef int level = highest_bit(difference) // 6 if difference else 0
    cdef int slot = (tick >> (6 * level)) & 63
    cdef int home = level * SLOTS + slot
    cdef uint32_t first = wheel.first[home]
    entry.home, entry.before, entry.after = home, 0, first
    if first:
        at(&map.entries, first).before = index
    wheel.first[home] = index
    wheel.occupied[level] |= <uint64_t>1 << slot
    wheel.timers += 1


cdef inline void cancel(Map *map, Entry *entry) noexcept:
    """Remove a timer from its slot, if it is in one."""
    if entry.home == NOWHERE:
        return
    if entry.before:
        at(&map.entries, entry.before).after = entry.after
    else:
        map.wheel.first[entry.home] = entry.after
    if entry.after:
        at(&map.entries, entry.after).before = entry.before
    entry.home, entry.filed = NOWHERE, INFINITY
    map.wheel.timers -= 1


cdef inline void move_timer(Map *map, Entry *entry, uint32_t to) noexcept:
    """Update the slot of a timer before its entry moves to the index ``to``."""
    if entry.home == NOWHERE:
        return
    if entry.before:
        at(&map.entries, entry.before).after = to
    else:
        map.wheel.first[entry.home] = to
    if entry.after:
        at(&map.entries, entry.after).before = to


cdef inline bint schedule(Map *map, uint32_t index, Entry *entry, double due, double now) noexcept:
    """File an entry that expires at ``due``, and return whether ``next_due`` became earlier.

    If the entry is filed for an earlier time, it stays in its slot, and is filed again when the wheel reaches it.
    Therefore a key that is set repeatedly is filed once per TTL.
    """
    cdef Wheel *wheel = &map.wheel
    cdef uint64_t tick
    if due >= entry.filed:
        return False
    cancel(map, entry)
    if wheel.timers == 0:
        # The wheel was idle: its tick and its cascade are outdated.
        wheel.tick = max(wheel.tick, tick_at(wheel, now))
        wheel.cascade = -1
    tick = max(tick_of(wheel, due), wheel.tick + 1)
    place(map, index, entry, tick)
    entry.filed = due
    if time_of(wheel, tick) >= wheel.next_due:
        return False
    wheel.next_due = time_of(wheel, tick)
    return True


cdef void file_again(Map *map, uint32_t index, Entry *entry) noexcept:
    """File a timer for the time at which its entry expires. If the entry never expires, only cancel the timer."""
    cdef double due = expires_at(&map.entries, index, entry)
    cancel(map, entry)
    if due != INFINITY:
        place(map, index, entry, max(tick_of(&map.wheel, due), map.wheel.tick))
        entry.filed = due


cdef bint find_slot(Wheel *wheel, int *home, uint64_t *tick) noexcept:
    """Find the earliest slot with timers and its first tick. Return False if there is none."""
    cdef int level, slot, shift
    for level in range(LEVELS):
        while wheel.occupied[level]:
            slot = lowest_bit(wheel.occupied[level])
            if wheel.first[level * SLOTS + slot]:
                shift = 6 * (level + 1)
                home[0] = level * SLOTS + slot
                tick[0] = (wheel.tick >> shift << shift if shift < 64 else 0) | (<uint64_t>slot << (6 * level))
                return True
            wheel.occupied[level] &= ~(<uint64_t>1 << slot)
    return False


cdef void find_next_due(Wheel *wheel) noexcept:
    cdef int home
    cdef uint64_t tick
    cdef double due
    if wheel.cascade >= 0 and wheel.first[wheel.cascade]:
        due = time_of(wheel, wheel.tick)
    else:
        due = time_of(wheel, tick) if find_slot(wheel, &home, &tick) else INFINITY
    # Never earlier than before: a slot may be earlier, but its timers only move to a finer level then.
    wheel.next_due = max(wheel.next_due, due)


cdef uint32_t next_expired(Map *map, double now, Py_ssize_t budget, Py_ssize_t *looked) noexcept:
    """Return the index of the next expired entry, in order of tick. Return 0 if there is none, or if ``budget`` timers
    were looked at."""
    cdef Wheel *wheel = &map.wheel
    cdef uint64_t target = tick_at(wheel, now), tick
    cdef int home
    cdef uint32_t index
    cdef Entry *entry
    while looked[0] < budget:
        if wheel.cascade >= 0:
            # The cascade goes first. Otherwise, a later tick of a finer slot would come before its timers.
            index = wheel.first[wheel.cascade]
            if index:
                file_again(map, index, at(&map.entries, index))
                looked[0] += 1
            else:
                wheel.cascade = -1
        elif not find_slot(wheel, &home, &tick) or tick > target:
            wheel.tick = max(wheel.tick, target)
            return 0
        else:
            wheel.tick = tick
            if home >= SLOTS:
                wheel.cascade = home
                wheel.occupied[home // SLOTS] &= ~(<uint64_t>1 << (home % SLOTS))
                continue
            looked[0] += 1
            index = wheel.first[home]
            entry = at(&map.entries, index)
            if expires_at(&map.entries, index, entry) <= time_of(wheel, tick):
                return index
            file_again(map, index, entry)
    return 0
