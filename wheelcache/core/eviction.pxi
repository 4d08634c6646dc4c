# The eviction policies. All code that depends on the order of eviction is here. LRU is a ring through index 0, whose
# ``younger`` is the least recently used entry. A hit under SIEVE or CLOCK would set a bit instead, but would cost as much
# here, and both have fewer hits when popularity shifts. ADAPTIVE is a duel of LRU and W-TinyLFU: see regions.pxi for the
# order, and duel.pxi for the choice.

cdef enum Policy:
    LRU
    ADAPTIVE


cdef int start_policy(Map *map, bint is_adaptive, uint64_t seed) except -1:
    open_past(&map.past, map.max_entries, map.max_weight, seed)
    if is_adaptive:
        map.duel = new_duel(map, seed)
        map.policy = ADAPTIVE
    return 0


cdef inline void on_hit(Map *map, uint32_t index, Entry *entry, double now) noexcept:
    """Note that a look-up found a fresh and current entry."""
    cdef uint64_t spread
    if map.policy == ADAPTIVE:
        spread = spread_of(&map.duel.sample, entry.hash)
        if is_sampled(&map.duel.sample, spread):
            access(
                map.duel, spread, now, entry.fresh_until, weight_of(&map.entries, index), entry.flags & UNCONTESTED,
                True,
            )
    on_use(map, index, entry)


cdef inline void on_use(Map *map, uint32_t index, Entry *entry) noexcept:
    """Move an entry towards the young end after a hit or a new value."""
    if map.policy == LRU:
        if entry.younger != 0:
            unlink_use(&map.entries, entry)
            link_youngest(&map.entries, index, entry)
    else:
        order_use(&map.duel.order, index)


cdef inline void on_insert(Map *map, uint32_t index, Entry *entry) noexcept:
    if map.policy == LRU:
        link_youngest(&map.entries, index, entry)
    else:
        insert_adaptively(map, index, entry)


cdef void insert_adaptively(Map *map, uint32_t index, Entry *entry) noexcept:
    cdef Duel *duel = map.duel
    cdef uint64_t spread = spread_of(&duel.sample, entry.hash)
    cdef uint32_t moved, moves
    duel.held += is_sampled(&duel.sample, spread)
    order_insert(&duel.order, index, uses_of_departed(&map.past.departed, spread, duel.order.epoch))
    for moves in range(MOVES):
        moved = next_to_probation(&duel.order)
        if moved == 0:
            break
        to_probation(&duel.order, moved)


cdef inline void on_stored(Map *map, uint32_t index, Entry *entry, double fresh_until, Write *write) noexcept:
    """Note that a value was stored. The entry still has the times of the value before."""
    if map.policy == ADAPTIVE:
        stored_adaptively(map, index, entry, fresh_until, write)


cdef void stored_adaptively(Map *map, uint32_t index, Entry *entry, double fresh_until, Write *write) noexcept:
    cdef Duel *duel = map.duel
    cdef uint64_t spread = spread_of(&duel.sample, entry.hash)
    if write.mode == ABSENT or write.mode == SAME:
        entry.flags |= UNCONTESTED
    if not is_sampled(&duel.sample, spread):
        return
    if entry.fresh_until > write.now:
        overwrite(duel, spread, write.now, fresh_until, write.weight, entry.flags & UNCONTESTED)
    else:
        access(duel, spread, write.now, fresh_until, write.weight, entry.flags & UNCONTESTED, False)


cdef inline void on_weight(Map *map, uint32_t index, uint64_t change) noexcept:
    """Note that the weight of an entry is about to change."""
    if map.policy == ADAPTIVE:
        order_weight(&map.duel.order, index, change)


cdef inline void on_remove(Map *map, uint32_t index, Entry *entry, int cause) noexcept:
    if cause != EVICTED and cause != EXPIRED:
        on_delete(map, entry.hash)
        if entry.flags & HAS_TAGS and are_dropped(tags_of(&map.entries, index, entry)):
            cause = TAG_DROPPED
    if map.policy == LRU:
        note_gone(map, entry.hash, NULL, cause)
        unlink_use(&map.entries, entry)
    else:
        note_gone(map, entry.hash, place_at(&map.duel.order, index), cause)
        order_remove(&map.duel.order, index)


cdef inline void on_delete(Map *map, Py_hash_t hash) noexcept:
    """Note that a key was deleted, whether or not there was an entry."""
    cdef uint64_t spread
    if map.policy == ADAPTIVE:
        spread = spread_of(&map.duel.sample, hash)
        if is_sampled(&map.duel.sample, spread):
            forget(&map.duel.lru, <uint32_t>spread)
            forget(&map.duel.tiny_lfu, <uint32_t>spread)


cdef inline void on_clear(Map *map) noexcept:
    """Note that all entries were detached. The arm in force stays, and departed keys keep their uses."""
    if map.policy == ADAPTIVE:
        map.duel.held = 0
        empty_order(&map.duel.order)
        empty_miniature(&map.duel.lru)
        empty_miniature(&map.duel.tiny_lfu)


cdef inline uint32_t oldest(Map *map) noexcept:
    """Return the index of the first entry in the order of eviction; 0 if there is none."""
    return in_eviction_order(map, 0) if map.entries.count else 0


cdef inline uint32_t victim(Map *map) noexcept:
    """Return the index of the entry that the next eviction removes; 0 if there is none. This changes nothing."""
    if map.policy == LRU or map.entries.count == 0:
        return oldest(map)
    return order_victim(&map.duel.order, 0)


cdef inline uint32_t victim_of_weight(Map *map) noexcept:
    """Return the same for an eviction after an entry was stored, which frees weight: not the entry that was stored,
    unless it is the only one."""
    if map.policy == LRU or map.total_weight <= map.max_weight:
        return victim(map)
    return order_victim(&map.duel.order, map.total_weight - map.max_weight)


cdef inline uint32_t in_eviction_order(Map *map, uint32_t index) noexcept:
    """Return the index of the entry that is evicted after this one (after index 0, the first); 0 at the end."""
    return at(&map.entries, index).younger


cdef inline uint32_t before_in_order(Map *map, uint32_t index) noexcept:
    """Return the index of the entry that is evicted before this one (before index 0, the last); 0 at the start."""
    return at(&map.entries, index).older if map.entries.count else 0


cdef inline void on_move(Map *map, uint32_t index, Entry *entry, uint32_t to) noexcept:
    """Update the order before an entry moves to the index ``to``."""
    if map.policy == LRU:
        at(&map.entries, entry.older).younger = to
        at(&map.entries, entry.younger).older = to
    else:
        order_move(&map.duel.order, index, to)


cdef inline void link_youngest(Entries *entries, uint32_t index, Entry *entry) noexcept:
    cdef Entry *head = entries.lines[0]
    entry.older, entry.younger = head.older, 0
    at(entries, head.older).younger = index
    head.older = index


cdef inline void unlink_use(Entries *entries, Entry *entry) noexcept:
    at(entries, entry.older).younger = entry.younger
    at(entries, entry.younger).older = entry.older
