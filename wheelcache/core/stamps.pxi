# The stamps that processes share, read and written as raw memory.

cdef struct Stamps:
    bint given
    bint written  # whether this core writes stamps
    uint64_t next
    Py_ssize_t slots
    uint64_t *table
    uint64_t *invalidations
    uint64_t *tags  # NULL if no other process drops tags
    uint8_t *commits  # NULL if no transactions are followed
    Py_ssize_t places  # in ``commits``
    Py_buffer table_buffer
    Py_buffer invalidations_buffer
    Py_buffer tags_buffer
    Py_buffer commits_buffer


cdef int open_stamps(object stamps, Stamps *to) except -1:
    memset(to, 0, sizeof(Stamps))
    if stamps is None:
        return 0
    first, tags, commits = stamps.first, stamps.tags, stamps.commits
    to.given = True
    try:
        PyObject_GetBuffer(stamps.table, &to.table_buffer, PyBUF_WRITABLE)
        PyObject_GetBuffer(stamps.invalidations, &to.invalidations_buffer, PyBUF_WRITABLE)
        to.slots = min(to.table_buffer.len, to.invalidations_buffer.len)
        if first is not None:
            to.next, to.written = first, True
        if tags is not None:
            PyObject_GetBuffer(tags, &to.tags_buffer, PyBUF_WRITABLE)
            to.slots = min(to.slots, to.tags_buffer.len)
        if commits is not None:
            PyObject_GetBuffer(commits, &to.commits_buffer, PyBUF_WRITABLE)
    except BaseException:
        close_stamps(to)
        raise
    to.slots //= <Py_ssize_t>sizeof(uint64_t)
    to.table, to.invalidations = <uint64_t *>to.table_buffer.buf, <uint64_t *>to.invalidations_buffer.buf
    to.tags = <uint64_t *>to.tags_buffer.buf
    to.commits, to.places = <uint8_t *>to.commits_buffer.buf, to.commits_buffer.len // COMMIT_LANES
    return 0


cdef void close_stamps(Stamps *stamps) noexcept:
    if stamps.given:
        stamps.given = False
        PyBuffer_Release(&stamps.table_buffer)
        PyBuffer_Release(&stamps.invalidations_buffer)
        PyBuffer_Release(&stamps.tags_buffer)
        PyBuffer_Release(&stamps.commits_buffer)


cdef inline int check_slot(Stamps *stamps, Py_ssize_t slot) except -1:
    if stamps.given and not 0 <= slot < stamps.slots:
        raise IndexError("there is no such slot in the stamps")
    return 0


def exchange_word(words, Py_ssize_t index, uint64_t word):
    """Put ``word`` into a buffer of 64-bit words, and return the word that it replaces, in one step for all processes."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(words, &buffer, PyBUF_WRITABLE)
    try:
        if not 0 <= index < buffer.len // <Py_ssize_t>sizeof(uint64_t):
            raise IndexError("there is no such word")
        return swap_word(<uint64_t *>buffer.buf + index, word)
    finally:
        PyBuffer_Release(&buffer)


cdef inline uint64_t invalidate(Stamps *stamps, Py_ssize_t slot) noexcept:
    """Put a fresh stamp into both words of ``slot``, the invalidation word first, and return the stamp; 0 if this core
    writes no stamps."""
    cdef uint64_t stamp = 0
    if stamps.written:
        stamp = stamps.next
        stamps.next += 1
        store_word(&stamps.invalidations[slot], stamp)
        store_word(&stamps.table[slot], stamp)
    return stamp


cdef inline bint is_committing(Stamps *stamps, Py_ssize_t slot) noexcept:
    """Return whether a commit that has invalidated names of this slot's place is in progress."""
    return stamps.commits is not NULL and has_marks(stamps.commits, stamps.places, slot)


cdef bint has_marks(uint8_t *commits, Py_ssize_t places, Py_ssize_t slot) noexcept:
    cdef uint64_t *marks = <uint64_t *>(commits + slot % places * COMMIT_LANES)
    cdef Py_ssize_t word
    for word in range(COMMIT_LANES // <Py_ssize_t>sizeof(uint64_t)):
        if load_word(marks + word):
            return True
    return False


def is_marked(commits, Py_ssize_t slot):
    """Return whether a commit that has invalidated names of this slot's place is in progress: see
    ``contract.Stamps.commits``."""
    cdef Py_buffer buffer
    if commits is None:
        return False
    PyObject_GetBuffer(commits, &buffer, PyBUF_WRITABLE)
    try:
        return has_marks(<uint8_t *>buffer.buf, buffer.len // COMMIT_LANES, slot)
    finally:
        PyBuffer_Release(&buffer)


cdef void invalidate_all(Stamps *stamps) noexcept:
    cdef Py_ssize_t slot
    if stamps.written:
        # All invalidation words first: see the fourth order in ``coherence.shared_stamps``.
        for slot in range(stamps.slots):
            store_word(&stamps.invalidations[slot], stamps.next)
        for slot in range(stamps.slots):
            store_word(&stamps.table[slot], stamps.next)
        stamps.next += 1


cdef inline bint is_current(Map *map, uint32_t index, Entry *entry) noexcept:
    return likely(not entry.flags & (HAS_TAGS | HAS_ORIGIN)) or are_stamps_current(map, index, entry)


cdef bint are_stamps_current(Map *map, uint32_t index, Entry *entry) noexcept:
    cdef Origin *origin
    if entry.flags & HAS_TAGS and are_dropped(map, tags_of(&map.entries, index, entry), False):
        return False
    if not map.stamps.given:
        return True
    origin = origin_of(&map.entries, index)
    return load_word(&map.stamps.table[origin.slot]) == origin.stamp


cdef bint restamp(Map *map, uint32_t index) noexcept:
    """Put a fresh stamp into the slot of an entry, without invalidating. Return False if another process wrote."""
    cdef Stamps *stamps = &map.stamps
    cdef Origin *origin
    cdef uint64_t stamp
    if not stamps.given:
        return True
    origin = origin_of(&map.entries, index)
    stamp = origin.stamp
    if stamps.written:
        stamp = stamps.next
        stamps.next += 1
        store_word(&stamps.table[origin.slot], stamp)
        full_barrier()
    if load_word(&stamps.invalidations[origin.slot]) != origin.invalidation:
        return False
    origin.stamp = stamp
    return True
