# Scans: walks over the entries.

cdef object times_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef double fresh_until = entry.fresh_until, due = expires_at(&map.entries, index, entry)
    current = True if is_current(map, index, entry) else False
    # ``tuple.__new__`` is used, since ``__new__`` of a named tuple is Python code.
    return tuple.__new__(Times, (fresh_until, due, current))


cdef object record_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef uint64_t weight = weight_of(&map.entries, index)
    key, value = <object>entry.key, <object>entry.value
    standing = 0 if map.policy == LRU else standing_of(&map.duel.order, index)
    group = name_of_number(&map.groups, group_number(&map.entries, index))
    tags = names_of(tags_of(&map.entries, index, entry))
    times = times_of(map, index)
    return tuple.__new__(Record, (key, value, times, weight, tags, standing, group))


# Without tp_clear: a finalizer may use a scan in a cycle.
@cython.no_gc_clear
@cython.final
cdef class Scan:
    """See ``contract.Scan``. It visits descending indices, since entries move only to lower ones."""

    cdef CompiledCore core
    cdef uint32_t cursor
    cdef uint64_t epoch

    def __cinit__(self, CompiledCore core not None):
        self.core = core

    def keys(self, Py_ssize_t count):
        return self.collect(count, True)

    def step(self, Py_ssize_t count):
        return self.collect(count, False)

    cdef list collect(self, Py_ssize_t count, bint only_keys):
        cdef CompiledCore core = self.core
        cdef uint32_t index
        cdef list found = []
        cdef bint collects
        core.begin()
        collects = PyGC_Disable()
        try:
            while len(found) < count:
                index = self.next_index()
                if index == 0:
                    break
                found.append(<object>at(&core.map.entries, index).key if only_keys else record_of(&core.map, index))
        finally:
            if collects:
                PyGC_Enable()
        return found

    cdef uint32_t next_index(self) noexcept:
        cdef Map *map = &self.core.map
        if self.epoch != map.epoch:
            return 0
        self.cursor = min(self.cursor, map.entries.top)
        while self.cursor > 1:
            self.cursor -= 1
            if at(&map.entries, self.cursor).key is not NULL:
                return self.cursor
        return 0
