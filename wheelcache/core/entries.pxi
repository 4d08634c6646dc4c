# Entries are slots of 64 bytes, one line of a processor's cache, in blocks of 4,096. They refer to each other by index:
# an index has half the size of a pointer, and the memory of a block can move. Index 0 is the head of the list in order
# of use, and means "none" elsewhere.

cdef enum:
    BLOCK_BITS = 12
    BLOCK = 4096
    FIRST_CAPACITY = 16
    SMALL = 64  # entries; the memory of so few is not given back
    HAS_GRACE = 1
    HAS_TRACKED = 2  # the garbage collector tracks the key or the value
    HAS_TAGS = 4
    HAS_TRUST = 8  # set for all entries of a core with trust; the bits above are those of regions.pxi

cdef uint32_t NO_INDEX = 0xFFFFFFFF


cdef struct Entry:
    PyObject *key  # NULL in a free slot
    PyObject *value
    Py_hash_t hash
    double fresh_until
    double filed  # the time for which its slot of the wheel was chosen, never after it expires; inf in no slot
    uint32_t chained  # the next entry of its bucket
    uint32_t before  # the previous entry of its slot of the wheel, or of the free list
    uint32_t after
    # As in ``Place``.
    uint16_t home  # its slot of the wheel
    uint16_t flags
    uint32_t older
    uint32_t younger


cdef struct Block:
    # The memory of a block of entries. An array is created when an entry of the block first needs it.
    void *allocated
    double *expires_at  # of entries with HAS_GRACE
    uint64_t *weights
    uint64_t *trusts  # the words under which they were stored, of entries with HAS_TRUST
    TagList **tags  # of entries with HAS_TAGS
    uint8_t *groups  # the numbers of their groups of keys; NULL while all are 0
    uint32_t tracked  # the number of entries with HAS_TRACKED


cdef struct Entries:
    Entry **lines  # the entries of each block
    uint32_t **segments
    uint32_t buckets
    uint32_t mask
    uint32_t count
    uint32_t top  # one more than the highest index in use
    uint32_t capacity
    uint32_t free
    Block *blocks
    uint32_t blocks_used
    uint32_t blocks_size
    uint32_t segments_used
    uint32_t segments_size
    uint32_t buckets_size


cdef inline Entry *at(Entries *entries, uint32_t index) noexcept:
    return &entries.lines[index >> BLOCK_BITS][index & (BLOCK - 1)]


cdef inline Block *block_of(Entries *entries, uint32_t index) noexcept:
    return &entries.blocks[index >> BLOCK_BITS]


cdef inline double expires_at(Entries *entries, uint32_t index, Entry *entry) noexcept:
    if entry.flags & HAS_GRACE:
        return block_of(entries, index).expires_at[index & (BLOCK - 1)]
    return entry.fresh_until


cdef inline uint64_t weight_of(Entries *entries, uint32_t index) noexcept:
    cdef uint64_t *weights = block_of(entries, index).weights
    return 0 if weights is NULL else weights[index & (BLOCK - 1)]


cdef inline uint32_t group_number(Entries *entries, uint32_t index) noexcept:
    cdef uint8_t *groups = block_of(entries, index).groups
    return 0 if groups is NULL else groups[index & (BLOCK - 1)]


cdef inline void set_group_number(Entries *entries, uint32_t index, uint32_t number) noexcept:
    """Set the number of the group of an entry. Without memory for it, the entry is in the group without a name."""
    cdef Block *block = block_of(entries, index)
    if unlikely(block.groups is NULL):
        if number == 0:
            return
        block.groups = <uint8_t *>PyMem_RawCalloc(capacity_of_block(entries), sizeof(uint8_t))
        if block.groups is NULL:
            return
    block.groups[index & (BLOCK - 1)] = <uint8_t>number


cdef inline uint64_t *trust_of(Entries *entries, uint32_t index) noexcept:
    return &block_of(entries, index).trusts[index & (BLOCK - 1)]


cdef inline uint32_t capacity_of_block(Entries *entries) noexcept:
    """Return the number of entries in each block. Only the first block grows to its full size."""
    return min(entries.capacity, <uint32_t>BLOCK)


cdef int double_array(void **array, uint32_t *size, size_t item) except -1:
    """Double an array of pointers or blocks."""
    cdef uint32_t larger = 2 * size[0] if size[0] else 1
    cdef void *grown = PyMem_RawRealloc(array[0], larger * item)
    if grown is NULL:
        raise MemoryError
    array[0] = grown
    size[0] = larger
    return 0


cdef int allocate_line(uint32_t capacity, void **allocated, Entry **line) except -1:
    """Allocate the entries of a block, aligned to a line of the processor's cache."""
    allocated[0] = PyMem_RawMalloc((capacity + 1) * sizeof(Entry))
    if allocated[0] is NULL:
        raise MemoryError
    line[0] = <Entry *>((<size_t>allocated[0] + sizeof(Entry) - 1) & ~<size_t>(sizeof(Entry) - 1))
    return 0


cdef int grow_array(void **array, uint32_t old, uint32_t new, size_t item) except -1:
    cdef void *grown
    if array[0] is not NULL:
        grown = PyMem_RawRealloc(array[0], new * item)
        if grown is NULL:
            raise MemoryError
        memset(<char *>grown + old * item, 0, (new - old) * item)
        array[0] = grown
    return 0


cdef int grow_first_block(Entries *entries) except -1:
    cdef Block *block = entries.blocks
    cdef uint32_t old = entries.capacity, new = 2 * old
    cdef void *allocated
    cdef Entry *line
    allocate_line(new, &allocated, &line)
    try:
        grow_array(<void **>&block.expires_at, old, new, sizeof(double))
        grow_array(<void **>&block.weights, old, new, sizeof(uint64_t))
        grow_array(<void **>&block.trusts, old, new, sizeof(uint64_t))
        grow_array(<void **>&block.tags, old, new, sizeof(TagList *))
        grow_array(<void **>&block.groups, old, new, sizeof(uint8_t))
    except MemoryError:
        PyMem_RawFree(allocated)
        raise
    memcpy(line, entries.lines[0], old * sizeof(Entry))
    PyMem_RawFree(block.allocated)
    block.allocated = allocated
    entries.lines[0] = line
    entries.capacity = new
    return 0


cdef int reserve_entry(Entries *entries) except -1:
    """Allocate a block unless ``new_entry`` would find a free slot."""
    cdef uint32_t size, capacity
    if likely(entries.free or entries.top < entries.capacity):
        return 0
    if 0 < entries.capacity < BLOCK:
        return grow_first_block(entries)
    if entries.capacity >= NO_INDEX - BLOCK:
        raise MemoryError
    if entries.blocks_used == entries.blocks_size:
        size = entries.blocks_size
        double_array(<void **>&entries.lines, &size, sizeof(Entry *))
        double_array(<void **>&entries.blocks, &entries.blocks_size, sizeof(Block))
    capacity = BLOCK if entries.capacity else FIRST_CAPACITY
    memset(&entries.blocks[entries.blocks_used], 0, sizeof(Block))
    allocate_line(capacity, &entries.blocks[entries.blocks_used].allocated, &entries.lines[entries.blocks_used])
    if entries.capacity == 0:
        memset(entries.lines[0], 0, sizeof(Entry))
        entries.top = 1
    entries.blocks_used += 1
    entries.capacity += capacity
    return 0


cdef inline int reserve_array(Entries *entries, void **array, size_t item) except -1:
    """Create an array of a block unless it exists."""
    if array[0] is NULL:
        array[0] = PyMem_RawCalloc(capacity_of_block(entries), item)
        if array[0] is NULL:
            raise MemoryError
    return 0


cdef inline uint32_t next_free(Entries *entries) noexcept:
    """Return the index that the next ``new_entry`` will return."""
    return entries.free if entries.free else entries.top


cdef inline uint32_t new_entry(Entries *entries) noexcept:
    cdef uint32_t index = entries.free
    if index:
        unlink_free(entries, index)
    else:
        index = entries.top
        entries.top += 1
    entries.count += 1
    return index


cdef inline void unlink_free(Entries *entries, uint32_t index) noexcept:
    cdef Entry *entry = at(entries, index)
    if entry.before:
        at(entries, entry.before).after = entry.after
    else:
        entries.free = entry.after
    if entry.after:
        at(entries, entry.after).before = entry.before


cdef inline void free_entry(Entries *entries, uint32_t index, Entry *entry) noexcept:
    entry.key = entry.value = NULL
    entry.before, entry.after = 0, entries.free
    if entries.free:
        at(entries, entries.free).before = index
    entries.free = index


cdef inline void note_tracked(Entries *entries, uint32_t index, Entry *entry) noexcept:
    """Update HAS_TRACKED after a change of an entry's key or value."""
    cdef bint is_tracked = is_tracked_type(entry.value) or is_tracked_type(entry.key)
    if is_tracked != (entry.flags & HAS_TRACKED != 0):
        entry.flags ^= HAS_TRACKED
        block_of(entries, index).tracked += 1 if is_tracked else -1


cdef void free_last_block(Entries *entries) noexcept:
    cdef Block *block
    entries.blocks_used -= 1
    block = &entries.blocks[entries.blocks_used]
    PyMem_RawFree(block.allocated)
    PyMem_RawFree(block.expires_at)
    PyMem_RawFree(block.weights)
    PyMem_RawFree(block.trusts)
    PyMem_RawFree(block.tags)
    PyMem_RawFree(block.groups)
    entries.capacity -= BLOCK if entries.blocks_used else entries.capacity


cdef void free_entries(Entries *entries) noexcept:
    """Free all memory. The entries must have been removed."""
    while entries.blocks_used:
        free_last_block(entries)
    while entries.segments_used:
        entries.segments_used -= 1
        PyMem_RawFree(entries.segments[entries.segments_used])
    PyMem_RawFree(entries.lines)
    PyMem_RawFree(entries.blocks)
    PyMem_RawFree(entries.segments)
    memset(entries, 0, sizeof(Entries))


cdef PyObject *pop_last(Map *map, Entries *entries, PyObject **value) noexcept:
    """Remove the entry with the highest index. Return its key, or NULL if there is no entry. The caller gets the
    references to the key and the value."""
    cdef Entry *entry
    cdef PyObject *key = NULL
    while key is NULL and entries.top > 1:
        entries.top -= 1
        entry = at(entries, entries.top)
        key, value[0] = entry.key, entry.value
        entry.key = entry.value = NULL
        if key is not NULL:
            set_list(map, entries, entries.top, entry, NULL)
        if entry.flags & HAS_TRACKED and key is not NULL:
            entry.flags &= ~HAS_TRACKED
            block_of(entries, entries.top).tracked -= 1
        if entries.top & (BLOCK - 1) == 0:
            free_last_block(entries)
    if key is not NULL:
        entries.count -= 1
    return key


cdef int visit_entries(Entries *entries, visitproc visit, void *arg) noexcept:
    """Visit all entries for the garbage collector. Blocks without HAS_TRACKED are skipped."""
    cdef uint32_t number, index, last
    cdef Entry *entry
    cdef int stopped
    for number in range(entries.blocks_used):
        if entries.blocks[number].tracked == 0:
            continue
        last = min(entries.top - number * BLOCK, <uint32_t>BLOCK)
        for index in range(last):
            entry = &entries.lines[number][index]
            if entry.key is not NULL and entry.flags & HAS_TRACKED:
                stopped = visit_object(entry.key, visit, arg) or visit_object(entry.value, visit, arg)
                if stopped:
                    return stopped
    return 0
