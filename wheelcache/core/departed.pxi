# The uses of keys that left, and why they did, in sets of 8 slots of 4 bytes: half a line of a processor's cache. A
# set is in the order of departure. A new key replaces the one with the fewest uses, of several the one that left first,
# so a flood of keys that are used once replaces only its own kind. The hash of a key is mixed with a secret before:
# nobody can choose keys that share a set.

cdef enum:
    WAYS = 8
    NAME_BITS = 20  # of a slot's 32 bits; two keys of a set share a name once in a million
    MOST_DEPARTED = 16777216

cdef uint32_t NAME = 0xFFFFF000

cdef struct Departed:
    # NULL until a key leaves. A slot has the name, 4 bits of cause (see misses.pxi), 4 bits of epoch and 4 bits of
    # uses; 0 if it is free.
    uint32_t *slots
    uint32_t sets


cdef inline void open_departed(Departed *departed, uint32_t keys) noexcept:
    departed.sets = (keys + WAYS - 1) // WAYS


cdef bint allocate_departed(Departed *departed) noexcept:
    """Return whether there is memory for the slots."""
    departed.slots = <uint32_t *>PyMem_RawCalloc(departed.sets * WAYS, sizeof(uint32_t))
    return departed.slots is not NULL


cdef inline uint32_t *set_of(Departed *departed, uint64_t spread) noexcept:
    return &departed.slots[WAYS * (<uint64_t><uint32_t>spread * departed.sets >> 32)]


cdef inline uint32_t name_of(uint64_t spread) noexcept:
    return <uint32_t>(spread >> 32) << (32 - NAME_BITS)


cdef inline uint32_t aged(uint32_t uses, uint32_t epoch, uint32_t now) noexcept:
    """Return a number of uses that was noted in an epoch, halved for each epoch since."""
    return uses >> ((now - epoch) & 15)


cdef inline uint32_t slot_of_departed(Departed *departed, uint64_t spread) noexcept:
    """Return the slot of a key; 0 if there is none."""
    cdef uint32_t *slots
    cdef uint32_t way, name = name_of(spread)
    if departed.slots is NULL:
        return 0
    slots = set_of(departed, spread)
    for way in range(WAYS):
        if slots[way] & NAME == name and slots[way]:
            return slots[way]
    return 0


cdef inline uint32_t uses_of_departed(Departed *departed, uint64_t spread, uint32_t epoch) noexcept:
    cdef uint32_t slot = slot_of_departed(departed, spread)
    return aged(slot & 15, slot >> 4 & 15, epoch)


cdef inline uint32_t cause_of_departed(Departed *departed, uint64_t spread) noexcept:
    """Return the cause that was noted for a key; 0 if none is known."""
    return slot_of_departed(departed, spread) >> 8 & 15


cdef inline void note_departure(
    Departed *departed, uint64_t spread, uint32_t uses, uint32_t epoch, uint32_t cause,
) noexcept:
    cdef uint32_t *slots
    cdef uint32_t way, slot, each, fewest = 16, replaced = 0, name = name_of(spread)
    if unlikely(departed.slots is NULL) and not allocate_departed(departed):
        return
    slots = set_of(departed, spread)
    for way in range(WAYS):
        slot = slots[way]
        if slot & NAME == name:
            replaced = way
            break
        each = aged(slot & 15, slot >> 4 & 15, epoch) if slot else 0
        if each <= fewest:
            fewest, replaced = each, way
    for way in range(replaced, 0, -1):
        slots[way] = slots[way - 1]
    slots[0] = name | cause << 8 | (epoch & 15) << 4 | uses


cdef inline void note_last(Departed *departed, uint64_t spread, uint32_t cause) noexcept:
    """Do the same for a key whose uses are not counted: it replaces the one that left first."""
    cdef uint32_t *slots
    cdef uint32_t way = 0, name = name_of(spread)
    if unlikely(departed.slots is NULL) and not allocate_departed(departed):
        return
    slots = set_of(departed, spread)
    while way < WAYS - 1 and slots[way] & NAME != name:
        way += 1
    memmove(slots + 1, slots, way * sizeof(uint32_t))
    slots[0] = name | cause << 8
