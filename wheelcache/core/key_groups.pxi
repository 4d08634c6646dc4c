# The groups of keys: keys of one kind, such as the fragments of one name, by rules of the backend: see
# contract.GroupRule. Misses count exactly; of the hits and of the stored values, every 61st counts 61 times. A sample
# in time is right for hot keys, which a sample of the keys is not. 61 is a prime, so that a page that always reads as
# many keys is not always sampled at the same one.

cdef enum:
    MOST_GROUPS = 64  # group 0 has all other keys
    LOOKED_AT = 128  # characters of a key
    NAME_SIZE = 96  # of a group's name; a longer one is no group
    GROUP_SLOTS = 256  # of the table by name


cdef uint64_t EVERY = contract.GROUP_SAMPLE


cdef struct GroupRule:
    const char *prefix
    size_t prefix_length
    const char *name
    size_t name_length
    int stop  # -1: the group has all keys with the prefix


cdef struct KeyGroup:
    uint64_t hits
    uint64_t puts
    uint64_t misses[MISS_CAUSES]
    uint64_t loads
    double load_seconds
    size_t length
    char name[NAME_SIZE]


cdef struct KeyGroups:
    GroupRule *rules
    uint32_t rules_count
    uint32_t count  # of ``groups``; 0 until a key is counted
    uint32_t size
    KeyGroup *groups
    uint8_t slots[GROUP_SLOTS]
    uint64_t next_hit  # the count of hits at which one is sampled
    uint64_t next_put


cdef int open_rules(KeyGroups *groups, tuple rules) except -1:
    """Use other rules, whose bytes the caller keeps."""
    cdef GroupRule *made = <GroupRule *>PyMem_RawCalloc(len(rules) + 1, sizeof(GroupRule))
    cdef Py_ssize_t place
    if made is NULL:
        raise MemoryError
    for place, (prefix, name, stop) in enumerate(rules):
        made[place].prefix, made[place].prefix_length = <const char *><bytes>prefix, len(<bytes>prefix)
        made[place].name, made[place].name_length = <const char *><bytes>name, len(<bytes>name)
        made[place].stop = (<bytes>stop)[0] if stop else -1
    PyMem_RawFree(groups.rules)
    groups.rules, groups.rules_count = made, <uint32_t>len(rules)
    return 0


cdef void close_groups(KeyGroups *groups) noexcept:
    PyMem_RawFree(groups.rules)
    PyMem_RawFree(groups.groups)


cdef void empty_groups(KeyGroups *groups) noexcept:
    """Begin again with no groups."""
    groups.count = 0
    groups.next_hit = groups.next_put = EVERY
    memset(groups.slots, 0, sizeof(groups.slots))


cdef inline size_t memory_of_groups(KeyGroups *groups) noexcept:
    return groups.size * sizeof(KeyGroup)


cdef struct GroupName:
    # The name of a rule, and a part of the key. It is not copied: storing and reading it again took 5 ns of a miss.
    GroupRule *rule  # NULL if the key is in no group
    const char *part
    size_t part_length


cdef inline GroupName name_text(KeyGroups *groups, PyObject *key, bint is_whole, char *text) noexcept:
    """Return the name of the group of a string.

    Args:
        is_whole: whether the end of the string is a stop, too.
        text: LOOKED_AT characters, for the part of a key that is not ASCII.
    """
    cdef GroupName name
    cdef Py_ssize_t length = min(PyUnicode_GET_LENGTH(<object>key), <Py_ssize_t>LOOKED_AT), size
    cdef const char *begin = text
    cdef const char *end
    cdef GroupRule *rule
    cdef uint32_t number
    cdef Py_UCS4 character
    memset(&name, 0, sizeof(GroupName))
    if likely(PyUnicode_IS_ASCII(<object>key)):
        begin = <const char *>PyUnicode_1BYTE_DATA(<object>key)
    else:
        for size in range(length):
            character = PyUnicode_READ_CHAR(<object>key, size)
            if character > 127:
                length, is_whole = size, False
                break
            text[size] = <char>character
    for number in range(groups.rules_count):
        rule = &groups.rules[number]
        if rule.prefix_length > <size_t>length or not are_same(begin, rule.prefix, rule.prefix_length):
            continue
        size = 0
        if rule.stop >= 0:
            end = <const char *>memchr(begin + rule.prefix_length, rule.stop, length - rule.prefix_length)
            if end is NULL and not is_whole:
                continue
            size = (begin + length if end is NULL else end) - begin - rule.prefix_length
        if 0 < rule.name_length + size <= NAME_SIZE:
            name.rule, name.part, name.part_length = rule, begin + rule.prefix_length, size
        break
    return name


cdef inline bint are_same(const char *one, const char *other, size_t length) noexcept:
    """Compare short texts, for which a call of ``memcmp`` takes longer."""
    cdef size_t place = 0
    while place < length and one[place] == other[place]:
        place += 1
    return place == length


cdef inline GroupName name_of_group(KeyGroups *groups, PyObject *key, char *text) noexcept:
    """Return the name of the group of a key."""
    cdef GroupName none
    cdef PyObject *first
    memset(&none, 0, sizeof(GroupName))
    if not PyTuple_Check(<object>key):
        return name_text(groups, key, False, text) if PyUnicode_CheckExact(<object>key) else none
    if PyTuple_GET_SIZE(<object>key) == 0:
        return none
    first = PyTuple_GET_ITEM(<object>key, 0)
    if not PyUnicode_CheckExact(<object>first):
        return none
    # Django's backend keeps keys of which Django may warn in tuples of one item.
    return name_text(groups, first, PyTuple_GET_SIZE(<object>key) > 1, text)


cdef inline size_t length_of(GroupName *name) noexcept:
    return name.rule.name_length + name.part_length


cdef inline unsigned char letter(GroupName *name, size_t place) noexcept:
    """Return a character of a name."""
    cdef size_t in_rule = name.rule.name_length
    return name.rule.name[place] if place < in_rule else name.part[place - in_rule]


cdef inline void copy_name(GroupName *name, char *copy) noexcept:
    memcpy(copy, name.rule.name, name.rule.name_length)
    memcpy(copy + name.rule.name_length, name.part, name.part_length)


cdef bint grow_groups(KeyGroups *groups) noexcept:
    """Return whether there is memory for more groups."""
    cdef uint32_t size = min(2 * groups.size + 2, <uint32_t>MOST_GROUPS + 1)
    cdef KeyGroup *grown = <KeyGroup *>PyMem_RawRealloc(groups.groups, size * sizeof(KeyGroup))
    if grown is not NULL:
        groups.groups, groups.size = grown, size
    return grown is not NULL


cdef KeyGroup *group_of(KeyGroups *groups, PyObject *key) noexcept:
    """Return the group of a key; NULL if there is no memory."""
    cdef char text[LOOKED_AT]
    cdef GroupName name = name_of_group(groups, key, text)
    cdef size_t length, in_rule
    cdef uint32_t slot
    cdef KeyGroup *group
    if groups.count == 0:
        if groups.size == 0 and not grow_groups(groups):
            return NULL
        memset(groups.groups, 0, sizeof(KeyGroup))
        groups.count = 1
    if name.rule is NULL:
        return groups.groups
    length, in_rule = length_of(&name), name.rule.name_length
    # Names that meet in a slot cost little: there are at most 64.
    slot = <uint32_t>(length + 3 * letter(&name, 0) + 5 * letter(&name, length // 2) + 7 * letter(&name, length - 1))
    slot &= GROUP_SLOTS - 1
    while groups.slots[slot]:
        group = &groups.groups[groups.slots[slot]]
        if (
            group.length == length and are_same(group.name, name.rule.name, in_rule)
            and memcmp(group.name + in_rule, name.part, name.part_length) == 0
        ):
            return group
        slot = (slot + 1) & (GROUP_SLOTS - 1)
    if groups.count > MOST_GROUPS or (groups.count == groups.size and not grow_groups(groups)):
        return groups.groups
    group = &groups.groups[groups.count]
    memset(group, 0, sizeof(KeyGroup))
    copy_name(&name, group.name)
    group.length = length
    groups.slots[slot] = <uint8_t>groups.count
    groups.count += 1
    return group


cdef void sample_hit(Map *map, PyObject *key) noexcept:
    cdef KeyGroup *group = group_of(&map.groups, key)
    map.groups.next_hit = map.hits + EVERY
    if group is not NULL:
        group.hits += EVERY


cdef void count_stale_hit(Map *map, PyObject *key) noexcept:
    cdef KeyGroup *group = group_of(&map.groups, key)
    if group is not NULL:
        group.hits += 1


cdef void sample_put(Map *map, PyObject *key) noexcept:
    cdef KeyGroup *group = group_of(&map.groups, key)
    map.groups.next_put = map.puts + EVERY
    if group is not NULL:
        group.puts += EVERY


cdef void count_miss(Map *map, PyObject *key, Py_hash_t hash, int cause) noexcept:
    """Count a miss for ``cause_of_miss``."""
    cdef KeyGroup *group = group_of(&map.groups, key)
    if cause == LONG_GONE:
        cause = counted_cause(&map.past, hash)
    map.misses += 1
    map.past.misses[cause] += 1
    if group is not NULL:
        group.misses[cause] += 1


cdef void count_load(Map *map, PyObject *key, double seconds) noexcept:
    cdef KeyGroup *group = group_of(&map.groups, key)
    if group is not NULL:
        group.loads += 1
        group.load_seconds += seconds


cdef list groups_of(Map *map):
    """Return the counts of all groups. Group 0 has no name."""
    cdef list found = []
    cdef uint32_t number
    cdef KeyGroup group
    for number in range(map.groups.count):
        # A copy: building the tuple may run the collector, and so Python code that counts.
        group = map.groups.groups[number]
        found.append((
            group.name[:group.length].decode("ascii"), group.hits, group.puts, group.loads, group.load_seconds,
            tuple([group.misses[cause] for cause in range(MISS_CAUSES)]),
        ))
    return found
