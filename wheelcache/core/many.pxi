# ``get_many``, ``set_many`` and ``delete_many``, each in one step. The collector is paused: they allocate as they go.

cdef list get_each(CompiledCore core, list keys):
    cdef Map *map = &core.map
    cdef list values = [MISSING] * len(keys)
    cdef Py_ssize_t place
    cdef uint32_t index
    cdef double now
    for key in keys:
        hash_of(<PyObject *>key)
    now = core.read_clock()
    if core.barrier:
        for key in keys:
            if not is_live(map, core.index_of(key), now):
                core.begin()
    for place in range(len(keys)):
        index = core.index_of(keys[place])
        if is_live(map, index, now):
            core.hits += 1
            use(map, index, at(&map.entries, index))
            values[place] = <object>at(&map.entries, index).value
        else:
            core.misses += 1
    return values


cdef list put_each(CompiledCore core, list items, double ttl, list removed):
    cdef list outcomes = [0] * len(items), watches, told = []
    cdef Write write
    cdef Gone gone
    cdef Py_ssize_t place
    cdef int64_t weight
    cdef bint collects
    memset(&write, 0, sizeof(Write))
    write.ttl, write.expected = ttl, <PyObject *>MISSING
    write.now = core.read_clock()
    if core.barrier:
        core.begin()
    collects = PyGC_Disable()
    begin_removals(&gone, removed)
    try:
        for key, value, weight, slot, seen in items:
            hash_of(<PyObject *>key)
            check_item(weight, seen, &write)
            check_slot(&core.map.stamps, slot)
        for place in range(len(items)):
            key, value, weight, slot, seen = items[place]
            check_item(weight, seen, &write)
            write.key, write.hash, write.value = <PyObject *>key, hash_of(<PyObject *>key), <PyObject *>value
            write.weight, write.slot = weight, slot
            watches = watches_on(core.watches, key, write.hash) if core.watches.count else None
            if watches:
                told += watches
            outcomes[place] = put(core, &write, watches, None, &gone)
    finally:
        if collects:
            PyGC_Enable()
        core.finish_set(TOLD, told, &gone)
    return outcomes


cdef int put_all(CompiledCore core, list keys, list values, double ttl, bint exact) except -1:
    """``set`` of at most BATCH values with one TTL, by the system's clock, where writes concern nothing but the core. The
    keys were checked. All outcomes together."""
    cdef list watches, told = []
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
                told += watches
            outcome |= put(core, &write, watches, None, &gone)
    finally:
        if collects:
            PyGC_Enable()
        core.finish_set(TOLD, told, &gone)
    return outcome


cdef int remove_each(CompiledCore core, list keys, list removed) except -1:
    cdef list watches
    cdef Gone gone
    cdef double now = core.read_clock()
    cdef int deleted = 0
    cdef Py_hash_t hash
    cdef bint collects
    if core.barrier:
        core.begin()
    collects = PyGC_Disable()
    begin_removals(&gone, removed)
    try:
        for key, slot in keys:
            hash_of(<PyObject *>key)
            check_slot(&core.map.stamps, slot)
        for key, slot in keys:
            hash = hash_of(<PyObject *>key)
            watches = watches_on(core.watches, key, hash) if core.watches.count else None
            if not has_room(&gone):
                raise MemoryError
            value = remove(core, key, hash, MISSING, now, ALL, DELETED, slot, watches, &gone)
            deleted += value is not MISSING
    finally:
        if collects:
            PyGC_Enable()
        shrink(&core.map, 2 * gone.count)
        finish(&gone)
    return deleted
