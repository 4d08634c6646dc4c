# The removals of a step. They own the references to keys and values until the end of the step, since dropping a
# reference may run any code.

cdef enum:
    EXPIRED = 0
    EVICTED = 1
    REPLACED = 2
    DELETED = 3
    CLEARED = 4
    REMOVAL_CAUSES = 5
    IN_PLACE = 8  # removals that need no memory of their own

CAUSES = list(RemovalCause)


cdef struct Removal:
    PyObject *key  # NULL if no key is reported
    PyObject *value
    int cause


cdef struct Gone:
    PyObject *removed  # the caller's list, a borrowed reference; NULL if nothing is reported
    Py_ssize_t count
    Py_ssize_t size
    Removal *removals
    Removal in_place[IN_PLACE]


cdef inline void begin_removals(Gone *gone, list removed) noexcept:
    gone.removed = NULL if removed is None else <PyObject *>removed
    gone.count, gone.size, gone.removals = 0, IN_PLACE, gone.in_place


cdef inline bint has_room(Gone *gone) noexcept:
    """Return whether there is memory for one more removal."""
    return gone.count < gone.size or grow_removals(gone)


cdef bint grow_removals(Gone *gone) noexcept:
    cdef Removal *grown
    cdef Py_ssize_t size = 4 * gone.size
    if gone.removals == gone.in_place:
        grown = <Removal *>PyMem_RawMalloc(size * sizeof(Removal))
        if grown is not NULL:
            memcpy(grown, gone.in_place, sizeof(gone.in_place))
    else:
        grown = <Removal *>PyMem_RawRealloc(gone.removals, size * sizeof(Removal))
    if grown is NULL:
        return False
    gone.removals, gone.size = grown, size
    return True


cdef inline void add_removal(Gone *gone, PyObject *key, PyObject *value, int cause) noexcept:
    """Record a removal. ``gone`` owns the references from then on."""
    cdef Removal *removal = &gone.removals[gone.count]
    removal.key, removal.value, removal.cause = key, value, cause
    gone.count += 1


cdef int report(Gone *gone) except -1:
    cdef Py_ssize_t index
    cdef Removal *each
    for index in range(gone.count):
        each = &gone.removals[index]
        (<list>gone.removed).append((<object>each.key, <object>each.value, CAUSES[each.cause]))
    return 0


cdef inline int finish(Gone *gone) except -1:
    """Report the removed entries and drop the references to them. This comes after the last change of a step."""
    try:
        if unlikely(gone.removed is not NULL):
            report(gone)
    finally:
        drop_removals(gone)
    return 0


cdef inline void drop_removals(Gone *gone) noexcept:
    cdef Py_ssize_t index
    for index in range(gone.count):
        Py_XDECREF(gone.removals[index].key)
        Py_DECREF(gone.removals[index].value)
    if gone.removals != gone.in_place:
        PyMem_RawFree(gone.removals)
