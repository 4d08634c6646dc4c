# Scans: walks over the entries.

cdef enum:
    UNVISITED = 0
    VISITED = 1  # or must not be visited
    SKIPPED = 1024
    MOVED = 2  # used or stored before its turn; in the ring of such entries


cdef struct Turn:
    uint32_t before
    uint32_t after
    uint32_t state


cdef struct Walk:
    # A walk in order of use first follows the list of use, up to the first entry that was visited, stored or moved
    # since the walk began: with LRU, all such entries come after the others. Other policies move entries to places in
    # between, so the walk skips such entries. Then it visits the entries that were moved before their turn or stored by
    # then, which are in a ring through index 0. Entries that are stored later are not visited, so writers cannot
    # prolong the walk forever.
    Turn *turns  # by index of the entry; NULL if there is no walk
    PyObject *scan
    uint32_t size  # of ``turns``; entries from this index on were stored later, and are not visited
    uint32_t cursor
    bint has_left_list  # whether the walk has reached the end of its part of the list of use


cdef inline void unlink_turn(Walk *walk, uint32_t index) noexcept:
    cdef Turn *turn = &walk.turns[index]
    walk.turns[turn.before].after = turn.after
    walk.turns[turn.after].before = turn.before


cdef inline void append_turn(Walk *walk, uint32_t index) noexcept:
    cdef Turn *turn = &walk.turns[index]
    turn.before, turn.after = walk.turns[0].before, 0
    walk.turns[turn.before].after = walk.turns[0].before = index


cdef void note_use(Map *map, uint32_t index, Entry *entry) noexcept:
    """Update the walk before an entry moves to the young end."""
    cdef Walk *walk = &map.walk
    if walk.cursor == index:
        walk.cursor = in_eviction_order(map, index)
    if index >= walk.size or walk.turns[index].state == VISITED:
        return
    if walk.turns[index].state == MOVED:
        unlink_turn(walk, index)
    walk.turns[index].state = MOVED
    append_turn(walk, index)


cdef void note_removal(Map *map, uint32_t index, uint32_t younger) noexcept:
    """Update the walk before an entry is removed."""
    cdef Walk *walk = &map.walk
    if walk.cursor == index:
        walk.cursor = younger
    if index < walk.size:
        if walk.turns[index].state == MOVED:
            unlink_turn(walk, index)
        walk.turns[index].state = VISITED


cdef void note_insertion(Walk *walk, uint32_t index) noexcept:
    """Update the walk after an entry was inserted."""
    if index < walk.size:
        walk.turns[index].state = VISITED if walk.has_left_list else MOVED
        if not walk.has_left_list:
            append_turn(walk, index)


cdef void move_turn(Map *map, uint32_t index, uint32_t younger, uint32_t to) noexcept:
    """Update the walk before an entry moves to the lower index ``to``."""
    cdef Walk *walk = &map.walk
    cdef uint32_t state = walk.turns[index].state if index < walk.size else VISITED
    if walk.cursor == index:
        walk.cursor = to
    if to < walk.size:
        if state == MOVED:
            # It keeps its place in the ring. At the end, it would come after entries that were used later.
            walk.turns[to] = walk.turns[index]
            walk.turns[walk.turns[to].before].after = walk.turns[walk.turns[to].after].before = to
            walk.turns[index].state = VISITED
        walk.turns[to].state = state
    note_removal(map, index, younger)


cdef uint32_t skip_visited(Map *map, uint32_t index) noexcept:
    """Return the first entry from ``index`` on that was neither visited, stored nor moved since the walk began; 0 if
    there is none. To bound a step, an entry that was is returned after SKIPPED of them: it then comes again."""
    cdef Walk *walk = &map.walk
    cdef uint32_t skipped = 0
    while index and (index >= walk.size or walk.turns[index].state != UNVISITED):
        if map.policy == LRU:
            return 0
        if skipped == SKIPPED and index < walk.size:
            if walk.turns[index].state == MOVED:
                unlink_turn(walk, index)
            return index
        index, skipped = in_eviction_order(map, index), min(skipped + 1, <uint32_t>SKIPPED)
    return index


cdef uint32_t next_turn(Map *map) noexcept:
    """Return the index of the next entry of the walk in order of use; 0 at its end."""
    cdef Walk *walk = &map.walk
    cdef uint32_t index = skip_visited(map, walk.cursor)
    if index:
        walk.cursor = in_eviction_order(map, index)
    else:
        walk.cursor = 0
        index = walk.turns[0].after
        if index == 0:
            return 0
        unlink_turn(walk, index)
    walk.turns[index].state = VISITED
    return index


cdef void begin_step(Map *map) noexcept:
    """Begin a step of the walk. An entry that was stored before the first step beyond the list of use is visited."""
    cdef Walk *walk = &map.walk
    walk.cursor = skip_visited(map, walk.cursor)
    if walk.cursor == 0:
        walk.has_left_list = True


cdef void end_walk(Walk *walk) noexcept:
    PyMem_RawFree(walk.turns)
    memset(walk, 0, sizeof(Walk))


cdef object times_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef double fresh_until = entry.fresh_until, due = expires_at(&map.entries, index, entry)
    current = True if is_current(map, index, entry) else False
    # ``tuple.__new__`` is used, since ``__new__`` of a named tuple is Python code.
    return tuple.__new__(Times, (fresh_until, due, current))


cdef object record_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef uint64_t weight = weight_of(&map.entries, index), invalidation = 0, stamp = 0
    cdef bint has_seen = map.stamps.given
    key, value, seen = <object>entry.key, <object>entry.value, None
    if has_seen:
        invalidation, stamp = origin_of(&map.entries, index).invalidation, origin_of(&map.entries, index).stamp
    standing = 0 if map.policy == LRU else standing_of(&map.duel.order, index)
    group = name_of_number(&map.groups, group_number(&map.entries, index))
    tags = names_of(tags_of(&map.entries, index, entry))
    times = times_of(map, index)
    # Some callers do not pause the collector: its finalizers may have removed the entry by now.
    if has_seen:
        seen = (invalidation, stamp)
    return tuple.__new__(Record, (key, value, times, weight, seen, tags, standing, group))


# Without tp_clear: ``__dealloc__`` needs ``core`` to end the walk.
@cython.no_gc_clear
@cython.final
cdef class Scan:
    """See ``contract.Scan``. Without an order, it visits descending indices, since entries move only to lower ones."""

    cdef CompiledCore core
    cdef bint ordered
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
        if core.barrier:
            core.begin()
        if self.ordered and core.map.walk.scan is <PyObject *>self:
            begin_step(&core.map)
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
        if not found:
            self.end()
        return found

    cdef uint32_t next_index(self) noexcept:
        cdef Map *map = &self.core.map
        if self.ordered:
            return next_turn(map) if map.walk.scan is <PyObject *>self else 0
        if self.epoch != map.epoch:
            return 0
        self.cursor = min(self.cursor, map.entries.top)
        while self.cursor > 1:
            self.cursor -= 1
            if at(&map.entries, self.cursor).key is not NULL:
                return self.cursor
        return 0

    cdef void end(self) noexcept:
        self.cursor = 0
        if self.core is not None and self.core.map.walk.scan is <PyObject *>self:
            end_walk(&self.core.map.walk)

    def close(self):
        self.end()

    def __dealloc__(self):
        self.end()
