# The map: entries by key, in order of use and in the wheel. Unless documented, nothing here runs Python code or fails.

cdef enum:
    DROPPED_PER_SET = 4  # detached entries that a set drops: more than the one entry that it may add


cdef struct Detached:
    # Entries that ``clear`` detached.
    Entries entries
    Detached *next


cdef struct Map:
    Entries entries
    Policy policy
    Duel *duel  # NULL with LRU
    Past past
    KeyGroups groups
    uint64_t total_weight
    uint64_t max_weight
    Py_ssize_t max_entries  # -1 for no bound
    uint64_t misses
    uint64_t removals[REMOVAL_CAUSES]  # by cause
    uint64_t evicted_weight
    uint64_t evicted_carry  # the number of times that it exceeded 64 bits
    Detached *detached
    Tags tags
    uint64_t epoch  # increased to end all scans
    Trust trust
    Wheel wheel


cdef inline bint is_live(Map *map, uint32_t index, double now) noexcept:
    return index != 0 and at(&map.entries, index).fresh_until > now and is_current(map, index, at(&map.entries, index))


cdef inline double time_for(Entry *entry, double now) noexcept:
    """Return ``now``. With SYSTEM_CLOCK, return its time, precisely enough to decide whether an entry is fresh. Reading
    the coarse clock takes 5 ns instead of 25, but it lags by the time between two interrupts of the processor's timer:
    4 ms, under load 23 ms."""
    if now != SYSTEM_CLOCK:
        return now
    if entry.fresh_until == INFINITY:
        return 0.0
    now = coarse_clock()
    return exact_clock() if -1.0 < entry.fresh_until - now < 1.0 else now


cdef inline double next_work(Map *map) noexcept:
    """Return the time at which ``advance`` has work."""
    return -INFINITY if map.detached is not NULL else min(map.wheel.next_due, map.tags.due)


cdef inline int lateness(Map *map, double now) noexcept:
    """Return WAKE if work is over two intervals late, else 0."""
    return WAKE if now - next_work(map) > 2 * map.wheel.interval else 0


cdef inline int file(Map *map, uint32_t index, Entry *entry, double fresh_until, double due, double now) noexcept:
    """Give an entry new times, after ``reserve``. Return WAKE if ``next_due`` became earlier, else 0."""
    entry.fresh_until = fresh_until
    if due > fresh_until:
        entry.flags |= HAS_GRACE
        block_of(&map.entries, index).expires_at[index & (BLOCK - 1)] = due
    else:
        entry.flags &= ~HAS_GRACE
    return WAKE if schedule(map, index, entry, due, now) and map.wheel.next_due <= next_work(map) else 0


cdef inline int unlink(Map *map, uint32_t index, Entry *entry, int cause, double now) noexcept:
    """Remove an entry and return the cause under which it counts. The caller gets the references to key and value."""
    cdef Entries *entries = &map.entries
    cdef uint64_t weight = weight_of(entries, index)
    if entry.fresh_until <= now:
        cause = EXPIRED
    map.removals[cause] += 1
    map.total_weight -= weight
    if cause == EVICTED and weight:
        map.evicted_weight += weight
        map.evicted_carry += map.evicted_weight < weight
    on_remove(map, index, entry, cause)
    cancel(map, entry)
    remove_from_table(entries, index, entry)
    if entry.flags & HAS_TRACKED:
        block_of(entries, index).tracked -= 1
    if unlikely(entry.flags & HAS_TAGS):
        set_list(map, entries, index, entry, NULL)
    free_entry(entries, index, entry)
    entries.count -= 1
    return cause


cdef inline void remove_entry(Map *map, uint32_t index, int cause, double now, Gone *gone) noexcept:
    """Remove an entry and record the removal, after ``has_room``."""
    cdef Entry *entry = at(&map.entries, index)
    cdef PyObject *key = entry.key
    cdef PyObject *value = entry.value
    cause = unlink(map, index, entry, cause, now)
    add_removal(gone, key, value, cause)


cdef inline uint32_t insert_entry(Map *map, PyObject *key, PyObject *value, Py_hash_t hash) noexcept:
    """Insert an entry, after ``reserve_entry`` and ``reserve_bucket``, and return its index. The entry owns the
    references from then on."""
    cdef uint32_t index = new_entry(&map.entries)
    cdef Entry *entry = at(&map.entries, index)
    entry.key, entry.value, entry.hash = key, value, hash
    entry.filed, entry.home, entry.flags = INFINITY, NOWHERE, 0
    if block_of(&map.entries, index).weights is not NULL:
        block_of(&map.entries, index).weights[index & (BLOCK - 1)] = 0
    add_to_table(&map.entries, index, entry)
    on_insert(map, index, entry)
    return index


cdef int reserve(Map *map, uint32_t index, bint has_grace, uint64_t weight, bint has_tags) except -1:
    """Allocate the memory for a write to an entry. Index 0 stands for a new entry, which replaces the oldest one if the
    map is full."""
    cdef Entries *entries = &map.entries
    cdef Block *block
    if index == 0:
        if not is_full(map):
            reserve_entry(entries)
            reserve_bucket(entries)
            index = next_free(entries)
        elif has_grace or weight or map.trust.word is not NULL or has_tags:
            index = victim(map)
        else:
            return 0
    block = block_of(entries, index)
    if has_grace:
        reserve_array(entries, <void **>&block.expires_at, sizeof(double))
    if weight:
        reserve_array(entries, <void **>&block.weights, sizeof(uint64_t))
    if map.trust.word is not NULL:
        reserve_array(entries, <void **>&block.trusts, sizeof(uint64_t))
    if has_tags:
        reserve_array(entries, <void **>&block.tags, sizeof(TagList *))
    return 0


cdef inline bint is_full(Map *map) noexcept:
    return 0 <= map.max_entries <= <Py_ssize_t>map.entries.count


cdef inline void set_weight(Map *map, uint32_t index, uint64_t weight) noexcept:
    cdef uint64_t *weights = block_of(&map.entries, index).weights
    if weights is not NULL:
        on_weight(map, index, weight - weights[index & (BLOCK - 1)])
        map.total_weight += weight - weights[index & (BLOCK - 1)]
        weights[index & (BLOCK - 1)] = weight


cdef bint evict_excess(Map *map, Py_ssize_t budget, Py_ssize_t most, double now, Gone *gone) noexcept:
    """Evict until the bounds hold. Return True if this takes more than ``budget`` evictions, or if memory ran out."""
    while 0 <= most < <Py_ssize_t>map.entries.count or map.total_weight > map.max_weight:
        if (budget <= 0 and map.total_weight <= MOST_WEIGHT) or not has_room(gone):
            return True
        remove_entry(map, victim_of_weight(map), EVICTED, now, gone)
        budget -= 1
    return False


cdef int detach_all(Map *map) except -1:
    """Detach all entries in O(1). Raise a MemoryError, before the first change, if there is no memory."""
    cdef Detached *detached
    cdef uint32_t size = map.entries.count
    if size:
        detached = <Detached *>PyMem_RawMalloc(sizeof(Detached))
        if detached is NULL:
            raise MemoryError
        detached.entries, detached.next = map.entries, map.detached
        map.detached = detached
    map.removals[CLEARED] += size
    begin_again(map)
    return 0


cdef void begin_again(Map *map) noexcept:
    """Begin with no entries, after a caller took over the present ones. They keep their tags, so this runs no Python
    code."""
    memset(&map.entries, 0, sizeof(Entries))
    on_clear(map)
    map.total_weight = 0
    if map.tags.by_name is not NULL:
        PyDict_Clear(map.tags.by_name)
    map.tags.sweep = map.tags.sweeps_again = 0
    map.tags.due = INFINITY
    map.epoch += 1
    empty_wheel(&map.wheel)


cdef Py_ssize_t drop_detached(Map *map, Py_ssize_t budget, Gone *gone) noexcept:
    """Drop detached entries: ``budget`` at most, fewer if memory runs out. Return the number of dropped entries."""
    cdef Py_ssize_t dropped = 0
    cdef Detached *detached
    cdef PyObject *key
    cdef PyObject *value
    while dropped < budget and map.detached is not NULL and has_room(gone):
        detached = map.detached
        key = pop_last(map, &detached.entries, &value)
        if key is NULL or detached.entries.count == 0:
            map.detached = detached.next
            free_entries(&detached.entries)
            PyMem_RawFree(detached)
        if key is not NULL:
            note_gone(map, hash_of_plain(key), NULL, CLEARED)
            add_removal(gone, key, value, CLEARED)
            dropped += 1
    return dropped


cdef void file_all_again(Map *map, double now) noexcept:
    """File all timers again after the clock went back to ``now``."""
    cdef uint32_t index = oldest(map)
    cdef Entry *entry
    empty_wheel(&map.wheel)
    map.wheel.origin, map.wheel.tick = now, 0
    while index:
        entry = at(&map.entries, index)
        entry.home, entry.filed = NOWHERE, INFINITY
        schedule(map, index, entry, expires_at(&map.entries, index, entry), now)
        index = in_eviction_order(map, index)


# The garbage collector visits keys and values through the core, since entries are not Python objects.

cdef traverseproc traverse_attributes = NULL
cdef inquiry clear_attributes = NULL
cdef destructor deallocate_core = NULL


cdef int traverse_core(PyObject *core, visitproc visit, void *arg) noexcept:
    cdef Map *map = &(<CompiledCore>core).map
    cdef Detached *detached = map.detached
    cdef int stopped = visit_entries(&map.entries, visit, arg)
    while detached is not NULL and not stopped:
        stopped = visit_entries(&detached.entries, visit, arg)
        detached = detached.next
    return stopped or traverse_attributes(core, visit, arg)


cdef void drop_entries(Map *map) noexcept:
    """Drop all entries. This runs finalizers; entries that they add are kept."""
    cdef Detached *detached = map.detached
    cdef Detached *following
    cdef Entries entries = map.entries
    cdef PyObject *key
    cdef PyObject *value = NULL
    map.detached = NULL
    begin_again(map)
    while True:
        key = pop_last(map, &entries, &value)
        if key is not NULL:
            Py_DECREF(key)
            Py_DECREF(value)
            continue
        free_entries(&entries)
        if detached is NULL:
            return
        entries, following = detached.entries, detached.next
        PyMem_RawFree(detached)
        detached = following


cdef int clear_core(PyObject *core) noexcept:
    drop_entries(&(<CompiledCore>core).map)
    return clear_attributes(core)


cdef void dealloc_core(PyObject *core) noexcept:
    PyObject_GC_UnTrack(core)
    # The values of a core may be cores: without this, a chain of 200,000 of them would overflow the stack.
    call_without_nesting(core, dealloc_core, dealloc_one_core)


cdef void dealloc_one_core(PyObject *core) noexcept:
    # This comes first, so that no finalizer of a value reaches the core through a weak reference.
    PyObject_ClearWeakRefs(core)
    drop_entries(&(<CompiledCore>core).map)
    deallocate_core(core)
