# The groups of keys: keys of one kind, such as the fragments of one name, by rules of the backend (contract.GroupRule),
# or by a name that the caller gives. Each entry remembers the number of its group, so a hit increments the count of its
# group, and the hits of the cache are the sum over the groups.
#
# Only 64 groups have a name at a time. Strangers may control the text of a key up to the colon, and must not keep out
# the groups of the site. So each place for a name has a rank, and a new name may take the place of a group with a lower
# one, which is retired: it keeps its number, since entries may have it, and counts for the group without a name. The
# rank of a place only rises, so there are at most three groups for each place, and a number fits into a byte.
#
# The entries of preliminary keys (contract.GroupRule) have a number of their own, which has no place for a name: their
# hits are not read, and their puts count for the group of their name.

cdef enum:
    MOST_GROUPS = 64  # with a name at a time
    MOST_NUMBERS = 194  # 0 is the group without a name; for each place, one group of each rank; that of preliminary keys
    LOOKED_AT = 128  # characters of a key
    NAME_SIZE = 96  # bytes of a group's name; a rule that makes a longer one makes no group
    GROUP_SLOTS = 256  # of the table by name
    ANY_TEXT = 0  # the ranks: text of a key
    IS_COMPUTED = 1  # text of a key whose value was computed
    OF_SITE = 2  # a name that the site's code has chosen


cdef struct GroupRule:
    const char *prefix
    size_t prefix_length
    const char *name
    size_t name_length
    int stop  # -1: the group has all keys with the prefix
    bint is_of_pages  # contract.VIEW names the group
    bint is_preliminary


cdef GroupRule GIVEN  # the rule of names that the caller gives, which adds nothing to them
GIVEN.name = b""

cdef object VIEW = contract.VIEW
cdef bytes NO_VIEW_NAME = NO_VIEW.encode()


cdef struct KeyGroup:
    uint64_t stale_hits
    uint64_t misses[MISS_CAUSES]
    uint64_t loads
    uint64_t load_failures
    double load_seconds
    int rank
    bint is_retired
    size_t length
    char name[NAME_SIZE]


cdef struct KeyGroups:
    GroupRule *rules
    uint32_t rules_count
    uint32_t count  # of ``groups``
    uint32_t size
    KeyGroup *groups
    uint32_t of_rank[3]  # the number of groups with a name, by rank
    uint32_t preliminary  # the number of the group of preliminary keys; 0 if there is none
    uint8_t slots[GROUP_SLOTS]
    # By number. In this struct, a hit and a set find them without another pointer.
    uint64_t hits[MOST_NUMBERS]
    uint64_t puts[MOST_NUMBERS]


cdef int open_groups(KeyGroups *groups) except -1:
    """Begin with the group without a name."""
    if not grow_groups(groups):
        raise MemoryError
    memset(groups.groups, 0, sizeof(KeyGroup))
    groups.count = 1
    return 0


cdef int open_rules(KeyGroups *groups, tuple rules) except -1:
    """Use other rules, whose bytes the caller keeps."""
    cdef GroupRule *made = <GroupRule *>PyMem_RawCalloc(len(rules) + 1, sizeof(GroupRule))
    cdef Py_ssize_t place
    if made is NULL:
        raise MemoryError
    for place, (prefix, name, stop, is_preliminary) in enumerate(rules):
        made[place].prefix, made[place].prefix_length = <const char *><bytes>prefix, len(<bytes>prefix)
        made[place].name, made[place].name_length = <const char *><bytes>name, len(<bytes>name)
        made[place].stop = (<bytes>stop)[0] if stop else -1
        made[place].is_of_pages = not name and not stop
        made[place].is_preliminary = is_preliminary
    PyMem_RawFree(groups.rules)
    groups.rules, groups.rules_count = made, <uint32_t>len(rules)
    return 0


cdef void close_groups(KeyGroups *groups) noexcept:
    PyMem_RawFree(groups.rules)
    PyMem_RawFree(groups.groups)


cdef void zero_groups(KeyGroups *groups) noexcept:
    """Count from zero. The groups keep their numbers."""
    cdef uint32_t number
    cdef KeyGroup *group
    memset(groups.hits, 0, sizeof(groups.hits))
    memset(groups.puts, 0, sizeof(groups.puts))
    for number in range(groups.count):
        group = &groups.groups[number]
        group.stale_hits = group.loads = group.load_failures = 0
        group.load_seconds = 0.0
        memset(group.misses, 0, sizeof(group.misses))


cdef inline uint64_t hits_of(KeyGroups *groups) noexcept:
    """Return the hits that count."""
    return sum_of(groups, groups.hits) - (groups.hits[groups.preliminary] if groups.preliminary else 0)


cdef inline uint64_t sum_of(KeyGroups *groups, uint64_t *counts) noexcept:
    """Return the sum of ``hits`` or ``puts`` over the groups."""
    cdef uint64_t sum = 0
    cdef uint32_t number
    for number in range(groups.count):
        sum += counts[number]
    return sum


cdef struct GroupName:
    # The name of a rule, and a part of the key. It is not copied: storing and reading it again took 5 ns of a miss.
    GroupRule *rule  # NULL if the key is in no group
    const char *part
    size_t part_length
    int rank


cdef inline bytes encoded_name(object name):
    """Return the bytes of a name that the caller gives, or None. Raise a TypeError if it is not a string."""
    return None if name is None else str.encode(name, "utf-8", "replace")


cdef inline GroupName given_name(bytes name) noexcept:
    """Return a name that the caller gives."""
    cdef GroupName given
    cdef const char *text = <const char *>name
    cdef size_t length = cut(text, len(name))
    memset(&given, 0, sizeof(GroupName))
    if length:
        given.rule, given.part, given.part_length, given.rank = &GIVEN, text, length, OF_SITE
    return given


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
        if 0 < rule.name_length + size <= NAME_SIZE or rule.is_of_pages:
            name.rule, name.part, name.part_length = rule, begin + rule.prefix_length, size
            name.rank = OF_SITE if rule.name_length else ANY_TEXT
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
    cdef GroupName none, name
    cdef PyObject *first
    cdef bint is_call
    memset(&none, 0, sizeof(GroupName))
    if not PyTuple_Check(<object>key):
        return name_text(groups, key, False, text) if PyUnicode_CheckExact(<object>key) else none
    if PyTuple_GET_SIZE(<object>key) == 0:
        return none
    first = PyTuple_GET_ITEM(<object>key, 0)
    if not PyUnicode_CheckExact(<object>first):
        return none
    # The key of a memoized call begins with the name of its function. Django's backend keeps keys of which Django may
    # warn in tuples of one item.
    is_call = PyTuple_GET_SIZE(<object>key) > 1
    name = name_text(groups, first, is_call, text)
    name.rank = OF_SITE if is_call else name.rank
    return name


cdef GroupName name_of_view() noexcept:
    """Return the name that ``VIEW`` gives, which is valid until Python code runs."""
    cdef GroupName name
    cdef PyObject *view = NULL
    cdef Py_ssize_t length = 0
    cdef const char *text = NULL
    memset(&name, 0, sizeof(GroupName))
    if PyContextVar_Get(VIEW, NULL, &view) == 0 and view is not NULL:
        # The context keeps the string.
        Py_DECREF(view)
        if isinstance(<object>view, str):
            text = PyUnicode_AsUTF8AndSize(view, &length)
            if text is NULL:
                # There is no memory, or no UTF-8 of the name.
                PyErr_Clear()
                length = 0
    name.rule, name.rank = &GIVEN, OF_SITE
    if length == 0:
        text, length = <const char *>NO_VIEW_NAME, len(NO_VIEW_NAME)
    name.part, name.part_length = text, cut(text, length)
    return name


cdef inline size_t cut(const char *text, size_t length) noexcept:
    """Return the length of at most NAME_SIZE bytes of UTF-8, without a part of a character at the end."""
    if length > NAME_SIZE:
        length = NAME_SIZE
        while text[length] & 0xC0 == 0x80:
            length -= 1
    return length


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
    """Return whether there is memory for one more group."""
    cdef uint32_t size = min(2 * groups.size + 2, <uint32_t>MOST_NUMBERS)
    cdef KeyGroup *grown
    if groups.count < groups.size:
        return True
    grown = <KeyGroup *>PyMem_RawRealloc(groups.groups, size * sizeof(KeyGroup))
    if grown is not NULL:
        groups.groups, groups.size = grown, size
    return grown is not NULL


cdef inline uint32_t slot_of(size_t length, unsigned char first, unsigned char middle, unsigned char last) noexcept:
    # Names that meet in a slot cost little: there are at most 64.
    return <uint32_t>(length + 3 * first + 5 * middle + 7 * last) & (GROUP_SLOTS - 1)


cdef void enter_group(KeyGroups *groups, uint32_t number) noexcept:
    """Enter a group into the table by name."""
    cdef KeyGroup *group = &groups.groups[number]
    cdef size_t length = group.length
    cdef uint32_t slot = slot_of(length, group.name[0], group.name[length // 2], group.name[length - 1])
    while groups.slots[slot]:
        slot = (slot + 1) & (GROUP_SLOTS - 1)
    groups.slots[slot] = <uint8_t>number


cdef inline uint32_t group_named(KeyGroups *groups, GroupName *name) noexcept:
    """Return the number of the group of a name; 0 if there is no place for it."""
    cdef size_t length, in_rule
    cdef uint32_t slot
    cdef KeyGroup *group
    if name.rule is NULL:
        return 0
    length, in_rule = length_of(name), name.rule.name_length
    slot = slot_of(length, letter(name, 0), letter(name, length // 2), letter(name, length - 1))
    while groups.slots[slot]:
        group = &groups.groups[groups.slots[slot]]
        if (
            group.length == length and are_same(group.name, name.rule.name, in_rule)
            and memcmp(group.name + in_rule, name.part, name.part_length) == 0
        ):
            if unlikely(group.rank < name.rank):
                groups.of_rank[group.rank] -= 1
                groups.of_rank[name.rank] += 1
                group.rank = name.rank
            return groups.slots[slot]
        slot = (slot + 1) & (GROUP_SLOTS - 1)
    return new_group(groups, name)


cdef uint32_t new_group(KeyGroups *groups, GroupName *name) noexcept:
    """Give a new name a place, and return its number; 0 if all places have this rank or a higher one."""
    cdef uint32_t *of_rank = groups.of_rank
    cdef KeyGroup *group
    cdef bint is_full = of_rank[0] + of_rank[1] + of_rank[2] == MOST_GROUPS
    if is_full and (name.rank == 0 or of_rank[0] + (of_rank[1] if name.rank == 2 else 0) == 0):
        return 0
    if not grow_groups(groups):
        return 0
    if is_full:
        retire_least(groups)
    group = &groups.groups[groups.count]
    memset(group, 0, sizeof(KeyGroup))
    copy_name(name, group.name)
    group.length, group.rank = length_of(name), name.rank
    of_rank[group.rank] += 1
    enter_group(groups, groups.count)
    groups.count += 1
    return groups.count - 1


cdef void retire_least(KeyGroups *groups) noexcept:
    """Retire the group with the lowest rank, of several the one with the least computing time."""
    cdef uint32_t number
    cdef KeyGroup *group
    cdef KeyGroup *least = NULL
    for number in range(1, groups.count):
        group = &groups.groups[number]
        if not group.is_retired and (
            least is NULL or group.rank < least.rank
            or (group.rank == least.rank and group.load_seconds < least.load_seconds)
        ):
            least = group
    least.is_retired = True
    groups.of_rank[least.rank] -= 1
    memset(groups.slots, 0, sizeof(groups.slots))
    for number in range(1, groups.count):
        if not groups.groups[number].is_retired:
            enter_group(groups, number)


cdef inline GroupName name_for(KeyGroups *groups, PyObject *key, bytes given, char *text) noexcept:
    """Return the name of the group of a key.

    Args:
        given: a name that the caller gives, or None.
    """
    cdef GroupName name = name_of_group(groups, key, text) if given is None else given_name(given)
    return name_of_view() if name.rule is not NULL and name.rule.is_of_pages else name


cdef uint32_t group_of_key(KeyGroups *groups, PyObject *key, bytes given, int rank = ANY_TEXT) noexcept:
    """Return the number of the group of a key, for a miss or a load.

    Args:
        given: as for ``name_for``.
        rank: the least rank of the group.
    """
    cdef char text[LOOKED_AT]
    cdef GroupName name = name_for(groups, key, given, text)
    name.rank = max(name.rank, rank)
    return group_named(groups, &name)


cdef uint32_t group_of_entry(KeyGroups *groups, PyObject *key, bytes given) noexcept:
    """Return the number of the group of an entry, for its hits and puts."""
    cdef char text[LOOKED_AT]
    cdef GroupName name = name_for(groups, key, given, text)
    return group_of_preliminary(groups, &name) if is_of_preliminary(&name) else group_named(groups, &name)


cdef inline bint is_of_preliminary(GroupName *name) noexcept:
    return name.rule is not NULL and name.rule.is_preliminary


cdef bint is_preliminary(KeyGroups *groups, PyObject *key) noexcept:
    """Return whether a key is preliminary."""
    cdef char text[LOOKED_AT]
    cdef GroupName name = name_for(groups, key, None, text)
    return is_of_preliminary(&name)


cdef uint32_t group_of_preliminary(KeyGroups *groups, GroupName *name) noexcept:
    """Return the number of the group of preliminary keys. Without memory for it, that of their name, whose hits count."""
    cdef KeyGroup *group
    if groups.preliminary == 0:
        if not grow_groups(groups):
            return group_named(groups, name)
        group = &groups.groups[groups.count]
        memset(group, 0, sizeof(KeyGroup))
        copy_name(name, group.name)
        group.length, group.is_retired = length_of(name), True
        groups.preliminary = groups.count
        groups.count += 1
    return groups.preliminary


cdef uint32_t group_for_preliminary(KeyGroups *groups) noexcept:
    """Return the number of the group for which the puts of preliminary keys count; 0 if no group has their name."""
    cdef KeyGroup *preliminary = &groups.groups[groups.preliminary]
    cdef uint32_t number
    cdef KeyGroup *group
    for number in range(1, groups.count if groups.preliminary else 1):
        group = &groups.groups[number]
        if not group.is_retired and group.length == preliminary.length and are_same(group.name, preliminary.name, group.length):
            return number
    return 0


cdef uint32_t group_of_hit(Map *map, PyObject *key, uint32_t index) noexcept:
    """Return the number of the group of a look-up of a key, whose entry has this index if there is one."""
    return group_number(&map.entries, index) if index else group_of_entry(&map.groups, key, None)


cdef void count_miss(Map *map, PyObject *key, Py_hash_t hash, int cause, bytes group) noexcept:
    """Count a miss for ``cause_of_miss``."""
    if cause == LONG_GONE:
        cause = counted_cause(&map.past, hash)
    elif cause > LONG_GONE:
        cause = LONG_GONE
    map.misses += 1
    map.past.misses[cause] += 1
    map.groups.groups[group_of_key(&map.groups, key, group)].misses[cause] += 1


cdef uint32_t count_load(Map *map, PyObject *key, double seconds, bytes given, bint has_failed) noexcept:
    """Count a load, and return the number of its group."""
    cdef uint32_t number = group_of_key(&map.groups, key, given, IS_COMPUTED)
    cdef KeyGroup *group = &map.groups.groups[number]
    group.loads += 1
    group.load_failures += has_failed
    group.load_seconds += seconds
    return number


cdef void add_counts(KeyGroup *sum, KeyGroup *group) noexcept:
    cdef int cause
    sum.stale_hits += group.stale_hits
    sum.loads += group.loads
    sum.load_failures += group.load_failures
    sum.load_seconds += group.load_seconds
    for cause in range(MISS_CAUSES):
        sum.misses[cause] += group.misses[cause]


cdef inline bint is_counted(KeyGroup *group, uint64_t hits, uint64_t puts) noexcept:
    """Return whether a group has any counts."""
    cdef uint64_t sum = hits + puts + group.stale_hits + group.loads
    cdef int cause
    for cause in range(MISS_CAUSES):
        sum += group.misses[cause]
    return sum != 0


cdef list groups_of(Map *map):
    """Return the counts of the groups that have any. The first one has no name, and the counts of retired groups."""
    cdef KeyGroups *groups = &map.groups
    cdef KeyGroup group = groups.groups[0]
    cdef uint64_t hits = groups.hits[0], puts = groups.puts[0], of_preliminary = groups.puts[groups.preliminary]
    cdef list found
    cdef uint32_t number, with_preliminary = group_for_preliminary(groups)
    cdef bint is_any
    if groups.preliminary and with_preliminary == 0:
        puts += of_preliminary
    for number in range(1, groups.count):
        if groups.groups[number].is_retired and number != groups.preliminary:
            add_counts(&group, &groups.groups[number])
            hits += groups.hits[number]
            puts += groups.puts[number]
    is_any = is_counted(&group, hits, puts)
    found = [counts_of(&group, hits, puts)]
    for number in range(1, groups.count):
        # A copy: building the tuple may run the collector, and so Python code that counts.
        group, hits, puts = groups.groups[number], groups.hits[number], groups.puts[number]
        puts += of_preliminary if number == with_preliminary else 0
        if not group.is_retired and is_counted(&group, hits, puts):
            found.append(counts_of(&group, hits, puts))
    return found if is_any or len(found) > 1 else []


cdef tuple counts_of(KeyGroup *group, uint64_t hits, uint64_t puts):
    """Return the fields of contract.GroupCounts."""
    return (
        group.name[:group.length].decode(), hits, group.stale_hits, puts, group.loads, group.load_failures,
        group.load_seconds, tuple([group.misses[cause] for cause in range(MISS_CAUSES)]),
    )


cdef inline str name_of_number(KeyGroups *groups, uint32_t number):
    """Return the name of a group; an empty one if it is retired."""
    cdef KeyGroup *group = &groups.groups[number]
    return "" if group.is_retired and number != groups.preliminary else group.name[:group.length].decode()
