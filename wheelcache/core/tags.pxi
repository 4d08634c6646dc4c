# Tags: names under which entries are dropped together. All entries that are stored with a name between two drops of it
# share one ``Tag``, so a drop is one change for any number of entries; the wheel thread removes them later. An entry
# with tags has a list of them: 8 bytes in an array of its block, which is created for the first such entry, and 8 bytes
# plus 8 bytes for each tag.
#
# Waking a sleeping thread takes the caller longer than all the rest of a drop, and the sweep is not urgent. So only the
# first drop wakes it: from then on, the sweep is due once per second as long as there are entries with tags.

cdef enum:
    # The system provides memory for the pages of the table that are used. With 256 places, half of all pages of an
    # HTTP cache were refused while 30 clients purged others.
    MOMENTS = 65536


@cython.final
@cython.no_gc
cdef class Tag:
    # Referred to by the lists of entries and, until it is dropped, by the table of names.
    cdef str name
    cdef uint32_t entries
    cdef bint is_dropped


cdef struct TagList:
    size_t count
    PyObject *tags[1]  # an array of ``count`` tags


cdef struct Tags:
    PyObject *by_name  # a dict of the tags that were not dropped
    double due  # the time of the next sweep; -INFINITY: now; INFINITY: after the next drop
    uint32_t sweep  # the sweep continues below this index; 0 if there is nothing to sweep
    bint sweeps_again  # a tag was dropped during the sweep
    uint64_t *moments  # of the last drops, by the hash of the name: for values that were computed during a drop


cdef inline TagList *tags_of(Entries *entries, uint32_t index, Entry *entry) noexcept:
    return block_of(entries, index).tags[index & (BLOCK - 1)] if entry.flags & HAS_TAGS else NULL


cdef bint are_dropped(TagList *held) noexcept:
    """Return whether one of the tags was dropped."""
    cdef size_t place
    for place in range(held.count):
        if (<Tag>held.tags[place]).is_dropped:
            return True
    return False


cdef uint64_t *last_drop(Map *map, str name) except NULL:
    """Return a pointer to the moment of the last drop of a tag, in nanoseconds. Several names may share a place."""
    return &map.tags.moments[mixed(hash_of_plain(<PyObject *>name)) % MOMENTS]


cdef int check_tags(Map *map, tuple tags, uint64_t since) except -1:
    """Return whether none of the tags was dropped after the moment ``since``. Always True if ``since`` is 0."""
    if since:
        for name in tags:
            if load_word(last_drop(map, name)) >= since:
                return False
    return True


cdef TagList *new_list(Map *map, tuple tags) except NULL:
    """Create the list of the tags of an entry, after ``check_tags``."""
    cdef TagList *held = <TagList *>PyMem_RawMalloc(sizeof(size_t) + len(tags) * sizeof(PyObject *))
    cdef Tag tag
    if held is NULL:
        raise MemoryError
    held.count = 0
    try:
        for name in tags:
            tag = tag_of(map, name)
            tag.entries += 1
            Py_INCREF(<PyObject *>tag)
            held.tags[held.count] = <PyObject *>tag
            held.count += 1
    except BaseException:
        release_list(map, held)
        raise
    return held


cdef Tag tag_of(Map *map, str name):
    cdef Tag tag = (<dict>map.tags.by_name).get(name)
    if tag is None:
        tag = Tag.__new__(Tag)
        tag.name = name
        (<dict>map.tags.by_name)[name] = tag
    return tag


cdef void release_list(Map *map, TagList *held) noexcept:
    """Free a list of tags. No Python code runs here, since all names are exactly ``str``."""
    cdef size_t place
    cdef PyObject *tag
    for place in range(held.count):
        tag = held.tags[place]
        (<Tag>tag).entries -= 1
        if (<Tag>tag).entries == 0 and PyDict_GetItem(map.tags.by_name, (<Tag>tag).name) == tag:
            PyDict_DelItem(map.tags.by_name, (<Tag>tag).name)
        Py_DECREF(tag)
    PyMem_RawFree(held)


cdef inline void set_list(Map *map, Entries *entries, uint32_t index, Entry *entry, TagList *held) noexcept:
    """Replace the tags of an entry. If there are new tags, the block must have the array."""
    cdef TagList *old = tags_of(entries, index, entry)
    if old is not NULL:
        release_list(map, old)
    entry.flags &= ~HAS_TAGS
    if held is not NULL:
        entry.flags |= HAS_TAGS
        block_of(entries, index).tags[index & (BLOCK - 1)] = held


cdef tuple names_of(TagList *held):
    """Return the names of tags. The collector is paused, since a finalizer could remove the entry and free the list."""
    cdef size_t place
    cdef list names = []
    cdef bint collects
    if held is NULL:
        return ()
    collects = PyGC_Disable()
    try:
        for place in range(held.count):
            names.append((<Tag>held.tags[place]).name)
        return tuple(names)
    finally:
        if collects:
            PyGC_Enable()


cdef uint32_t drop(Map *map, str name) except? 0xFFFFFFFF:
    """Drop a tag, and return the number of entries that had it."""
    cdef uint64_t *moment = last_drop(map, name)
    cdef Tag tag = (<dict>map.tags.by_name).pop(name, None)
    store_word(moment, nanoseconds())
    if tag is None:
        return 0
    tag.is_dropped = True
    begin_sweep(map)
    return tag.entries


cdef void begin_sweep(Map *map) noexcept:
    if map.tags.due == INFINITY:
        map.tags.due = -INFINITY
    if map.tags.sweep:
        # The sweep does not start again now. Otherwise, frequent drops would keep it from reaching the end.
        map.tags.sweeps_again = True
    else:
        map.tags.sweep = map.entries.top


cdef Py_ssize_t sweep(Map *map, Py_ssize_t budget, double now, Gone *gone) noexcept:
    """Remove the entries of dropped tags. Look at ``budget`` entries, or blocks without tags, at most, and return the
    number looked at. The sweep visits descending indices, since entries move only to lower ones."""
    cdef Py_ssize_t looked = 0
    cdef uint32_t index
    cdef Entry *entry
    while looked < budget and map.tags.sweep and has_room(gone):
        index = min(map.tags.sweep, map.entries.top)
        if index <= 1:
            map.tags.sweep = map.entries.top if map.tags.sweeps_again else 0
            map.tags.sweeps_again = False
            continue
        index -= 1
        looked += 1
        if block_of(&map.entries, index).tags is NULL:
            # At least 1, as 0 would skip the end above.
            map.tags.sweep = max(index & ~(BLOCK - 1), <uint32_t>1)
            continue
        map.tags.sweep = index
        entry = at(&map.entries, index)
        if entry.flags & HAS_TAGS and entry.key is not NULL:
            if are_dropped(tags_of(&map.entries, index, entry)):
                remove_entry(map, index, DELETED, now, gone)
    if map.tags.sweep:
        map.tags.due = -INFINITY
    elif map.tags.due != INFINITY:
        map.tags.due = now + SWEEP_INTERVAL if PyDict_Size(map.tags.by_name) else INFINITY
    return looked
