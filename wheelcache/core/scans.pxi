# Walks over the entries.

cdef enum:
    UNTOUCHED = 0
    CAME = 1  # or is not to come
    MOVED = 2  # to the young end before its turn, or stored; in the ring of such entries


cdef struct Turn:
    uint32_t before
    uint32_t after
    uint32_t state


cdef struct Walk:
    # A walk in order of use follows the list of use up to the first entry that came, was stored or was moved since it
    # began: all of those are behind the others. Then it takes those that were moved before their turn or stored until
    # then, which are in a ring through index 0. It waits for none that is stored later, or writers could keep it going.
    Turn *turns  # NULL if there is no walk
    PyObject *scan
    uint32_t size  # of ``turns``; entries from this index on were stored since, and do not come
    uint32_t cursor
    bint is_behind  # it is through with the list of use


cdef inline void unlink_turn(Walk *walk, uint32_t index) noexcept:
    cdef Turn *turn = &walk.turns[index]
    walk.turns[turn.before].after = turn.after
    walk.turns[turn.after].before = turn.before


cdef inline void append_turn(Walk *walk, uint32_t index) noexcept:
    cdef Turn *turn = &walk.turns[index]
    turn.before, turn.after = walk.turns[0].before, 0
    walk.turns[turn.before].after = walk.turns[0].before = index


cdef void note_use(Map *map, uint32_t index, Entry *entry) noexcept:
    """An entry moves to the young end."""
    cdef Walk *walk = &map.walk
    if walk.cursor == index:
        walk.cursor = in_eviction_order(map, index)
    if index >= walk.size or walk.turns[index].state == CAME:
        return
    if walk.turns[index].state == MOVED:
        unlink_turn(walk, index)
    walk.turns[index].state = MOVED
    append_turn(walk, index)


cdef void note_absence(Map *map, uint32_t index, uint32_t younger) noexcept:
    """An entry leaves."""
    cdef Walk *walk = &map.walk
    if walk.cursor == index:
        walk.cursor = younger
    if index < walk.size:
        if walk.turns[index].state == MOVED:
            unlink_turn(walk, index)
        walk.turns[index].state = CAME


cdef void note_birth(Walk *walk, uint32_t index) noexcept:
    """An entry is stored."""
    if index < walk.size:
        walk.turns[index].state = CAME if walk.is_behind else MOVED
        if not walk.is_behind:
            append_turn(walk, index)


cdef void move_turn(Map *map, uint32_t index, uint32_t younger, uint32_t to) noexcept:
    """An entry gets a lower index."""
    cdef Walk *walk = &map.walk
    cdef uint32_t state = walk.turns[index].state if index < walk.size else CAME
    if walk.cursor == index:
        walk.cursor = to
    if to < walk.size:
        if state == MOVED:
            # In its place, or it would come after those that were used later.
            walk.turns[to] = walk.turns[index]
            walk.turns[walk.turns[to].before].after = walk.turns[walk.turns[to].after].before = to
            walk.turns[index].state = CAME
        walk.turns[to].state = state
    note_absence(map, index, younger)


cdef uint32_t next_turn(Map *map) noexcept:
    """The next entry of the walk in order of use; 0 at its end."""
    cdef Walk *walk = &map.walk
    cdef uint32_t index = walk.cursor
    if index and index < walk.size and walk.turns[index].state == UNTOUCHED:
        walk.cursor = in_eviction_order(map, index)
    else:
        walk.cursor = 0
        index = walk.turns[0].after
        if index == 0:
            return 0
        unlink_turn(walk, index)
    walk.turns[index].state = CAME
    return index


cdef void begin_step(Map *map) noexcept:
    """What is stored in the step after the last of the list of use still comes."""
    cdef Walk *walk = &map.walk
    if walk.cursor == 0 or walk.cursor >= walk.size or walk.turns[walk.cursor].state != UNTOUCHED:
        walk.is_behind = True


cdef void end_walk(Walk *walk) noexcept:
    PyMem_RawFree(walk.turns)
    memset(walk, 0, sizeof(Walk))


cdef object times_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef double fresh_until = entry.fresh_until, due = expires_at(&map.entries, index, entry)
    current = True if is_current(map, index, entry) else False
    # ``tuple.__new__``, since the ``__new__`` of a named tuple is Python code.
    return tuple.__new__(Times, (fresh_until, due, current))


cdef object record_of(Map *map, uint32_t index):
    cdef Entry *entry = at(&map.entries, index)
    cdef uint64_t weight = weight_of(&map.entries, index), invalidation = 0, stamp = 0
    cdef bint has_seen = map.stamps.given
    key, value, seen = <object>entry.key, <object>entry.value, None
    if has_seen:
        invalidation, stamp = origin_of(&map.entries, index).invalidation, origin_of(&map.entries, index).stamp
    tags = names_of(tags_of(&map.entries, index, entry))
    times = times_of(map, index)
    # The collector is not paused everywhere: the entry may be gone by now.
    if has_seen:
        seen = (invalidation, stamp)
    return tuple.__new__(Record, (key, value, times, weight, seen, tags))


# A finalizer may run while a scan without references still has its place, and ``core`` is needed to give that up.
@cython.no_gc_clear
@cython.final
cdef class Scan:
    """See ``contract.Scan``. Without an order it goes down by index, since entries move to lower ones only."""

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
