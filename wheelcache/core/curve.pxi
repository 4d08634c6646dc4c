# The curve: the misses of smaller and larger caches, and of W-TinyLFU. Miniatures of them (see duel.pxi) see the same
# requests for a sample of the keys. Their misses are only compared with each other: the cache's own misses times such a
# ratio were 1 to 2 points of hit ratio off for twice the entries, while 100 keys alone may be 47 points off.
#
# A sampled request takes 0.2 us, so at most one key of 80 is sampled, and a small cache has no curve.

cdef enum:
    CURVE_SIZES = 5  # half, once, twice, four and eight times the entries
    SAME_SIZE = 1
    ARMS = 6  # the sizes, and W-TinyLFU
    HALF_COUNTS = 7  # the misses of the arms, and the disagreements of LRU and W-TinyLFU
    WINDOWS = 3
    CACHE_COUNTS = 5
    WINDOW_COUNTS = 19
    WINDOW = 5  # requests per entry; the first window only fills the miniatures
    MOST_WINDOWS = 8  # that are joined to one: short windows are often wrong by chance

cdef uint32_t CURVE_KEYS = contract.CURVE_KEYS
cdef uint32_t CURVE_SHARE = contract.CURVE_SHARE
cdef Py_ssize_t LEAST_CURVE = contract.LEAST_CURVE


cdef struct Window:
    int64_t counts[CACHE_COUNTS]  # hits, misses, stored missing values, evictions, invalidated entries
    int64_t halves[2][HALF_COUNTS]  # of the sample


cdef struct Curve:
    Sample sample
    Miniature arms[ARMS]
    Window last[2 * WINDOWS]
    Window now
    Window began  # only its ``counts``
    uint32_t windows  # in ``last``
    int64_t joined  # the length of a window, in windows
    bint is_filled


cdef Curve *new_curve(Map *map, uint64_t seed) except NULL:
    cdef Curve *curve = <Curve *>PyMem_RawCalloc(1, sizeof(Curve))
    cdef uint32_t most, below, arm
    if curve is NULL:
        raise MemoryError
    most = <uint32_t>min(map.max_entries, <Py_ssize_t>NO_INDEX)
    below = <uint32_t>min((<uint64_t>CURVE_KEYS << 32) // most, (<uint64_t>1 << 32) // CURVE_SHARE)
    open_sample(&curve.sample, seed, below, map.max_weight)
    try:
        for arm in range(ARMS):
            # With ADAPTIVE, the sizes follow the arm in force.
            open_miniature(
                &curve.arms[arm], size_of_arm(curve, most, arm), <uint64_t>WEIGHT_SHARES << shift_of(arm) >> 1,
                arm < CURVE_SIZES and map.policy == LRU,
            )
            use_lru(&curve.arms[arm].order, arm < CURVE_SIZES)
    except MemoryError:
        close_curve(curve)
        raise
    curve.joined = 1
    return curve


cdef inline uint32_t shift_of(uint32_t arm) noexcept:
    return arm if arm < CURVE_SIZES else SAME_SIZE


cdef inline uint32_t size_of_arm(Curve *curve, uint32_t most, uint32_t arm) noexcept:
    return max(size_in(&curve.sample, most) << shift_of(arm) >> 1, <uint32_t>1)


cdef void close_curve(Curve *curve) noexcept:
    cdef uint32_t arm
    if curve is not NULL:
        for arm in range(ARMS):
            close_miniature(&curve.arms[arm])
        PyMem_RawFree(curve)


cdef size_t memory_of_curve(Curve *curve) noexcept:
    """Return the memory of a curve in bytes."""
    cdef size_t size = sizeof(Curve)
    cdef uint32_t arm
    if curve is NULL:
        return 0
    for arm in range(ARMS):
        size += memory_of_miniature(&curve.arms[arm])
    return size


cdef Window counted(Map *map) noexcept:
    """Return the counts of the cache since it was made."""
    cdef Window window
    memset(&window, 0, sizeof(Window))
    window.counts[0], window.counts[1] = sum_of(&map.groups, map.groups.hits), map.misses
    window.counts[2] = sum_of(&map.groups, map.groups.puts) - map.removals[REPLACED]
    window.counts[3] = map.removals[EVICTED]
    window.counts[4] = map.removals[DELETED] + map.outdated
    return window


cdef void begin_windows(Map *map) noexcept:
    """Forget the counts. The miniatures stay."""
    map.curve.windows, map.curve.joined, map.curve.is_filled = 0, 1, False
    memset(&map.curve.now, 0, sizeof(Window))
    map.curve.began = counted(map)


cdef void end_window(Map *map) noexcept:
    """Begin the next window if enough requests have come."""
    cdef Curve *curve = map.curve
    cdef Window counts = counted(map)
    cdef int each
    cdef int64_t requests = counts.counts[0] + counts.counts[2] - curve.began.counts[0] - curve.began.counts[2]
    if requests < <double>curve.joined * WINDOW * map.max_entries:
        return
    for each in range(CACHE_COUNTS):
        curve.now.counts[each] = counts.counts[each] - curve.began.counts[each]
    if curve.is_filled:
        curve.last[curve.windows] = curve.now
        curve.windows += 1
    curve.is_filled = True
    memset(&curve.now, 0, sizeof(Window))
    curve.began = counts
    if curve.windows == 2 * WINDOWS:
        join_windows(curve)


cdef void join_windows(Curve *curve) noexcept:
    """Join pairs of windows, or forget the older half."""
    cdef int64_t *counts = <int64_t *>curve.last
    cdef bint joins = curve.joined < MOST_WINDOWS
    cdef int each, place
    for each in range(WINDOWS * WINDOW_COUNTS):
        place = each + each // WINDOW_COUNTS * WINDOW_COUNTS
        counts[each] = counts[place] + counts[place + WINDOW_COUNTS] if joins else counts[each + WINDOWS * WINDOW_COUNTS]
    curve.windows = WINDOWS
    curve.joined *= 1 + joins


cdef void note_request(
    Map *map, Py_hash_t hash, double now, double fresh_until, uint64_t weight, uint16_t flags, bint is_write,
) noexcept:
    """Pass a request for a sampled key to the miniatures. A write gives the key a new lifetime, and does not count."""
    cdef Curve *curve = map.curve
    cdef uint64_t spread = spread_of(&curve.sample, hash)
    cdef uint32_t arm, share = share_of(&curve.sample, weight)
    cdef int64_t *half = curve.now.halves[spread >> 31 & 1]
    cdef bint hits[ARMS]
    if map.policy == ADAPTIVE and curve.arms[0].order.is_lru != map.duel.order.is_lru:
        for arm in range(CURVE_SIZES):
            use_lru(&curve.arms[arm].order, map.duel.order.is_lru)
        begin_windows(map)
    for arm in range(ARMS):
        prefetch(&curve.arms[arm].buckets[<uint32_t>spread & curve.arms[arm].mask])
    for arm in range(ARMS):
        prefetch(&curve.arms[arm].order.nodes[curve.arms[arm].buckets[<uint32_t>spread & curve.arms[arm].mask]])
    for arm in range(ARMS):
        hits[arm] = request(&curve.arms[arm], <uint32_t>spread, now, fresh_until, share, flags, is_write)
        half[arm] += not hits[arm] and not is_write
    half[ARMS] += hits[SAME_SIZE] != hits[CURVE_SIZES] and not is_write
    end_window(map)


cdef void forget_in_curve(Map *map, Py_hash_t hash) noexcept:
    cdef uint32_t arm
    for arm in range(ARMS):
        forget(&map.curve.arms[arm], <uint32_t>spread_of(&map.curve.sample, hash))


cdef tuple sample_of(Map *map):
    """Return the counts of the last windows; zeros before these are over."""
    cdef Window last[WINDOWS]
    cdef int64_t *counts = <int64_t *>last
    memset(last, 0, sizeof(last))
    if map.curve is not NULL and map.curve.windows >= WINDOWS:
        memcpy(last, &map.curve.last[map.curve.windows - WINDOWS], sizeof(last))
    return tuple([counts[each] for each in range(WINDOWS * WINDOW_COUNTS)])
