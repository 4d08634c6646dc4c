# Watches are in chains by the hash of their key, which do not own them: one that is dropped leaves its chain. The table
# outlives the core as long as a watch refers to it.

cdef struct WatchTable:
    PyObject **chains
    Py_ssize_t size
    Py_ssize_t count
    Py_ssize_t references


@cython.final
cdef class Watch:
    # Without ``__weakref__``: the callbacks would run while a watch without references is still in its chain.
    cdef readonly object key
    cdef readonly object value
    cdef public bint broken
    cdef readonly object seen
    cdef bint wants_value
    cdef Py_hash_t hash
    cdef WatchTable *table
    cdef PyObject *next
    cdef PyObject **place  # the pointer to this watch; NULL once it has ended

    def close(self):
        end_watch(<PyObject *>self)

    def __dealloc__(self):
        if self.table is not NULL:
            end_watch(<PyObject *>self)
            release(self.table)


cdef void release(WatchTable *table) noexcept:
    table.references -= 1
    if table.references == 0:
        free(table.chains)
        free(table)


cdef void end_watch(PyObject *watch) noexcept:
    cdef PyObject *following = (<Watch>watch).next
    if (<Watch>watch).place is not NULL:
        (<Watch>watch).place[0] = following
        if following is not NULL:
            (<Watch>following).place = (<Watch>watch).place
        (<Watch>watch).place = NULL
        (<Watch>watch).table.count -= 1


cdef inline void chain(WatchTable *table, PyObject *watch) noexcept:
    cdef PyObject **place = &table.chains[<size_t>(<Watch>watch).hash % <size_t>table.size]
    (<Watch>watch).next = place[0]
    (<Watch>watch).place = place
    if place[0] is not NULL:
        (<Watch>place[0]).place = &(<Watch>watch).next
    place[0] = watch


cdef int begin_watch(WatchTable *table, Watch watch) except -1:
    cdef Py_ssize_t index, old_size = table.size
    cdef PyObject **chains
    cdef PyObject **old = table.chains
    cdef PyObject *each
    cdef PyObject *following
    if table.count >= old_size:
        chains = <PyObject **>calloc(2 * old_size + 8, sizeof(PyObject *))
        if chains is NULL:
            raise MemoryError
        table.chains, table.size = chains, 2 * old_size + 8
        for index in range(old_size):
            each = old[index]
            while each is not NULL:
                following = (<Watch>each).next
                chain(table, each)
                each = following
        free(old)
    watch.table = table
    table.references += 1
    table.count += 1
    chain(table, <PyObject *>watch)
    return 0


cdef PyObject *next_watch(WatchTable *table, object key, PyObject *after) noexcept:
    """The next open watch on ``key``; the first one after NULL."""
    cdef Py_hash_t hash
    cdef PyObject *watch
    if table.count == 0:
        return NULL
    hash = PyObject_Hash(key)
    watch = table.chains[<size_t>hash % <size_t>table.size] if after is NULL else (<Watch>after).next
    while watch is not NULL:
        if (<Watch>watch).hash == hash and PyObject_RichCompareBool((<Watch>watch).key, key, Py_EQ) == 1:
            return watch
        watch = (<Watch>watch).next
    return NULL


cdef int note_completed(WatchTable *table, object key, Watch under, list gone) except -1:
    """Append the watches that a ``set`` completes."""
    cdef PyObject *watch = next_watch(table, key, NULL)
    while watch is not NULL:
        if watch is not <PyObject *>under and (<Watch>watch).wants_value:
            gone.append((COMPLETED, <object>watch, None))
        watch = next_watch(table, key, watch)
    return 0


cdef int break_watches(WatchTable *table, object key, object value, Watch under) noexcept:
    """``key`` was set, or deleted with MISSING as the value. TOLD if watches were completed, else 0."""
    cdef PyObject *watch = next_watch(table, key, NULL)
    cdef PyObject *following
    cdef int outcome = 0
    while watch is not NULL:
        following = next_watch(table, key, watch)
        if watch is not <PyObject *>under:
            (<Watch>watch).broken = True
            if value is not MISSING and (<Watch>watch).wants_value:
                (<Watch>watch).value = value
                end_watch(watch)
                outcome = TOLD
        watch = following
    return outcome


cdef void break_all_watches(WatchTable *table, bint ends) noexcept:
    cdef Py_ssize_t index
    cdef PyObject *watch
    cdef PyObject *following
    for index in range(table.size):
        watch = table.chains[index]
        while watch is not NULL:
            following = (<Watch>watch).next
            (<Watch>watch).broken = True
            if ends:
                end_watch(watch)
            watch = following
