# Why look-ups miss. A departed key leaves a fingerprint with the cause: in one table of as many slots as there are
# places for entries, and one key of 32 in addition in a table of half as many slots, which therefore goes back 16 times
# further. A miss of which the first table knows nothing counts under the causes of the sampled ones, in turn by their
# shares, so each miss counts once and no count ever falls. Without the sample, the causes were 12 to 50 points off.
#
# The turn is a multiple of the golden ratio, which spreads evenly over the shares, also if groups of keys alternate.

cdef enum:
    # In the order of contract.MissCause. The first ones are the causes of removals: a new one moves the others.
    NOT_STORED = 2  # REPLACED: the entry left, or there was none, and the new value was refused
    TAG_DROPPED = 5
    OTHER_PROCESS = 6
    LONG_GONE = 7
    MISS_CAUSES = 9  # the last one, UNKNOWN, is that of the reference core
    SAMPLED_DEPARTURES = 32
    DEPARTURES_WITHOUT_BOUND = 1024  # remembered by a cache without ``max_entries``

cdef uint32_t GOLDEN_RATIO = 0x9E3779B9  # times 2**32, without its whole part
cdef double MEMORY_OF_SAMPLE = 1.0 - 1.0 / contract.SAMPLED_MISSES


cdef struct Past:
    # The keys that left.
    Sample sample
    Departed departed
    Departed sampled
    double seen[MISS_CAUSES]  # causes of sampled misses, decayed
    uint32_t up_to[LONG_GONE]  # the shares of each cause and those before it together, of 2**32; of LONG_GONE, the rest
    uint32_t turn
    uint64_t misses[MISS_CAUSES]


cdef void open_past(Past *past, Py_ssize_t max_entries, uint64_t max_weight, uint64_t seed) noexcept:
    cdef uint32_t keys = DEPARTURES_WITHOUT_BOUND
    if max_entries >= 0:
        keys = <uint32_t>min(max_entries, <Py_ssize_t>MOST_DEPARTED)
    open_sample(&past.sample, seed, NO_INDEX // SAMPLED_DEPARTURES, max_weight)
    open_departed(&past.departed, keys)
    open_departed(&past.sampled, keys // 2 + 1)


cdef void close_past(Past *past) noexcept:
    PyMem_RawFree(past.departed.slots)
    PyMem_RawFree(past.sampled.slots)


cdef inline void note_gone(Map *map, Py_hash_t hash, Place *place, int cause) noexcept:
    """Note why there is no entry of a key.

    Args:
        place: the place of its entry, which leaves; NULL if the value was refused, or the entry was detached before.
    """
    cdef Past *past = &map.past
    cdef uint64_t spread = spread_of(&past.sample, hash)
    cdef uint32_t epoch, uses
    if map.policy == LRU:
        note_last(&past.departed, spread, cause + 1)
    else:
        epoch = map.duel.order.epoch
        if place is not NULL:
            uses = uses_of(&map.duel.order, place)
            # The secret of both samples is the same.
            map.duel.held -= is_sampled(&map.duel.sample, spread)
        else:
            uses = uses_of_departed(&past.departed, spread, epoch)
        note_departure(&past.departed, spread, uses, epoch, cause + 1)
    if is_sampled(&past.sample, spread):
        note_last(&past.sampled, spread, cause + 1)


cdef int cause_of_miss(Map *map, PyObject *key, Py_hash_t hash, double now) except -1:
    """Return why there is no fresh and current entry, as far as the entry and the first table show it.

    Args:
        now: as for ``time_for``.
    """
    cdef uint32_t index = find(map, key, hash), known
    cdef Entry *entry
    if index:
        entry = at(&map.entries, index)
        if entry.flags & HAS_TAGS and are_dropped(tags_of(&map.entries, index, entry)):
            return TAG_DROPPED
        if entry.fresh_until <= time_for(entry, now):
            return EXPIRED
        return LONG_GONE if is_current(map, index, entry) else OTHER_PROCESS
    known = cause_of_departed(&map.past.departed, spread_of(&map.past.sample, hash))
    return <int>known - 1 if known else LONG_GONE


cdef inline int counted_cause(Past *past, Py_hash_t hash) noexcept:
    """Return the cause under which a miss counts if ``cause_of_miss`` does not know it."""
    cdef uint64_t spread = spread_of(&past.sample, hash)
    cdef int each, cause = 0
    if is_sampled(&past.sample, spread):
        return sampled_cause(past, spread)
    past.turn += GOLDEN_RATIO
    for each in range(LONG_GONE):
        cause += past.turn >= past.up_to[each]
    return cause


cdef int sampled_cause(Past *past, uint64_t spread) noexcept:
    """Return the cause of a miss of a sampled key, and update the shares."""
    cdef uint32_t known = cause_of_departed(&past.sampled, spread)
    cdef int each, cause = <int>known - 1 if known else LONG_GONE
    cdef double total = 0.0, sum = 0.0
    for each in range(LONG_GONE + 1):
        past.seen[each] *= MEMORY_OF_SAMPLE
        total += past.seen[each]
    past.seen[cause] += 1.0
    for each in range(LONG_GONE):
        sum += past.seen[each]
        past.up_to[each] = <uint32_t>(sum / (total + 1.0) * NO_INDEX)
    return cause
