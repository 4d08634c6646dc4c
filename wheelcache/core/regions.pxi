# W-TinyLFU (Einziger et al., 2017) with a window of a fifth, and exact LRU in the same order. The order is one ring
# through index 0 with two boundaries:
#
#     index 0 - probation - protected - window - index 0
#
# New entries come into the window. An entry that leaves it contests with the oldest one of probation, and the one with
# fewer uses is evicted. Uses are counted up to 15, and halved in each epoch, which is five uses of each entry. A switch
# to LRU makes the window as large as the cache: entries move there one by one as they are used. A switch back makes it
# small, and each new entry moves at most 8 old ones to probation.
#
# The same code orders the entries of the cache and those of its miniatures.

cdef enum:
    IN_MAIN = 16  # in probation or protected
    IN_PROTECTED = 32
    UNCONTESTED = 64  # stored by ``add`` or ``incr``: leaves the window without a contest
    STANDING = 112  # the flags above
    USES_SHIFT = 7
    EPOCH_SHIFT = 11
    OTHER_FLAGS = 0x807F  # all but uses and epoch
    MOST_USES = 15
    MOVES = 8
    MOST_CONTESTED = 15  # more victims would have more uses than one candidate


cdef extern from *:
    """
    /* The last 12 bytes of an entry, and of a node of a miniature. Without the attribute, a compiler may assume that a
       change of a place leaves the entry as it is. */
    typedef struct __attribute__((may_alias)) { uint16_t home, flags; uint32_t older, younger; } Place;
    """
    ctypedef struct Place:
        uint16_t flags
        uint32_t older
        uint32_t younger


cdef struct Node:
    # An entry of a miniature.
    double fresh_until
    uint32_t name
    uint32_t chained
    uint32_t weight
    # As in ``Place``.
    uint16_t home
    uint16_t flags
    uint32_t older
    uint32_t younger


cdef struct Region:
    uint32_t first  # its oldest entry; if it is empty, that of the next region
    uint32_t count
    uint64_t weight
    uint32_t most
    uint64_t most_weight


cdef struct Order:
    Entries *entries  # NULL in a miniature
    Node *nodes  # NULL in a cache
    Region window
    Region protected
    uint32_t most
    uint64_t most_weight
    uint32_t count
    uint32_t uses  # in this epoch
    uint32_t epoch
    bint is_lru


cdef inline Place *place_at(Order *order, uint32_t index) noexcept:
    if order.entries is NULL:
        return <Place *>&order.nodes[index].home
    return <Place *>&at(order.entries, index).home


cdef inline uint64_t weight_in(Order *order, uint32_t index) noexcept:
    return order.nodes[index].weight if order.entries is NULL else weight_of(order.entries, index)


cdef void open_order(Order *order, uint32_t most, uint64_t most_weight) noexcept:
    """Begin an order of at most ``most`` entries, as LRU."""
    order.most, order.most_weight = most, most_weight
    # 80% of the main part.
    order.protected.most = (most - most // 5) * <uint64_t>4 // 5
    order.protected.most_weight = (most_weight - most_weight // 5) // 5 * 4
    use_lru(order, True)


cdef void use_lru(Order *order, bint is_lru) noexcept:
    """Switch between LRU and W-TinyLFU."""
    order.is_lru = is_lru
    # One more than a fifth: a new key survives until a fifth of further keys are stored.
    order.window.most = order.most if is_lru else order.most // 5 + 1
    order.window.most_weight = order.most_weight if is_lru else order.most_weight // 5


cdef void empty_order(Order *order) noexcept:
    """Forget all entries, without touching them."""
    order.window.first = order.window.count = order.protected.first = order.protected.count = order.count = 0
    order.window.weight = order.protected.weight = 0


cdef inline uint32_t uses_of(Order *order, Place *place) noexcept:
    return aged(place.flags >> USES_SHIFT & 15, place.flags >> EPOCH_SHIFT & 15, order.epoch)


cdef inline void set_uses(Order *order, Place *place, uint32_t uses) noexcept:
    place.flags = <uint16_t>((place.flags & OTHER_FLAGS) | uses << USES_SHIFT | (order.epoch & 15) << EPOCH_SHIFT)


cdef inline void count_use(Order *order, Place *place) noexcept:
    cdef uint32_t uses = uses_of(order, place)
    set_uses(order, place, uses + (uses < MOST_USES))
    order.uses += 1
    if unlikely(order.uses >= 5 * <uint64_t>order.count):
        order.uses = 0
        order.epoch += 1


cdef inline void link_before(Order *order, uint32_t index, Place *place, uint32_t younger) noexcept:
    """Link an entry before another one, or before index 0: at the young end."""
    cdef Place *other = place_at(order, younger)
    place.older, place.younger = other.older, younger
    place_at(order, other.older).younger = index
    other.older = index


cdef inline void unlink_place(Order *order, uint32_t index, Place *place) noexcept:
    if unlikely(index == order.protected.first):
        order.protected.first = place.younger
    if unlikely(index == order.window.first):
        order.window.first = place.younger
    place_at(order, place.older).younger = place.younger
    place_at(order, place.younger).older = place.older


cdef inline void add_to(Region *region, uint64_t weight) noexcept:
    region.count += 1
    region.weight += weight


cdef inline void remove_from(Region *region, uint64_t weight) noexcept:
    region.count -= 1
    region.weight -= weight


cdef inline void link_to_window(Order *order, uint32_t index, Place *place) noexcept:
    place.flags &= ~(IN_MAIN | IN_PROTECTED)
    link_before(order, index, place, 0)
    if order.window.first == 0:
        order.window.first = index
        if order.protected.first == 0:
            order.protected.first = index
    add_to(&order.window, weight_in(order, index))


cdef inline void link_to_probation(Order *order, uint32_t index, Place *place) noexcept:
    place.flags = (place.flags & ~IN_PROTECTED) | IN_MAIN
    link_before(order, index, place, order.protected.first)


cdef inline void link_to_protected(Order *order, uint32_t index, Place *place) noexcept:
    link_before(order, index, place, order.window.first)
    if order.protected.first == order.window.first:
        order.protected.first = index
    place.flags |= IN_MAIN | IN_PROTECTED
    add_to(&order.protected, weight_in(order, index))


cdef inline void fit_protected(Order *order) noexcept:
    cdef Place *oldest
    while order.protected.count > order.protected.most or order.protected.weight > order.protected.most_weight:
        # The boundary moves: the oldest one is the youngest of probation then.
        oldest = place_at(order, order.protected.first)
        remove_from(&order.protected, weight_in(order, order.protected.first))
        oldest.flags &= ~IN_PROTECTED
        order.protected.first = oldest.younger


cdef inline void leave_region(Order *order, uint32_t index, Place *place) noexcept:
    unlink_place(order, index, place)
    if not place.flags & IN_MAIN:
        remove_from(&order.window, weight_in(order, index))
    elif place.flags & IN_PROTECTED:
        remove_from(&order.protected, weight_in(order, index))


cdef inline void order_use(Order *order, uint32_t index) noexcept:
    """Count a use of an entry, and move it."""
    cdef Place *place = place_at(order, index)
    count_use(order, place)
    if not place.flags & IN_MAIN:
        if place.younger != 0:
            unlink_place(order, index, place)
            link_before(order, index, place, 0)
    elif order.is_lru:
        leave_region(order, index, place)
        link_to_window(order, index, place)
    else:
        if place.younger != order.window.first or not place.flags & IN_PROTECTED:
            leave_region(order, index, place)
            link_to_protected(order, index, place)
        fit_protected(order)


cdef inline void order_insert(Order *order, uint32_t index, uint32_t uses) noexcept:
    """Insert an entry that had ``uses`` before it left, and that has no weight yet."""
    cdef Place *place = place_at(order, index)
    order.count += 1
    set_uses(order, place, uses)
    count_use(order, place)
    link_to_window(order, index, place)


cdef inline uint32_t next_to_probation(Order *order) noexcept:
    """Return the entry that the window has no place for; 0 if there is none. The youngest entry stays."""
    cdef uint32_t index = order.window.first
    if order.window.count <= order.window.most and order.window.weight <= order.window.most_weight:
        return 0
    return index if place_at(order, index).younger else 0


cdef inline void to_probation(Order *order, uint32_t index) noexcept:
    cdef Place *place = place_at(order, index)
    leave_region(order, index, place)
    link_to_probation(order, index, place)


cdef inline void order_remove(Order *order, uint32_t index) noexcept:
    leave_region(order, index, place_at(order, index))
    order.count -= 1


cdef inline void order_weight(Order *order, uint32_t index, uint64_t change) noexcept:
    """Note that the weight of an entry changes."""
    cdef Place *place = place_at(order, index)
    if not place.flags & IN_MAIN:
        order.window.weight += change
    elif place.flags & IN_PROTECTED:
        order.protected.weight += change


cdef inline uint32_t order_victim(Order *order, uint64_t excess) noexcept:
    """Return the entry that the next eviction removes; 0 if there is none. This changes nothing.

    Args:
        excess: the weight that evictions must free; 0 if one entry must leave, whatever its weight.
    """
    cdef uint32_t index = place_at(order, 0).younger, oldest = index, candidate = order.window.first
    cdef uint32_t uses, sum = 0, contested
    cdef uint64_t freed = 0
    cdef Place *place
    if order.is_lru or candidate == oldest or candidate == 0:
        return oldest
    if order.window.count < order.window.most and order.window.weight < order.window.most_weight:
        return oldest
    place = place_at(order, candidate)
    if place.flags & UNCONTESTED or (excess and place.younger == 0):
        return oldest
    uses = uses_of(order, place)
    for contested in range(MOST_CONTESTED):
        sum += uses_of(order, place_at(order, index))
        if uses <= sum:
            return candidate
        freed += weight_in(order, index)
        index = place_at(order, index).younger
        if freed >= excess or index == candidate:
            return oldest
    return candidate


cdef inline void order_move(Order *order, uint32_t index, uint32_t to) noexcept:
    """Update the order before an entry moves to the index ``to``."""
    cdef Place *place = place_at(order, index)
    if index == order.window.first:
        order.window.first = to
    if index == order.protected.first:
        order.protected.first = to
    place_at(order, place.older).younger = to
    place_at(order, place.younger).older = to


cdef inline uint32_t standing_of(Order *order, uint32_t index) noexcept:
    """Return the region and the uses of an entry."""
    cdef Place *place = place_at(order, index)
    return place.flags & STANDING | uses_of(order, place) << USES_SHIFT
