# The hash table maps a key to the index of its entry, by linear hashing with chains (Litwin, 1980; Larson, 1988). It
# grows by splitting one or two buckets at a time, so no set waits for a table of a million keys to be rebuilt. Removals
# leave no tombstones.

cdef enum:
    FIRST_BUCKETS = 16
    MIN_BUCKETS_PER_ENTRY = 2  # with fewer, buckets are split
    MAX_BUCKETS_PER_ENTRY = 8  # with more, buckets are joined
    SHORT_TEXT = 256  # the longest prefixed key that is looked up without creating its string


# Integers hash to themselves, so a visitor that chooses integer keys chooses their hashes. When the bucket was a known
# function of the hash, 20,000 chosen keys made ``get`` 139 times slower. Two secrets per process prevent this. Keys
# with equal hashes still share a bucket, as in a dict.
cdef uint64_t SECRET = int.from_bytes(urandom(8), "little")
cdef uint64_t SECRET_FACTOR = int.from_bytes(urandom(8), "little") | 1


cdef inline uint32_t mixed(Py_hash_t hash) noexcept:
    """Return a number that spreads hashes evenly. After one multiplication, low bits would depend on low bits alone."""
    cdef uint64_t number = (<uint64_t>hash ^ SECRET) * SECRET_FACTOR
    return <uint32_t>(((number ^ (number >> 32)) * <uint64_t>0x9E3779B97F4A7C15) >> 32)


cdef int check_key(PyObject *key) except -1:
    """Raise a TypeError if hashing or comparing a key runs Python code: within a step, it could change the map."""
    if not is_plain(<object>key):
        # Hash the key first: Python reports keys that are not hashable at all.
        hash(<object>key)
        raise TypeError(f"a key must be hashed and compared by C code alone, unlike {<object>key!r}")
    return 0


cdef inline Py_hash_t hash_of(PyObject *key) except? -1:
    if unlikely(not is_string_or_int(key)) and not is_usual_key(key, KEY_DEPTH):
        check_key(key)
    return hash_of_plain(key)


cdef inline uint32_t *bucket_of(Entries *entries, Py_hash_t hash) noexcept:
    cdef uint32_t number = mixed(hash) & entries.mask
    if number >= entries.buckets:
        number &= entries.mask >> 1
    return &entries.segments[number >> BLOCK_BITS][number & (BLOCK - 1)]


cdef inline uint32_t *bucket(Entries *entries, uint32_t number) noexcept:
    return &entries.segments[number >> BLOCK_BITS][number & (BLOCK - 1)]


cdef inline uint32_t find(Map *map, PyObject *key, Py_hash_t hash) except? 0xFFFFFFFF:
    """Return the index of the entry of a key; 0 if there is none."""
    cdef uint32_t index
    cdef Entry *entry
    if unlikely(map.entries.count == 0):
        return 0
    index = bucket_of(&map.entries, hash)[0]
    while index:
        entry = at(&map.entries, index)
        # In most look-ups, the key is the same object or an equal string.
        if entry.key is key:
            return index
        if entry.hash == hash:
            if likely(are_strings(entry.key, key)):
                if are_equal_strings(entry.key, key):
                    return index
            elif are_equal_keys(entry.key, key):
                return index
        index = entry.chained
    return 0


cdef inline uint32_t find_text(Map *map, const char *text, Py_ssize_t length, Py_hash_t hash) noexcept:
    """Find the key, exactly a ``str``, with the ASCII characters ``text``. Return its index as ``find`` does."""
    cdef uint32_t index
    cdef Entry *entry
    index = bucket_of(&map.entries, hash)[0] if likely(map.entries.count != 0) else 0
    while index:
        entry = at(&map.entries, index)
        if entry.hash == hash and likely(is_text(entry.key, text, length)):
            return index
        index = entry.chained
    return 0


cdef inline int reserve_bucket(Entries *entries) except -1:
    """Allocate the buckets that ``add_to_table`` may create by splitting."""
    if likely(entries.buckets + MIN_BUCKETS_PER_ENTRY <= entries.buckets_size):
        return 0
    return grow_table(entries)


cdef int grow_table(Entries *entries) except -1:
    cdef uint32_t *segment
    cdef uint32_t size
    if 0 < entries.buckets_size < BLOCK:
        size = entries.buckets_size
        segment = <uint32_t *>PyMem_RawRealloc(entries.segments[0], 2 * size * sizeof(uint32_t))
        if segment is NULL:
            raise MemoryError
        memset(segment + size, 0, size * sizeof(uint32_t))
        entries.segments[0] = segment
        entries.buckets_size = 2 * size
        return 0
    if entries.segments_used == entries.segments_size:
        double_array(<void **>&entries.segments, &entries.segments_size, sizeof(uint32_t *))
    size = BLOCK if entries.buckets_size else FIRST_BUCKETS
    segment = <uint32_t *>PyMem_RawCalloc(size, sizeof(uint32_t))
    if segment is NULL:
        raise MemoryError
    entries.segments[entries.segments_used] = segment
    entries.segments_used += 1
    if entries.buckets_size == 0:
        entries.buckets, entries.mask = FIRST_BUCKETS, FIRST_BUCKETS - 1
    entries.buckets_size += size
    return 0


cdef inline void add_to_table(Entries *entries, uint32_t index, Entry *entry) noexcept:
    """Add an entry to its bucket, after ``new_entry``, which counts the entry."""
    cdef uint32_t *first
    while unlikely(entries.count * <uint64_t>MIN_BUCKETS_PER_ENTRY > entries.buckets):
        if entries.buckets == entries.buckets_size:
            break
        split_bucket(entries)
    first = bucket_of(entries, entry.hash)
    entry.chained = first[0]
    first[0] = index


cdef void split_bucket(Entries *entries) noexcept:
    cdef uint32_t number, index, following
    cdef uint32_t *old
    cdef uint32_t *target
    cdef Entry *entry
    if entries.buckets > entries.mask:
        entries.mask = 2 * entries.mask + 1
    number = entries.buckets & (entries.mask >> 1)
    old = bucket(entries, number)
    index = old[0]
    old[0] = 0
    bucket(entries, entries.buckets)[0] = 0
    entries.buckets += 1
    while index:
        entry = at(entries, index)
        following = entry.chained
        target = bucket_of(entries, entry.hash)
        entry.chained = target[0]
        target[0] = index
        index = following


cdef inline uint32_t *link_to(Entries *entries, uint32_t index, Py_hash_t hash) noexcept:
    """Return the link to an entry: its bucket, or ``chained`` of the previous entry."""
    cdef uint32_t *link = bucket_of(entries, hash)
    while link[0] != index:
        link = &at(entries, link[0]).chained
    return link


cdef inline void remove_from_table(Entries *entries, uint32_t index, Entry *entry) noexcept:
    link_to(entries, index, entry.hash)[0] = entry.chained


cdef void join_bucket(Entries *entries) noexcept:
    """Undo the last split."""
    cdef uint32_t *end
    cdef uint32_t last = entries.buckets - 1, first = bucket(entries, entries.buckets - 1)[0]
    bucket(entries, last)[0] = 0
    entries.buckets = last
    end = bucket(entries, last & (entries.mask >> 1))
    if entries.buckets <= (entries.mask >> 1) + 1:
        entries.mask >>= 1
    while end[0]:
        end = &at(entries, end[0]).chained
    end[0] = first
    if last & (BLOCK - 1) == 0 and last >= BLOCK:
        entries.segments_used -= 1
        PyMem_RawFree(entries.segments[entries.segments_used])
        entries.buckets_size -= BLOCK


# Memory is given back in a few steps after each removal.

cdef void shrink(Map *map, Py_ssize_t steps) noexcept:
    cdef Entries *entries = &map.entries
    # Callers pass 2 steps per removal: 8 joins per removal keep the ratio at ``MAX_BUCKETS_PER_ENTRY``.
    cdef Py_ssize_t joins = 4 * steps
    if entries.count == 0:
        if entries.capacity > SMALL:
            free_entries(entries)
        return
    while (
        joins and entries.buckets > FIRST_BUCKETS
        and entries.count * <uint64_t>MAX_BUCKETS_PER_ENTRY < entries.buckets
    ):
        joins -= 1
        join_bucket(entries)
    while steps and entries.top > SMALL and entries.count < entries.top // 2:
        steps -= 1
        if at(entries, entries.top - 1).key is NULL:
            unlink_free(entries, entries.top - 1)
        elif not move_down(map, entries.top - 1):
            return
        entries.top -= 1
        while entries.blocks_used > 1 and entries.top <= (entries.blocks_used - 1) * BLOCK:
            free_last_block(entries)


cdef bint move_down(Map *map, uint32_t index) noexcept:
    """Move the last entry to a free slot. Return False if there is no memory for its arrays."""
    cdef Entries *entries = &map.entries
    cdef uint32_t to = entries.free
    cdef Entry *entry = at(entries, index)
    cdef Entry *target = at(entries, to)
    cdef Block *block = block_of(entries, to)
    cdef uint32_t there = to & (BLOCK - 1)
    try:
        if entry.flags & HAS_GRACE:
            reserve_array(entries, <void **>&block.expires_at, sizeof(double))
        if weight_of(entries, index):
            reserve_array(entries, <void **>&block.weights, sizeof(uint64_t))
        if block_of(entries, index).trusts is not NULL:
            reserve_array(entries, <void **>&block.trusts, sizeof(uint64_t))
        if entry.flags & HAS_TAGS:
            reserve_array(entries, <void **>&block.tags, sizeof(TagList *))
    except MemoryError:
        return False
    unlink_free(entries, to)
    if entry.flags & HAS_GRACE:
        block.expires_at[there] = expires_at(entries, index, entry)
    if block.weights is not NULL:
        block.weights[there] = weight_of(entries, index)
    if block_of(entries, index).trusts is not NULL:
        block.trusts[there] = trust_of(entries, index)[0]
    if entry.flags & HAS_TAGS:
        block.tags[there] = tags_of(entries, index, entry)
    set_group_number(entries, to, group_number(entries, index))
    if entry.flags & HAS_TRACKED:
        block_of(entries, index).tracked -= 1
        block.tracked += 1
    link_to(entries, index, entry.hash)[0] = to
    on_move(map, index, entry, to)
    move_timer(map, entry, to)
    memcpy(target, entry, sizeof(Entry))
    entry.key = entry.value = NULL
    return True
