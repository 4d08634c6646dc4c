# The duel of LRU and W-TinyLFU. Two miniatures of the cache (Waldspurger et al., "Cache Modeling and Optimization using
# Miniature Simulations", 2017) see a sample of the keys, by a secret hash, and have the same share of the cache's
# entries and weight. While LRU rules, the miniatures are compared; while W-TinyLFU rules, the results of the cache with
# the miniature of LRU, since the miniatures alone were 2.5 points off when popularity drifted. Both the difference in
# hits and the number of disagreements decay, by half within accesses to five times the entries.

from libc.math cimport sqrt

cdef enum:
    SAMPLE_BITS = 12
    WEIGHT_SHARES = 16777216  # the unit of weight in a miniature is this part of ``max_weight``

cdef double DECAY = 0.13862943611198906  # ln(2) / 5


cdef struct Miniature:
    Order order
    Departed departed
    uint32_t *buckets
    uint32_t mask
    uint32_t free
    uint32_t top
    uint64_t weight


cdef struct Sample:
    # The keys that miniatures see.
    uint64_t secret
    uint64_t factor
    uint32_t below  # of 2**32
    uint64_t max_weight  # of the cache


cdef struct Duel:
    Order order  # of the cache
    Miniature lru
    Miniature tiny_lfu
    Sample sample
    uint32_t held  # sampled keys in the cache
    double lead  # of W-TinyLFU, in hits
    double disagreements


cdef inline void open_sample(Sample *sample, uint64_t seed, uint32_t below, uint64_t max_weight) noexcept:
    sample.secret = seed * <uint64_t>0x9E3779B97F4A7C15
    sample.factor = (seed ^ (seed >> 29)) * <uint64_t>0xBF58476D1CE4E5B9 | 1
    sample.below, sample.max_weight = below, max_weight


cdef inline uint64_t spread_of(Sample *sample, Py_hash_t hash) noexcept:
    """Return 64 bits that nobody can choose: the bits of the sample, those of the name, and those of the set."""
    cdef uint64_t number = (<uint64_t>hash ^ sample.secret) * sample.factor
    number = (number ^ (number >> 32)) * <uint64_t>0x9E3779B97F4A7C15
    return number ^ (number >> 32)


cdef inline bint is_sampled(Sample *sample, uint64_t spread) noexcept:
    return unlikely(<uint32_t>(spread >> 32) < sample.below)


cdef inline uint32_t size_in(Sample *sample, uint32_t entries) noexcept:
    """Return the number of entries of a miniature, which has the share of the sample."""
    return max(<uint32_t>(<uint64_t>entries * sample.below >> 32), <uint32_t>1)


cdef inline uint64_t spread_of_name(uint32_t name) noexcept:
    cdef uint64_t number = name * <uint64_t>0x9E3779B97F4A7C15
    return number ^ (number >> 32)


cdef int open_miniature(Miniature *mini, uint32_t most, bint is_lru) except -1:
    cdef uint32_t buckets = 2
    while buckets < most:
        buckets *= 2
    mini.mask = buckets - 1
    mini.order.nodes = <Node *>PyMem_RawCalloc(most + 1, sizeof(Node))
    mini.buckets = <uint32_t *>PyMem_RawCalloc(buckets, sizeof(uint32_t))
    if mini.order.nodes is NULL or mini.buckets is NULL:
        raise MemoryError
    open_order(&mini.order, most, WEIGHT_SHARES)
    use_lru(&mini.order, is_lru)
    if not is_lru:
        open_departed(&mini.departed, most)
    empty_miniature(mini)
    return 0


cdef void empty_miniature(Miniature *mini) noexcept:
    memset(mini.buckets, 0, (mini.mask + 1) * sizeof(uint32_t))
    mini.order.nodes[0].older = mini.order.nodes[0].younger = 0
    mini.free, mini.top, mini.weight = 0, 1, 0
    empty_order(&mini.order)


cdef void close_miniature(Miniature *mini) noexcept:
    PyMem_RawFree(mini.order.nodes)
    PyMem_RawFree(mini.buckets)
    PyMem_RawFree(mini.departed.slots)


cdef inline uint32_t *link_to_node(Miniature *mini, uint32_t name) noexcept:
    """Return the link to the node of a name, or to 0."""
    cdef uint32_t *link = &mini.buckets[name & mini.mask]
    while link[0] and mini.order.nodes[link[0]].name != name:
        link = &mini.order.nodes[link[0]].chained
    return link


cdef void remove_node(Miniature *mini, uint32_t *link) noexcept:
    cdef uint32_t index = link[0]
    cdef Node *node = &mini.order.nodes[index]
    if not mini.order.is_lru:
        note_departure(
            &mini.departed, spread_of_name(node.name), uses_of(&mini.order, place_at(&mini.order, index)),
            mini.order.epoch, 0,
        )
    order_remove(&mini.order, index)
    mini.weight -= node.weight
    link[0] = node.chained
    node.chained, mini.free = mini.free, index


cdef void evict_node(Miniature *mini, uint64_t excess) noexcept:
    remove_node(mini, link_to_node(mini, mini.order.nodes[order_victim(&mini.order, excess)].name))


cdef bint request(
    Miniature *mini, uint32_t name, double now, double fresh_until, uint32_t weight, uint16_t flags, bint is_write,
) noexcept:
    """Return whether the miniature has a key, and store the key if it has not.

    Args:
        flags: UNCONTESTED or 0.
        is_write: whether the key gets a new lifetime in any case.
    """
    cdef uint32_t *link = link_to_node(mini, name)
    cdef uint32_t index = link[0], moves
    cdef Node *node = &mini.order.nodes[index]
    cdef bint is_hit = index != 0 and node.fresh_until > now
    if index and not is_hit and not is_write:
        remove_node(mini, link)
        index = 0
    if index:
        order_use(&mini.order, index)
    else:
        if mini.order.count >= mini.order.most:
            evict_node(mini, 0)
        index = mini.free
        if index:
            mini.free = mini.order.nodes[index].chained
        else:
            index = mini.top
            mini.top += 1
        node = &mini.order.nodes[index]
        node.name, node.weight, node.flags = name, 0, 0
        node.chained = mini.buckets[name & mini.mask]
        mini.buckets[name & mini.mask] = index
        order_insert(
            &mini.order, index,
            0 if mini.order.is_lru else uses_of_departed(&mini.departed, spread_of_name(name), mini.order.epoch),
        )
        moves = 0
        while moves < MOVES and next_to_probation(&mini.order):
            to_probation(&mini.order, next_to_probation(&mini.order))
            moves += 1
    if not is_hit or is_write:
        node.fresh_until = fresh_until
        node.flags |= flags
        order_weight(&mini.order, index, <uint64_t>weight - node.weight)
        mini.weight += <uint64_t>weight - node.weight
        node.weight = weight
        while mini.weight > mini.order.most_weight and mini.order.count > 1:
            evict_node(mini, mini.weight - mini.order.most_weight)
    return is_hit


cdef void forget(Miniature *mini, uint32_t name) noexcept:
    cdef uint32_t *link = link_to_node(mini, name)
    if link[0]:
        remove_node(mini, link)


cdef void judge(Duel *duel, bint lru_hits, bint other_hits) noexcept:
    """Compare the two arms for one access, and switch if one of them is clearly better."""
    cdef double kept = 1.0 - DECAY / duel.lru.order.count
    duel.lead *= kept
    duel.disagreements *= kept
    if lru_hits == other_hits:
        return
    duel.lead += 1 if other_hits else -1
    duel.disagreements += 1
    if (
        duel.lead > 2 * sqrt(duel.disagreements) + 1 if duel.order.is_lru
        else -duel.lead > sqrt(duel.disagreements) + 1
    ):
        use_lru(&duel.order, not duel.order.is_lru)
        duel.lead /= 2
        duel.disagreements /= 2


cdef uint32_t share_of(Sample *sample, uint64_t weight) noexcept:
    """Return a weight in the unit of the miniatures, which have the share of the sample in the cache."""
    if weight == 0:
        return 0
    return <uint32_t>min(
        <double>weight / <double>sample.max_weight * WEIGHT_SHARES * <double>(<uint64_t>1 << 32) / sample.below,
        <double>WEIGHT_SHARES,
    )


cdef inline void fit_lru(Duel *duel, bint was_hit) noexcept:
    """Let the miniature of LRU hold no more keys than the cache does. Otherwise, a loop of which few keys are in the
    sample may fit into the miniature, but not into the cache."""
    cdef uint32_t moves = 0
    if duel.order.count < duel.order.most:
        return
    while moves < 2 and duel.lru.order.count + (not was_hit) > duel.held and duel.lru.order.count:
        evict_node(&duel.lru, 0)
        moves += 1


cdef void access(
    Duel *duel, uint64_t spread, double now, double fresh_until, uint64_t weight, uint16_t flags, bint was_hit,
) noexcept:
    """Compare the arms for a sampled access."""
    cdef uint32_t name = <uint32_t>spread, share = share_of(&duel.sample, weight)
    cdef bint lru, other
    fit_lru(duel, was_hit)
    lru = request(&duel.lru, name, now, fresh_until, share, flags, False)
    other = request(&duel.tiny_lfu, name, now, fresh_until, share, flags, False)
    judge(duel, lru, other if duel.order.is_lru else was_hit)


cdef void overwrite(
    Duel *duel, uint64_t spread, double now, double fresh_until, uint64_t weight, uint16_t flags,
) noexcept:
    """Give a sampled key a new lifetime."""
    cdef uint32_t name = <uint32_t>spread, share = share_of(&duel.sample, weight)
    request(&duel.lru, name, now, fresh_until, share, flags, True)
    request(&duel.tiny_lfu, name, now, fresh_until, share, flags, True)


cdef Duel *new_duel(Map *map, uint64_t seed) except NULL:
    cdef Duel *duel = <Duel *>PyMem_RawCalloc(1, sizeof(Duel))
    cdef uint32_t most = <uint32_t>min(map.max_entries, <Py_ssize_t>NO_INDEX)
    cdef uint32_t noted = min(most, <uint32_t>MOST_DEPARTED), below
    if duel is NULL:
        raise MemoryError
    try:
        # clamp(128 / most, 1/16, 1/4)
        below = min(max((128 << SAMPLE_BITS) // most, <uint32_t>256), <uint32_t>1024) << (32 - SAMPLE_BITS)
        open_sample(&duel.sample, seed, below, map.max_weight)
        open_order(&duel.order, most, map.max_weight)
        duel.order.entries = &map.entries
        open_miniature(&duel.lru, size_in(&duel.sample, noted), True)
        open_miniature(&duel.tiny_lfu, size_in(&duel.sample, noted), False)
    except MemoryError:
        close_duel(duel)
        raise
    return duel


cdef void close_duel(Duel *duel) noexcept:
    if duel is not NULL:
        close_miniature(&duel.lru)
        close_miniature(&duel.tiny_lfu)
        PyMem_RawFree(duel)
