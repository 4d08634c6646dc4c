# Watches are in chains by the hash of their key. The chains own no reference: a watch that is dropped leaves its chain.
# The table lives until the core and all watches have been dropped.

cdef struct WatchTable:
    PyObject **chains
    Py_ssize_t size
    Py_ssize_t count
    Py_ssize_t references


@cython.final
cdef class Watch:
    """See ``contract.Watch``."""

    # No ``__weakref__``: the callbacks would run while a watch without references is still in its chain.
    cdef readonly object key
    cdef readonly object value
    cdef public bint broken
    cdef readonly uint64_t trust
    cdef readonly uint64_t since  # the moment at which it began
    cdef bint wants_value
    cdef bint is_completed  # whether the step in progress completed it
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


cdef WatchTable *new_watch_table() except NULL:
    cdef WatchTable *table = <WatchTable *>PyMem_RawCalloc(1, sizeof(WatchTable))
    if table is NULL:
        raise MemoryError
    table.references = 1
    return table


cdef void release(WatchTable *table) noexcept:
    table.references -= 1
    if table.references == 0:
        PyMem_RawFree(table.chains)
        PyMem_RawFree(table)


cdef void end_watch(PyObject *watch) noexcept:
    cdef PyObject *following = (<Watch>watch).next
    if (<Watch>watch).place is not NULL:
        (<Watch>watch).place[0] = following
        if following is not NULL:
            (<Watch>following).place = (<Watch>watch).place
        (<Watch>watch).place = NULL
        (<Watch>watch).table.count -= 1


cdef inline void chain(WatchTable *table, PyObject *watch) noexcept:
    cdef PyObject **place = &table.chains[mixed((<Watch>watch).hash) % <size_t>table.size]
    (<Watch>watch).next = place[0]
    (<Watch>watch).place = place
    if place[0] is not NULL:
        (<Watch>place[0]).place = &(<Watch>watch).next
    place[0] = watch


cdef int add_watch(WatchTable *table, Watch watch) except -1:
    cdef Py_ssize_t index, old_size = table.size
    cdef PyObject **chains
    cdef PyObject **old = table.chains
    cdef PyObject *each
    cdef PyObject *following
    if table.count >= old_size:
        chains = <PyObject **>PyMem_RawCalloc(2 * old_size + 8, sizeof(PyObject *))
        if chains is NULL:
            raise MemoryError
        table.chains, table.size = chains, 2 * old_size + 8
        for index in range(old_size):
            each = old[index]
            while each is not NULL:
                following = (<Watch>each).next
                chain(table, each)
                each = following
        PyMem_RawFree(old)
    watch.table = table
    table.references += 1
    table.count += 1
    chain(table, <PyObject *>watch)
    return 0


cdef int begin_watch(CompiledCore core, Watch watch) except -1:
    cdef bint collects = PyGC_Disable()
    watch.since, watch.trust = nanoseconds(), present_trust(&core.map)
    try:
        add_watch(core.watches, watch)
    finally:
        if collects:
            PyGC_Enable()
    return 0


cdef list watches_on(WatchTable *table, object key, Py_hash_t hash):
    """Return the open watches on a key. Call this before a step: it allocates, and comparing keys may fail."""
    cdef list watches = []
    cdef PyObject *each
    cdef bint collects = PyGC_Disable()
    try:
        each = table.chains[mixed(hash) % <size_t>table.size]
        while each is not NULL:
            if (<Watch>each).hash == hash and are_equal_keys(<PyObject *>(<Watch>each).key, <PyObject *>key):
                watches.append(<Watch>each)
            each = (<Watch>each).next
    finally:
        if collects:
            PyGC_Enable()
    return watches


cdef void break_watches(list watches, Watch under) noexcept:
    """Break the watches, except ``under``, without completing them."""
    cdef Watch watch
    for watch in watches:
        if watch is not under and watch.place is not NULL:
            watch.broken = True


cdef int complete_watches(list watches, object value, Watch under) noexcept:
    """Break the watches, except ``under``, and complete the ones that want a value. Return COMPLETED if any did, else
    0."""
    cdef Watch watch
    cdef int outcome = 0
    break_watches(watches, under)
    for watch in watches:
        if watch is not under and watch.wants_value and watch.place is not NULL:
            watch.value = value
            watch.is_completed = True
            end_watch(<PyObject *>watch)
            outcome = COMPLETED
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
