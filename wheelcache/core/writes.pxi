# The steps of ``set``, ``touch`` and ``delete``.

cdef enum:
    # When a value is stored: always; if no fresh and current entry exists; if the value is the expected one.
    ANY
    ABSENT
    SAME


cdef struct Write:
    PyObject *key
    PyObject *value
    PyObject *expected
    Py_hash_t hash
    double now
    double ttl
    double grace
    bint exact
    int mode
    uint64_t weight
    PyObject *tags  # a tuple of names; NULL without tags
    uint64_t since
    PyObject *group  # bytes; NULL if the key decides


cdef inline int check_weight(int64_t weight) except -1:
    if not 0 <= weight <= MAX_WEIGHT:
        raise OverflowError(f"a weight must be from 0 to 2**62, not {weight!r}")
    return 0


cdef inline void prepare_eviction(Map *map) noexcept:
    """Prefetch the entry that the next eviction removes. The cache misses on it were the slowest part of a set of a new
    key."""
    cdef Entry *entry = at(&map.entries, victim(map))
    prefetch(entry.key)
    prefetch(at(&map.entries, bucket_of(&map.entries, entry.hash)[0]))
    if likely(map.past.departed.slots is not NULL):
        prefetch(set_of(&map.past.departed, spread_of(&map.past.sample, entry.hash)))


cdef inline int refused(Map *map, uint32_t index, Write *write, int outcome) noexcept:
    """Return the outcome of a value that is not stored, and note it if the key has no entry."""
    if index == 0:
        note_gone(map, write.hash, NULL, NOT_STORED)
    return outcome


cdef int put(CompiledCore core, Write *write, list watches, Watch under, Gone *gone) except -1:
    """Do the step of ``set``, and return the outcome. If it raises an exception, it has changed no
    entry.

    Args:
        watches: the watches on the key, or None.
        under: the watch under which the value is set, or None.
    """
    cdef Map *map = &core.map
    cdef Entries *entries = &map.entries
    cdef Entry *entry
    cdef TagList *held = NULL
    cdef PyObject *old_key
    cdef double fresh_until, due
    cdef uint32_t index, group
    cdef int outcome = 0, cause
    cdef uint64_t trust = present_trust(map) if under is None else under.trust
    cdef bint is_there
    if not has_room(gone):
        raise MemoryError
    index = find(map, write.key, write.hash)
    if under is not None and under.broken:
        return refused(map, index, write, CHANGED)
    if write.mode != ANY:
        is_there = is_live(map, index, write.now)
        if write.mode == SAME:
            if not is_there or at(entries, index).value is not write.expected:
                return CHANGED
        elif is_there:
            return PRESENT
    if unlikely(write.tags is not NULL):
        if write.mode == SAME:
            # The entry keeps its tags.
            write.tags = NULL
        elif not check_tags(map, <tuple>write.tags, write.since if under is None else under.since):
            return refused(map, index, write, OUTDATED if under is None else CHANGED)
    if write.ttl == KEEP_TTL and write.mode == SAME:
        fresh_until = at(entries, index).fresh_until
        due = expires_at(entries, index, at(entries, index))
    else:
        fresh_until = write.now + shortened(&core.jitter, write.ttl, write.exact)
        due = fresh_until + write.grace
    if write.weight > map.max_weight:
        if index:
            remove_entry(map, index, REPLACED, write.now, gone)
        # An expired entry leaves as EXPIRED, but what later look-ups miss is the refused value.
        outcome = refused(map, 0, write, TOO_HEAVY)
    else:
        if not index or due > fresh_until or core.weighs or map.trust.word is not NULL or write.tags is not NULL:
            reserve(map, index, due > fresh_until, write.weight if core.weighs else 0, write.tags is not NULL)
        if unlikely(write.tags is not NULL):
            held = new_list(map, <tuple>write.tags)
    # From here on, nothing can fail.
    if watches is not None:
        if under is None or is_trusted(map, trust):
            outcome |= complete_watches(watches, <object>write.value, under)
        else:
            break_watches(watches, under)
    if outcome & TOO_HEAVY:
        return outcome
    Py_INCREF(write.value)
    if index:
        entry = at(entries, index)
        cause = REPLACED if entry.fresh_until > write.now else EXPIRED
        map.removals[cause] += 1
        # The entry keeps its key. A second reference is needed only if the removal is reported.
        old_key = NULL if gone.removed is NULL else entry.key
        Py_XINCREF(old_key)
        add_removal(gone, old_key, entry.value, cause)
        entry.value = write.value
        on_use(map, index, entry)
        if unlikely(cause == EXPIRED) and write.group is NULL:
            # A page whose view has another name by now.
            set_group_number(entries, index, group_of_entry(&map.groups, write.key, None))
    else:
        if is_full(map):
            remove_entry(map, victim(map), EVICTED, write.now, gone)
            prepare_eviction(map)
        Py_INCREF(write.key)
        index = insert_entry(map, write.key, write.value, write.hash)
        entry = at(entries, index)
        entry.fresh_until = -INFINITY
        group = group_of_entry(&map.groups, write.key, None) if write.group is NULL else 0
        set_group_number(entries, index, group)
    if unlikely(write.group is not NULL):
        set_group_number(entries, index, group_of_entry(&map.groups, write.key, <bytes>write.group))
    map.groups.puts[group_number(entries, index)] += 1
    on_stored(map, index, entry, fresh_until, write)
    note_tracked(entries, index, entry)
    if unlikely(held is not NULL or entry.flags & HAS_TAGS) and write.mode != SAME:
        set_list(map, entries, index, entry, held)
    if map.trust.word is not NULL:
        trust_of(entries, index)[0] = trust
        entry.flags |= HAS_TRUST
    if core.weighs:
        set_weight(map, index, write.weight)
    outcome |= STORED | file(map, index, entry, fresh_until, due, write.now)
    if map.total_weight > map.max_weight and evict_excess(map, BATCH, map.max_entries, write.now, gone):
        outcome |= MORE
    if map.detached is not NULL:
        drop_detached(map, DROPPED_PER_SET, gone)
    return outcome | lateness(map, write.now)


cdef int give_ttl(CompiledCore core, uint32_t index, double ttl, double now) except -1:
    """Do the step of ``touch``: give an entry a new TTL, without jitter, and return the outcome."""
    cdef Map *map = &core.map
    cdef Entry *entry
    cdef double due, fresh_until
    if not is_live(map, index, now):
        return 0
    entry = at(&map.entries, index)
    due = expires_at(&map.entries, index, entry)
    fresh_until = now + ttl
    due = fresh_until if due == INFINITY else fresh_until + (due - entry.fresh_until)
    if due > fresh_until:
        reserve(map, index, True, 0, False)
    return STORED | file(map, index, entry, fresh_until, due, now) | lateness(map, now)


cdef object remove(
    CompiledCore core, object key, Py_hash_t hash, object default, double now, bint only_dead, list watches, Gone *gone,
):
    """Do the step of ``delete``. Exceptions are raised before the first change.

    Args:
        now: as for ``time_for``.
    """
    cdef Map *map = &core.map
    cdef uint32_t index = find(map, <PyObject *>key, hash)
    cdef bint is_there
    if index:
        now = time_for(at(&map.entries, index), now)
    is_there = is_live(map, index, now)
    if only_dead and is_there:
        return default
    value = <object>at(&map.entries, index).value if is_there else default
    if index:
        remove_entry(map, index, DELETED, now, gone)
    if not only_dead:
        if not index:
            on_delete(map, hash)
        if watches is not None:
            break_watches(watches, None)
    return value


cdef int put_all(CompiledCore core, list keys, list values, double ttl, bint exact) except -1:
    """Set at most BATCH values with one TTL, and return all outcomes combined. The caller has checked the keys, that
    the clock is the system's, and that only the core handles writes."""
    cdef list watches, completed = []
    cdef Write write
    cdef Gone gone
    cdef Py_ssize_t place
    cdef int outcome = 0
    cdef bint collects = PyGC_Disable()
    memset(&write, 0, sizeof(Write))
    write.ttl, write.exact, write.now = ttl, exact, exact_clock()
    begin_removals(&gone, None)
    try:
        for place in range(len(keys)):
            write.key, write.value = <PyObject *>keys[place], <PyObject *>values[place]
            write.hash = hash_of_plain(write.key)
            watches = watches_on(core.watches, keys[place], write.hash) if core.watches.count else None
            if watches:
                completed += watches
            outcome |= put(core, &write, watches, None, &gone)
    finally:
        if collects:
            PyGC_Enable()
        core.finish_set(COMPLETED, completed, &gone)
    return outcome


cdef object clock_of(object clock):
    """Return None if ``clock`` is the clock of the machine, which is read in C; otherwise the function to call."""
    return None if clock is machine_time else clock


cdef int check_time(double now, double interval) except -1:
    if not -interval * LATEST_TICKS <= now <= interval * LATEST_TICKS:
        raise ValueError(
            f"clock must return seconds at which floats can tell intervals of {interval:g} s apart, "
            f"at most {interval * LATEST_TICKS:g}, not {now!r}"
        )
    return 0


cdef int patch_collection() except -1:
    """Replace the garbage collector's functions of the core: those made by Cython visit only attributes."""
    global traverse_attributes, clear_attributes, deallocate_core
    cdef PyTypeObject *core_type = <PyTypeObject *>CompiledCore
    traverse_attributes, clear_attributes = core_type.tp_traverse, core_type.tp_clear
    deallocate_core = core_type.tp_dealloc
    core_type.tp_traverse, core_type.tp_clear, core_type.tp_dealloc = traverse_core, clear_core, dealloc_core
    return 0
