# Trust in the entries of a core, as a word of its owner: see ``contract.Core``.

cdef struct Trust:
    uint64_t *word  # NULL if all entries are trusted at all times
    Py_buffer buffer


cdef int open_trust(object word, Trust *to) except -1:
    memset(to, 0, sizeof(Trust))
    if word is not None:
        PyObject_GetBuffer(word, &to.buffer, PyBUF_WRITABLE)
        to.word = <uint64_t *>to.buffer.buf
    return 0


cdef void close_trust(Trust *trust) noexcept:
    if trust.word is not NULL:
        trust.word = NULL
        PyBuffer_Release(&trust.buffer)


cdef inline uint64_t present_trust(Map *map) noexcept:
    return 0 if map.trust.word is NULL else load_word(map.trust.word)


cdef inline bint is_trusted(Map *map, uint64_t word) noexcept:
    """Return whether an entry that was stored under ``word`` is trusted now."""
    return map.trust.word is NULL or (word & 1 and word == load_word(map.trust.word))


cdef inline bint is_current(Map *map, uint32_t index, Entry *entry) noexcept:
    return likely(not entry.flags & (HAS_TAGS | HAS_TRUST)) or is_tagged_current(map, index, entry)


cdef bint is_tagged_current(Map *map, uint32_t index, Entry *entry) noexcept:
    if entry.flags & HAS_TAGS and are_dropped(tags_of(&map.entries, index, entry)):
        return False
    return not entry.flags & HAS_TRUST or is_trusted(map, trust_of(&map.entries, index)[0])
