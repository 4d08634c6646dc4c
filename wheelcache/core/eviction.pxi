# The eviction policies. All code that depends on the order of eviction is here, except the walk in that order, which is
# in scans.pxi. LRU is a ring through index 0, whose ``younger`` is the least recently used entry. A hit under SIEVE or
# CLOCK would set a bit instead, but would cost as much here, and both have fewer hits when popularity shifts.

cdef enum Policy:
    LRU


cdef inline void on_hit(Map *map, uint32_t index, Entry *entry) noexcept:
    """Move an entry to the young end after a hit or a new value."""
    if map.policy == LRU and entry.younger != 0:
        if unlikely(map.walk.turns is not NULL):
            note_use(map, index, entry)
        unlink_use(&map.entries, entry)
        link_youngest(&map.entries, index, entry)


cdef inline void on_insert(Map *map, uint32_t index, Entry *entry) noexcept:
    if map.policy == LRU:
        link_youngest(&map.entries, index, entry)


cdef inline void on_remove(Map *map, Entry *entry) noexcept:
    if map.policy == LRU:
        unlink_use(&map.entries, entry)


cdef inline uint32_t victim(Map *map) noexcept:
    """Return the index of the entry that the next eviction removes; 0 if there is none. This changes nothing."""
    return in_eviction_order(map, 0) if map.entries.count else 0


cdef inline uint32_t in_eviction_order(Map *map, uint32_t index) noexcept:
    """Return the index of the entry that is evicted after this one (after index 0, the first); 0 at the end."""
    return at(&map.entries, index).younger if map.policy == LRU else 0


cdef inline uint32_t before_in_order(Map *map, uint32_t index) noexcept:
    """Return the index of the entry that is evicted before this one (before index 0, the last); 0 at the start."""
    return at(&map.entries, index).older if map.policy == LRU and map.entries.count else 0


cdef inline void on_move(Map *map, Entry *entry, uint32_t to) noexcept:
    """Update the order before an entry moves to the index ``to``."""
    if map.policy == LRU:
        at(&map.entries, entry.older).younger = to
        at(&map.entries, entry.younger).older = to


cdef inline void link_youngest(Entries *entries, uint32_t index, Entry *entry) noexcept:
    cdef Entry *head = entries.lines[0]
    entry.older, entry.younger = head.older, 0
    at(entries, head.older).younger = index
    head.older = index


cdef inline void unlink_use(Entries *entries, Entry *entry) noexcept:
    at(entries, entry.older).younger = entry.younger
    at(entries, entry.younger).older = entry.older
