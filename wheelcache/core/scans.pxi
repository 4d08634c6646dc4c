# Walks over the entries, which every removal and every move to the young end keep off what they point to.

@cython.final
cdef class Scan:
    """Without an order it follows the births, up to the last one at its start.

    In order of use, it first follows the list of use up to the first entry that came, was born or was moved since it
    began: all such entries are behind the others. Then it takes those that were moved before their turn.
    """

    # Without ``__weakref__``, for the reason that a watch is.
    cdef CompiledCore core
    cdef bint ordered
    cdef Link *cursor
    cdef uint64_t last_birth
    cdef PyObject *next
    cdef PyObject **place  # the pointer to this scan; NULL once it has ended

    def keys(self, Py_ssize_t count):
        return [record.key for record in self.step(count)]

    def step(self, Py_ssize_t count):
        cdef CompiledCore core = self.core
        cdef Entry entry
        cdef list records = []
        cdef bint collects
        if core.barrier:
            core.begin()
        collects = PyGC_Disable()
        try:
            while self.place is not NULL and len(records) < count:
                entry = self.next_entry()
                if entry is None:
                    break
                records.append(core.record(entry))
        finally:
            if collects:
                PyGC_Enable()
        if not records:
            end_scan(self)
        return records

    cdef Entry next_entry(self):
        cdef Link *link = self.cursor
        cdef Entry entry = None if link.owner is NULL else <Entry>link.owner
        if not self.ordered:
            if entry is None or entry.birth > self.last_birth:
                return None
            self.cursor = link.next
            return entry
        if entry is not None and entry.turn != self.core.turn:
            self.cursor = link.next
            entry.turn = self.core.turn
            entry.moved.next = NULL
            return entry
        link = self.core.moved.next
        if link.owner is NULL:
            return None
        unlink(link)
        return <Entry>link.owner

    def close(self):
        end_scan(self)

    def __dealloc__(self):
        end_scan(self)


cdef void begin_scan(PyObject **first, Scan scan) noexcept:
    scan.next, scan.place = first[0], first
    if scan.next is not NULL:
        (<Scan>scan.next).place = &scan.next
    first[0] = <PyObject *>scan


cdef void end_scan(Scan scan) noexcept:
    if scan.place is not NULL:
        scan.place[0] = scan.next
        if scan.next is not NULL:
            (<Scan>scan.next).place = scan.place
        scan.place = NULL


cdef void end_scans(PyObject **first) noexcept:
    while first[0] is not NULL:
        (<Scan>first[0]).place = NULL
        first[0] = (<Scan>first[0]).next
