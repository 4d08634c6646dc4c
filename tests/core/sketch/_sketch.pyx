# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A compiled sketch of a core, for the contract suite alone: it shows that the contract can be met without Python code.

A dict leads from a key to its entry. Each entry is in up to four doubly linked lists: in order of use, in order of
birth (for scans), in a slot of the timing wheel, and among the entries that an ordered scan finds moved. The global
interpreter lock makes a step atomic as long as no Python code runs within it, and such code runs where the garbage
collector may start and where a last reference goes. So each step has three parts: it reads the clock, converts its
arguments and allocates; it changes everything, and moves the references that it gives up to a ``GoneList``; it reports
what is in there and drops it.

The wheel has 11 levels of 64 slots. A timer is on the level of the highest digit, in base 64, in which its tick differs
from the current one. So all timers of a level come before those of the next one, a bit for each slot finds the
earliest, and empty ticks cost nothing. The option ``slots`` is not used.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem
from cpython.object cimport Py_EQ, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from libc.math cimport ceil, floor
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os
import threading
from collections import deque

from wheelcache.core import contract
from wheelcache.core.contract import MISSING, Counts, Record, RemovalCause, Times


cdef extern from *:
    """
    #include <stdint.h>
    /* Stamps are shared with other processes. Sequentially consistent: touch reads the news after it wrote a stamp. */
    static inline uint64_t load_word(uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
    static inline void store_word(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
    static inline int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
    static inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
    """
    uint64_t load_word(uint64_t *word) noexcept nogil
    void store_word(uint64_t *word, uint64_t value) noexcept nogil
    int highest_bit(uint64_t word) noexcept nogil
    int lowest_bit(uint64_t word) noexcept nogil


cdef double INF = float("inf")
cdef double KEEP = contract.KEEP
cdef Py_ssize_t BATCH = contract.BATCH
cdef uint64_t MAX_WEIGHT = contract.MAX_WEIGHT
cdef uint64_t MOST_WEIGHT = 2 * contract.MAX_WEIGHT
"""Above this, ``set`` evicts beyond its budget, so that one more weight never overflows the sum."""

cdef int ANY = contract.ANY, SAME = contract.SAME, RESTORE = contract.RESTORE, DEAD = contract.DEAD
cdef int STORED = contract.STORED, WAKE = contract.WAKE, MORE = contract.MORE, TOLD = contract.TOLD
cdef int PRESENT = contract.PRESENT, CHANGED = contract.CHANGED, OUTDATED = contract.OUTDATED
cdef int TOO_HEAVY = contract.TOO_HEAVY, NO_ROOM = contract.NO_ROOM

CAUSES = list(RemovalCause)
cdef enum:
    EXPIRED = 0
    EVICTED = 1
    REPLACED = 2
    DELETED = 3
    CLEARED = 4
    UNTOLD = 5  # in a GoneList: dropped without a report
    COMPLETED = 6  # in a GoneList: a watch, for ``told``

cdef enum:
    LEVELS = 11
    SLOTS = 64

cdef uint64_t FARTHEST_TICK = <uint64_t>1 << 62

cdef Py_ssize_t DROPPED_PER_SET = 4
cdef Py_ssize_t SMALL_TABLE = 1024
cdef Py_ssize_t FEW = 8192


cdef struct Link:
    Link *prev
    Link *next
    void *owner  # the entry; NULL for the head of a list


cdef inline void empty(Link *head) noexcept:
    head.prev = head.next = head
    head.owner = NULL


cdef inline void append(Link *head, Link *link) noexcept:
    link.prev = head.prev
    link.next = head
    head.prev.next = link
    head.prev = link


cdef inline void unlink(Link *link) noexcept:
    link.prev.next = link.next
    link.next.prev = link.prev
    link.next = NULL


cdef struct Gone:
    PyObject *key
    PyObject *value
    int cause


cdef struct GoneList:
    Gone *items
    Py_ssize_t count
    Py_ssize_t room
    Gone few[6]


cdef inline void start(GoneList *gone) noexcept:
    gone.items = gone.few
    gone.count = 0
    gone.room = 6


cdef bint reserve(GoneList *gone, Py_ssize_t more) noexcept:
    """Make room. False if there is no memory."""
    cdef Py_ssize_t room = gone.room
    cdef Gone *items
    if gone.count + more <= room:
        return True
    while room < gone.count + more:
        room *= 2
    items = <Gone *>realloc(NULL if gone.items is gone.few else gone.items, room * sizeof(Gone))
    if items is NULL:
        return False
    if gone.items is gone.few:
        memcpy(items, gone.few, gone.count * sizeof(Gone))
    gone.items = items
    gone.room = room
    return True


cdef inline void push(GoneList *gone, PyObject *key, PyObject *value, int cause) noexcept:
    cdef Gone *item = &gone.items[gone.count]
    item.key, item.value, item.cause = key, value, cause
    Py_INCREF(<object>key)
    if value is not NULL:
        Py_INCREF(<object>value)
    gone.count += 1


cdef struct Item:
    # A key, and what is to be stored for it.
    PyObject *key
    PyObject *value
    uint64_t weight
    Py_ssize_t slot
    bint quiet  # ``seen`` was given
    uint64_t news
    uint64_t stamp


cdef struct Snapshot:
    PyObject *key
    PyObject *value
    double fresh_until
    double due
    uint64_t weight
    bint is_current
    bint has_seen
    uint64_t news
    uint64_t stamp


cdef object seen_of(uint64_t news, uint64_t stamp):
    return (news, stamp)


cdef object record_of(Snapshot *shot):
    # ``tuple.__new__``, since the ``__new__`` of a named tuple is Python code.
    times = tuple.__new__(Times, (shot.fresh_until, shot.due, bool(shot.is_current)))
    seen = seen_of(shot.news, shot.stamp) if shot.has_seen else None
    return tuple.__new__(Record, (<object>shot.key, <object>shot.value, times, shot.weight, seen))


@cython.final
@cython.freelist(256)
cdef class Entry:
    cdef object key
    cdef object value
    cdef double fresh_until
    cdef double due
    cdef uint64_t tick
    cdef uint64_t weight
    cdef uint64_t news
    cdef uint64_t stamp
    cdef Py_ssize_t slot
    cdef uint64_t serial  # in order of birth
    cdef uint64_t turn  # the last ordered scan in which it came, was born or was moved
    cdef Link used
    cdef Link born
    cdef Link timer
    cdef Link moved  # valid in the scan ``turn`` only


cdef struct Tables:
    # The stamps that processes share.
    bint given
    bint written
    uint64_t next_stamp
    Py_ssize_t slots
    uint64_t *stamps
    uint64_t *news
    Py_buffer stamps_buffer
    Py_buffer news_buffer


cdef int open_tables(object stamps, Tables *tables) except -1:
    tables.given = tables.written = False
    if stamps is None:
        return 0
    first = stamps.first
    if first is not None:
        tables.next_stamp = first
    PyObject_GetBuffer(stamps.table, &tables.stamps_buffer, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(stamps.news, &tables.news_buffer, PyBUF_WRITABLE)
    except BaseException:
        PyBuffer_Release(&tables.stamps_buffer)
        raise
    tables.stamps = <uint64_t *>tables.stamps_buffer.buf
    tables.news = <uint64_t *>tables.news_buffer.buf
    tables.slots = min(tables.stamps_buffer.len, tables.news_buffer.len) // <Py_ssize_t>sizeof(uint64_t)
    tables.given, tables.written = True, first is not None
    return 0


cdef void close_tables(Tables *tables) noexcept:
    if tables.given:
        PyBuffer_Release(&tables.stamps_buffer)
        PyBuffer_Release(&tables.news_buffer)
        tables.given = False


@cython.final
cdef class Detached:
    """Entries that ``clear`` took out, and how far they were dropped."""

    cdef dict entries
    cdef Py_ssize_t place


# Watches are in chains by hash. The table outlives the core as long as a watch refers to it.

cdef struct WatchTable:
    PyObject **chains
    Py_ssize_t size
    Py_ssize_t count
    Py_ssize_t references


@cython.final
cdef class Watch:
    # Without ``__weakref__``: the callbacks would run while a watch without references is still in its chain.
    cdef readonly object key
    cdef readonly object value
    cdef readonly bint broken
    cdef bint wants_value
    cdef bint has_seen
    cdef uint64_t news
    cdef uint64_t stamp
    cdef Py_hash_t hash
    cdef WatchTable *table
    cdef PyObject *next
    cdef PyObject **place  # the pointer to this watch; NULL once it has ended

    @property
    def seen(self):
        return seen_of(self.news, self.stamp) if self.has_seen else None

    def close(self):
        self.end()

    cdef void end(self) noexcept:
        if self.place is not NULL:
            self.place[0] = self.next
            if self.next is not NULL:
                (<Watch>self.next).place = self.place
            self.place = NULL
            self.table.count -= 1

    def __dealloc__(self):
        # Not by ``end``, which would be given a reference to an object without any.
        if self.place is not NULL:
            self.place[0] = self.next
            if self.next is not NULL:
                (<Watch>self.next).place = self.place
            self.table.count -= 1
        if self.table is not NULL:
            release(self.table)


cdef void release(WatchTable *table) noexcept:
    table.references -= 1
    if table.references == 0:
        free(table.chains)
        free(table)


cdef inline void chain(WatchTable *table, PyObject *watch) noexcept:
    cdef PyObject **place = &table.chains[<size_t>(<Watch>watch).hash % <size_t>table.size]
    (<Watch>watch).next = place[0]
    (<Watch>watch).place = place
    if place[0] is not NULL:
        (<Watch>place[0]).place = &(<Watch>watch).next
    place[0] = watch


@cython.final
cdef class Scan:
    """A walk. Without an order it follows the births, up to the last one at its start.

    In order of use, it first follows the list of use up to the first entry that came, was born or was moved since it
    began: all such entries are behind the others. Then it takes those that were moved before their turn.
    """

    cdef SketchCore core
    cdef bint ordered
    cdef Link *cursor
    cdef uint64_t last_serial
    cdef PyObject *next
    cdef PyObject **place  # the pointer to this scan; NULL once it has ended

    def step(self, Py_ssize_t count):
        cdef SketchCore core = self.core
        cdef Py_ssize_t found = 0, index
        cdef Snapshot *shots
        cdef Entry entry
        cdef list records = []
        if core.barrier:
            core.begin()
        if self.place is NULL:
            return records
        count = max(0, min(count, len(core.entries)))
        shots = <Snapshot *>malloc((count + 1) * sizeof(Snapshot))
        if shots is NULL:
            raise MemoryError
        while found < count:
            entry = self.next_entry()
            if entry is None:
                break
            core.snap(entry, &shots[found])
            found += 1
        if found == 0:
            self.end()
        try:
            for index in range(found):
                records.append(record_of(&shots[index]))
        finally:
            for index in range(found):
                Py_DECREF(<object>shots[index].key)
                Py_DECREF(<object>shots[index].value)
            free(shots)
        return records

    cdef Entry next_entry(self):
        cdef Entry entry
        cdef Link *link = self.cursor
        if not self.ordered:
            if link.owner is NULL or (<Entry>link.owner).serial > self.last_serial:
                return None
            self.cursor = link.next
            return <Entry>link.owner
        if link.owner is not NULL and (<Entry>link.owner).turn != self.core.turn:
            entry = <Entry>link.owner
            self.cursor = link.next
            entry.turn = self.core.turn
            entry.moved.next = NULL
            return entry
        link = self.core.moved.next
        if link.owner is NULL:
            return None
        entry = <Entry>link.owner
        unlink(link)
        return entry

    def close(self):
        self.end()

    cdef void end(self) noexcept:
        if self.place is not NULL:
            self.place[0] = self.next
            if self.next is not NULL:
                (<Scan>self.next).place = self.place
            self.place = NULL

    def __dealloc__(self):
        if self.place is not NULL:
            self.place[0] = self.next
            if self.next is not NULL:
                (<Scan>self.next).place = self.place


cdef void end_scans(PyObject **first) noexcept:
    cdef PyObject *scan = first[0]
    while scan is not NULL:
        (<Scan>scan).place = NULL
        scan = (<Scan>scan).next
    first[0] = NULL


@cython.final
cdef class SketchCore:
    """See ``contract.Core``."""

    cdef object __weakref__
    cdef dict entries
    cdef list spares  # entries made ahead of the step that needs them
    cdef list detached
    cdef Py_ssize_t most  # the most entries that the table held
    cdef Link used  # least recently used first
    cdef Link born
    cdef Link moved  # by hits before their turn in the ordered scan
    cdef PyObject *scans
    cdef PyObject *ordered_scan
    cdef uint64_t turn
    cdef uint64_t last_serial

    cdef Py_ssize_t max_entries  # -1 for no bound
    cdef bint weighs
    cdef uint64_t max_weight
    cdef uint64_t total_weight
    cdef double jitter
    cdef double max_jitter
    cdef uint64_t random_state
    cdef object clock  # None for the system's

    cdef double interval
    cdef double origin
    cdef uint64_t tick
    cdef Py_ssize_t timers
    cdef double wheel_due
    cdef uint64_t occupied[LEVELS]  # a bit for each slot that may have timers
    cdef Link slots[LEVELS][SLOTS]
    cdef Link cascade  # the timers of a coarse slot that the wheel has reached, to be filed again

    cdef Tables tables

    cdef WatchTable *watches
    cdef readonly object told
    cdef object tell
    cdef bint barrier  # the gate is shut, or a fork is in progress
    cdef object gate_error
    cdef object gate_thread
    cdef object fork_thread
    cdef object fork_lock
    cdef uint64_t hits
    cdef uint64_t misses
    cdef uint64_t left[5]  # by cause

    def __cinit__(self):
        cdef int level, slot
        empty(&self.used)
        empty(&self.born)
        empty(&self.moved)
        empty(&self.cascade)
        for level in range(LEVELS):
            for slot in range(SLOTS):
                empty(&self.slots[level][slot])
        self.watches = <WatchTable *>calloc(1, sizeof(WatchTable))
        if self.watches is NULL:
            raise MemoryError
        self.watches.references = 1

    def __init__(
        self,
        *,
        max_entries=None,
        max_weight=None,
        double jitter=0.0,
        double max_jitter=60.0,
        double interval=1.0,
        int slots=512,
        clock=None,
        stamps=None,
    ):
        self.entries = {}
        self.spares = []
        self.detached = []
        self.max_entries = -1 if max_entries is None else max_entries
        self.weighs = max_weight is not None
        self.max_weight = MAX_WEIGHT if max_weight is None else max_weight
        self.jitter = jitter
        self.max_jitter = max_jitter
        self.clock = clock
        self.interval = interval
        self.origin = self.read_clock()
        self.wheel_due = INF
        self.told = deque()
        self.tell = self.told.append
        self.fork_lock = threading.Lock()
        self.seed()
        open_tables(stamps, &self.tables)

    def __dealloc__(self):
        cdef Py_ssize_t index
        cdef PyObject *watch
        end_scans(&self.scans)
        end_scans(&self.ordered_scan)
        if self.watches is not NULL:
            release(self.watches)
        close_tables(&self.tables)

    # Below: reading.

    def find(self, key, default=None):
        value = self.hit(key)
        if value is not MISSING:
            return value
        if self.barrier:
            self.check_gate()
        return default

    def get(self, key, default=None):
        value = self.hit(key)
        if value is not MISSING:
            return value
        if self.barrier:
            self.check_gate()
        self.misses += 1
        return default

    def get_many(self, keys):
        cdef list wanted = list(keys), values = [MISSING] * len(wanted)
        cdef Py_ssize_t index
        cdef Entry entry
        cdef double now = self.read_clock()
        if self.barrier:
            self.wait_for_fork()
            for key in wanted:
                if self.live(key, now) is None:
                    self.check_gate()
        for index in range(len(wanted)):
            entry = self.live(wanted[index], now)
            if entry is None:
                self.misses += 1
            else:
                self.hits += 1
                self.use(entry)
                values[index] = entry.value
        return values

    cdef inline object hit(self, object key):
        """The value of a fresh and current entry, counted and moved, else MISSING."""
        cdef double now = -INF
        cdef PyObject *found
        cdef Entry entry
        if self.clock is not None:
            # Python code, so before the look-up.
            now = self.clock()
        found = PyDict_GetItemWithError(self.entries, key)
        if found is NULL:
            return MISSING
        entry = <Entry>found
        if self.clock is None and entry.fresh_until != INF:
            now = system_clock()
        if entry.fresh_until > now and (not self.tables.given or self.is_current(entry)):
            self.hits += 1
            self.use(entry)
            return entry.value
        return MISSING

    def __len__(self):
        return len(self.entries)

    @property
    def weight(self):
        return self.total_weight

    @property
    def next_due(self):
        return -INF if self.detached else self.wheel_due

    @property
    def entry_bytes(self):
        # The object and its GC header; its place in the dict, 1.5 times 28 bytes.
        return sizeof_entry() + 16 + 42

    @property
    def in_step(self):
        # No Python code ever runs inside a step.
        return False

    def now(self):
        return self.read_clock()

    def times(self, key):
        cdef Entry entry
        cdef double fresh_until, due
        cdef bint is_current
        if self.barrier:
            self.begin()
        entry = self.lookup(key)
        if entry is None:
            return None
        fresh_until, due, is_current = entry.fresh_until, entry.due, self.is_current(entry)
        return tuple.__new__(Times, (fresh_until, due, bool(is_current)))

    def peek(self, key, *, bint use=False):
        cdef Snapshot shot
        cdef Entry entry
        if self.barrier:
            self.begin()
        entry = self.lookup(key)
        if entry is None:
            return None
        if use:
            self.use(entry)
        self.snap(entry, &shot)
        try:
            return record_of(&shot)
        finally:
            Py_DECREF(<object>shot.key)
            Py_DECREF(<object>shot.value)

    def keys(self):
        cdef double now = self.read_clock()
        cdef list keys = []
        cdef Link *link
        cdef Entry entry
        if self.barrier:
            self.begin()
        link = self.used.next
        while link.owner is not NULL:
            entry = <Entry>link.owner
            if entry.fresh_until > now and self.is_current(entry):
                keys.append(entry.key)
            link = link.next
        return keys

    def counts(self):
        cdef uint64_t hits = self.hits, misses = self.misses
        cdef uint64_t left[5]
        cdef int cause
        for cause in range(5):
            left[cause] = self.left[cause]
        return tuple.__new__(Counts, (hits, misses, {CAUSES[cause]: left[cause] for cause in range(5)}))

    def count(self, *, uint64_t hits=0, uint64_t misses=0):
        self.hits += hits
        self.misses += misses

    def watch(self, key, *, Py_ssize_t slot=0, bint wants_value=False):
        cdef Watch watch = Watch.__new__(Watch)
        cdef WatchTable *table = self.watches
        watch.key = key
        watch.hash = PyObject_Hash(key)
        watch.value = MISSING
        watch.wants_value = wants_value
        if self.barrier:
            self.begin()
        self.check_slot(slot)
        if table.count >= table.size:
            self.grow_watches()
        if self.tables.given:
            watch.has_seen = True
            # The news first: if there is any more in between, the stamp is another one, too.
            watch.news = load_word(&self.tables.news[slot])
            watch.stamp = load_word(&self.tables.stamps[slot])
        watch.table = table
        table.references += 1
        table.count += 1
        chain(table, <PyObject *>watch)
        return watch

    def scan(self, *, bint ordered=False):
        cdef Scan scan = Scan.__new__(Scan)
        cdef PyObject **place
        scan.core = self
        scan.ordered = ordered
        if self.barrier:
            self.begin()
        place = &self.ordered_scan if ordered else &self.scans
        if ordered:
            if self.ordered_scan is not NULL:
                raise RuntimeError("an ordered scan of this core is in progress")
            self.turn += 1
            empty(&self.moved)
            scan.cursor = self.used.next
        else:
            scan.cursor = self.born.next
            scan.last_serial = self.last_serial
        scan.next = place[0]
        scan.place = place
        if scan.next is not NULL:
            (<Scan>scan.next).place = &scan.next
        place[0] = <PyObject *>scan
        return scan

    # Below: writing.

    def set(
        self,
        key,
        value,
        ttl,
        double grace=0.0,
        bint exact=False,
        int64_t weight=0,
        int mode=0,
        expected=MISSING,
        Watch watch=None,
        Py_ssize_t slot=0,
        seen=None,
        list removed=None,
    ):
        cdef Item item
        cdef GoneList gone
        cdef double seconds = INF if ttl is None else ttl, now
        cdef int outcome
        fill(&item, key, value, weight, slot, seen)
        if seconds == KEEP and mode != SAME:
            raise ValueError("KEEP is for SAME alone")
        now = self.read_clock()
        self.prepare(1)
        start(&gone)
        try:
            outcome = self.put(&item, now, seconds, grace, exact, mode, <PyObject *>expected, watch, &gone)
        finally:
            self.finish(&gone, removed)
        return outcome

    def set_many(self, items, ttl, list removed):
        cdef list wanted = list(items), outcomes = [0] * len(wanted)
        cdef Py_ssize_t index, size = len(wanted)
        cdef double seconds = INF if ttl is None else ttl, now = self.read_clock()
        cdef Item *batch
        cdef GoneList gone
        start(&gone)
        batch = <Item *>calloc(size + 1, sizeof(Item))
        if batch is NULL:
            raise MemoryError
        try:
            for index in range(size):
                key, value, weight, slot, seen = wanted[index]
                fill(&batch[index], key, value, weight, slot, seen)
                Py_INCREF(key)
                Py_INCREF(value)
            self.prepare(size)
            for index in range(size):
                self.check_slot(batch[index].slot)
            for index in range(size):
                outcomes[index] = self.put(&batch[index], now, seconds, 0.0, False, ANY, NULL, None, &gone)
        finally:
            self.finish(&gone, removed)
            drop_items(batch, size)
            del self.spares[16:]
        return outcomes

    def touch(self, key, ttl, bint exact=True):
        cdef double seconds = INF if ttl is None else ttl, now = self.read_clock(), grace
        cdef Entry entry
        cdef int outcome
        cdef uint64_t stamp
        if self.barrier:
            self.begin()
        entry = self.live(key, now)
        if entry is None:
            return 0
        if self.tables.given:
            if self.tables.written:
                stamp = self.tables.next_stamp
                self.tables.next_stamp += 1
                store_word(&self.tables.stamps[entry.slot], stamp)
            else:
                stamp = entry.stamp
            if load_word(&self.tables.news[entry.slot]) != entry.news:
                return 0
            entry.stamp = stamp
        grace = 0.0 if entry.due == INF else entry.due - entry.fresh_until
        entry.fresh_until = now + self.shortened(seconds, exact)
        outcome = STORED | self.file(entry, entry.fresh_until + grace, now)
        return outcome | self.lateness(now)

    def delete(self, key, default=None, int only=0, cause=RemovalCause.DELETED, Py_ssize_t slot=0, list removed=None):
        cdef GoneList gone
        cdef double now = self.read_clock()
        cdef Entry entry
        cdef int code = CAUSES.index(cause) if cause is not RemovalCause.DELETED else DELETED
        if self.barrier:
            self.begin()
        start(&gone)
        entry = self.remove(key, now, only, code, slot, &gone)
        if entry is None:
            value = default
        else:
            value = entry.value
        self.finish(&gone, removed)
        self.fit_table()
        return value

    def delete_many(self, keys, list removed):
        cdef list wanted = list(keys)
        cdef Py_ssize_t index, size = len(wanted)
        cdef double now = self.read_clock()
        cdef int deleted = 0
        cdef Item *batch
        cdef GoneList gone
        start(&gone)
        batch = <Item *>calloc(size + 1, sizeof(Item))
        if batch is NULL:
            raise MemoryError
        try:
            for index in range(size):
                key, slot = wanted[index]
                fill(&batch[index], key, None, 0, slot, None)
                Py_INCREF(key)
                Py_INCREF(None)
            if self.barrier:
                self.begin()
            for index in range(size):
                self.check_slot(batch[index].slot)
            if not reserve(&gone, size):
                raise MemoryError
            for index in range(size):
                if self.remove(<object>batch[index].key, now, 0, DELETED, batch[index].slot, &gone) is not None:
                    deleted += 1
        finally:
            self.finish(&gone, removed)
            drop_items(batch, size)
        self.fit_table()
        return deleted

    def evict(self, Py_ssize_t budget=1024, list removed=None, *, size=None):
        cdef GoneList gone
        cdef double now = self.read_clock()
        cdef Py_ssize_t most = self.max_entries if size is None else size
        cdef bint more
        if self.barrier:
            self.begin()
        start(&gone)
        more = self.evict_excess(budget, most, now, &gone)
        self.finish(&gone, removed)
        self.fit_table()
        return more

    def advance(self, Py_ssize_t budget=1024, list removed=None):
        cdef GoneList gone
        cdef double now = self.read_clock()
        cdef Py_ssize_t looked
        self.wait_for_fork()
        start(&gone)
        looked = self.drop_detached(budget, UNTOLD, &gone)
        looked += self.take_due(now, budget - looked, &gone)
        self.wheel_due = self.next_wake()
        self.finish(&gone, removed)
        self.fit_table()
        return looked

    def clear(self, *, bint drop=True):
        cdef GoneList gone
        cdef Py_ssize_t size
        cdef dict fresh = {}
        cdef Detached node = Detached.__new__(Detached)
        self.wait_for_fork()
        start(&gone)
        if len(self.entries):
            self.detached.append(node)
        self.write_stamps()
        size = self.detach_all(fresh, node)
        if drop:
            self.drop_detached(BATCH, UNTOLD, &gone)
        self.finish(&gone, None)
        return size

    def drain(self, Py_ssize_t budget=1024, list removed=None):
        cdef GoneList gone
        cdef bint more
        self.wait_for_fork()
        start(&gone)
        self.drop_detached(budget, CLEARED, &gone)
        more = len(self.detached) > 0
        self.finish(&gone, removed)
        return more

    # Below: what stays the same for long.

    def use_clock(self, clock):
        cdef double now = system_clock() if clock is None else clock()
        cdef Link *link
        cdef Entry entry
        old = self.clock
        self.clock = clock
        if now < self.time_of(self.tick):
            self.empty_wheel()
            self.origin = now
            self.tick = 0
            link = self.used.next
            while link.owner is not NULL:
                entry = <Entry>link.owner
                entry.timer.next = NULL
                if entry.due != INF:
                    self.timers += 1
                    self.place(entry, max(self.tick_of(entry.due), <uint64_t>1))
                link = link.next
            self.wheel_due = self.next_wake()

    def use_stamps(self, stamps, *, bint keep):
        cdef dict fresh = {}
        cdef Detached node = Detached.__new__(Detached)
        cdef Tables tables
        cdef bint detaches
        open_tables(stamps, &tables)
        self.wait_for_fork()
        # Entries of a core without stamps have no slots.
        detaches = not keep or not self.tables.given
        if detaches and len(self.entries):
            self.detached.append(node)
        self.tables, tables = tables, self.tables
        if detaches:
            self.detach_all(fresh, node)
        close_tables(&tables)

    def gate(self, error, thread=0):
        self.gate_thread, old = thread, self.gate_error
        self.gate_error = error
        self.barrier = error is not None or self.fork_thread is not None

    def before_fork(self):
        self.fork_lock.acquire()
        self.fork_thread = threading.get_ident()
        self.barrier = True

    def after_fork(self, *, bint in_child):
        self.fork_thread = None
        self.barrier = self.gate_error is not None
        if not in_child:
            self.fork_lock.release()
            return
        self.fork_lock = threading.Lock()
        self.seed()
        self.break_watches(True)
        end_scans(&self.scans)
        end_scans(&self.ordered_scan)
        self.hits = self.misses = 0
        for cause in range(5):
            self.left[cause] = 0
        self.told.clear()

    # Below: before a step, and after it.

    cdef inline double read_clock(self) except? -1:
        return system_clock() if self.clock is None else self.clock()

    cdef int seed(self) except -1:
        self.random_state = int.from_bytes(os.urandom(8), "little") | 1
        return 0

    cdef int begin(self) except -1:
        self.wait_for_fork()
        return self.check_gate()

    cdef int wait_for_fork(self) except -1:
        while self.fork_thread is not None and self.fork_thread != threading.get_ident():
            with self.fork_lock:
                pass
        return 0

    cdef int check_gate(self) except -1:
        error = self.gate_error
        if error is not None and threading.get_ident() != self.gate_thread:
            raise error()
        return 0

    cdef int prepare(self, Py_ssize_t entries) except -1:
        """Have as many entries ready, and the gate open."""
        while True:
            if self.barrier:
                self.begin()
            if len(self.spares) >= entries:
                return 0
            self.spares.append(Entry.__new__(Entry))

    cdef int check_slot(self, Py_ssize_t slot) except -1:
        if self.tables.given and not 0 <= slot < self.tables.slots:
            raise IndexError("there is no such slot in the stamps")
        return 0

    cdef int finish(self, GoneList *gone, list removed) except -1:
        """After the last change: report, and drop the references."""
        cdef Py_ssize_t index
        cdef Gone *item
        try:
            for index in range(gone.count):
                item = &gone.items[index]
                if item.cause == COMPLETED:
                    self.tell(<object>item.key)
                elif removed is not None and item.cause != UNTOLD:
                    removed.append((<object>item.key, <object>item.value, CAUSES[item.cause]))
        finally:
            for index in range(gone.count):
                Py_DECREF(<object>gone.items[index].key)
                Py_XDECREF(gone.items[index].value)
            if gone.items is not gone.few:
                free(gone.items)
        return 0

    cdef int fit_table(self) except -1:
        """Give memory back: a dict keeps its size until it is rebuilt."""
        cdef dict fresh
        cdef Link *link
        cdef Py_ssize_t size
        if self.most <= SMALL_TABLE or len(self.entries) * 8 >= self.most or len(self.entries) > FEW:
            return 0
        fresh = {}
        size = len(self.entries)
        link = self.used.next
        while link.owner is not NULL:
            PyDict_SetItem(fresh, (<Entry>link.owner).key, <Entry>link.owner)
            link = link.next
        self.entries, fresh = fresh, self.entries
        self.most = size
        return 0

    # Below: within a step. Nothing here runs Python code.

    cdef inline Entry lookup(self, object key):
        cdef PyObject *found = PyDict_GetItemWithError(self.entries, key)
        return None if found is NULL else <Entry>found

    cdef inline Entry live(self, object key, double now):
        cdef Entry entry = self.lookup(key)
        return entry if entry is not None and entry.fresh_until > now and self.is_current(entry) else None

    cdef inline bint is_current(self, Entry entry) noexcept:
        return not self.tables.given or load_word(&self.tables.stamps[entry.slot]) == entry.stamp

    cdef void snap(self, Entry entry, Snapshot *shot) noexcept:
        shot.key, shot.value = <PyObject *>entry.key, <PyObject *>entry.value
        Py_INCREF(entry.key)
        Py_INCREF(entry.value)
        shot.fresh_until, shot.due, shot.weight = entry.fresh_until, entry.due, entry.weight
        shot.is_current, shot.has_seen = self.is_current(entry), self.tables.given
        shot.news, shot.stamp = entry.news, entry.stamp

    cdef inline void use(self, Entry entry) noexcept:
        """Move to the young end."""
        if self.used.prev is &entry.used:
            return
        if self.ordered_scan is not NULL:
            self.note_use(entry)
        unlink(&entry.used)
        append(&self.used, &entry.used)

    cdef void note_use(self, Entry entry) noexcept:
        """An ordered scan is in progress, and an entry moves out of its way."""
        cdef Scan scan = <Scan>self.ordered_scan
        if scan.cursor is &entry.used:
            scan.cursor = entry.used.next
        if entry.turn == self.turn:
            if entry.moved.next is NULL:
                return
            unlink(&entry.moved)
        entry.turn = self.turn
        append(&self.moved, &entry.moved)

    cdef void pass_scans(self, Entry entry) noexcept:
        """An entry leaves: no scan may point to it."""
        cdef PyObject *scan = self.scans
        while scan is not NULL:
            if (<Scan>scan).cursor is &entry.born:
                (<Scan>scan).cursor = entry.born.next
            scan = (<Scan>scan).next
        if self.ordered_scan is not NULL:
            if (<Scan>self.ordered_scan).cursor is &entry.used:
                (<Scan>self.ordered_scan).cursor = entry.used.next
            if entry.turn == self.turn and entry.moved.next is not NULL:
                unlink(&entry.moved)

    cdef int put(
        self, Item *item, double now, double ttl, double grace, bint exact, int mode, PyObject *expected, Watch watch,
        GoneList *gone,
    ) except -1:
        """``set``, within its step. An exception leaves everything as it was but for detached entries."""
        cdef Entry entry, victim
        cdef double fresh_until, due
        cdef int outcome, cause
        cdef bint is_live, is_heavy = item.weight > self.max_weight
        self.check_slot(item.slot)
        if self.detached:
            self.drop_detached(DROPPED_PER_SET, UNTOLD, gone)
        entry = self.lookup(<object>item.key)
        is_live = entry is not None and entry.fresh_until > now and self.is_current(entry)
        if watch is not None and watch.broken:
            return CHANGED
        if mode == SAME:
            if not is_live or <PyObject *>entry.value is not expected:
                return CHANGED
        elif mode != ANY and is_live:
            return PRESENT
        if mode == RESTORE:
            if self.is_watched(<object>item.key):
                return CHANGED
            if not self.has_room(entry, item.weight):
                return NO_ROOM
        if item.quiet and self.tables.given and load_word(&self.tables.stamps[item.slot]) != item.stamp:
            if watch is None and is_live:
                if not reserve(gone, 1):
                    raise MemoryError
                self.write_stamp(item.slot)
                self.take(entry, REPLACED, now, gone)
            return OUTDATED
        if not reserve(gone, 2 + (0 if mode == RESTORE else self.count_completed(<object>item.key, watch))):
            raise MemoryError
        if ttl == KEEP:
            fresh_until, due = entry.fresh_until, entry.due
        else:
            fresh_until = now + self.shortened(ttl, exact)
            due = fresh_until + grace
        if entry is None and not is_heavy:
            # First in, since that may fail for want of memory.
            victim = self.spares[len(self.spares) - 1]
            PyDict_SetItem(self.entries, <object>item.key, victim)
        # From here on, nothing fails.
        outcome = 0
        if mode != RESTORE and self.watches.count:
            outcome = self.break_watches_of(<object>item.key, <object>item.value, True, watch, gone)
        if is_heavy:
            if not item.quiet:
                self.write_stamp(item.slot)
            if entry is not None:
                self.take(entry, REPLACED, now, gone)
            return outcome | TOO_HEAVY
        if entry is not None:
            cause = REPLACED if entry.fresh_until > now else EXPIRED
            self.left[cause] += 1
            push(gone, <PyObject *>item.key, <PyObject *>entry.value, cause)
            self.use(entry)
        else:
            entry = self.spares.pop()
            if self.max_entries >= 0 and len(self.entries) > self.max_entries:
                self.take(<Entry>self.used.next.owner, EVICTED, now, gone)
            self.bear(entry, <object>item.key)
        entry.value = <object>item.value
        entry.fresh_until = fresh_until
        if self.weighs:
            self.total_weight += item.weight - entry.weight
            entry.weight = item.weight
        if self.tables.given:
            entry.slot = item.slot
            if item.quiet:
                entry.news, entry.stamp = item.news, item.stamp
            elif self.tables.written:
                entry.news = entry.stamp = self.write_stamp(item.slot)
            else:
                entry.news = load_word(&self.tables.news[item.slot])
                entry.stamp = load_word(&self.tables.stamps[item.slot])
        outcome |= STORED | self.file(entry, due, now)
        if self.total_weight > self.max_weight and self.evict_excess(BATCH, self.max_entries, now, gone):
            outcome |= MORE
        return outcome | self.lateness(now)

    cdef bint has_room(self, Entry entry, uint64_t weight) noexcept:
        """Whether a value can be restored without evicting."""
        if entry is None and self.max_entries >= 0 and len(self.entries) >= self.max_entries:
            return False
        if not self.weighs or weight > self.max_weight:
            return True
        return self.total_weight - (0 if entry is None else entry.weight) + weight <= self.max_weight

    cdef void bear(self, Entry entry, object key) noexcept:
        """A new entry, which is in the dict already."""
        entry.key = key
        entry.due = INF
        entry.weight = 0
        entry.used.owner = entry.born.owner = entry.timer.owner = entry.moved.owner = <void *>entry
        entry.timer.next = entry.moved.next = NULL
        self.last_serial += 1
        entry.serial = self.last_serial
        # An ordered scan does not wait for it.
        entry.turn = self.turn
        append(&self.used, &entry.used)
        append(&self.born, &entry.born)
        if len(self.entries) > self.most:
            self.most = len(self.entries)

    cdef Entry remove(self, object key, double now, int only, int cause, Py_ssize_t slot, GoneList *gone):
        """``delete``, within its step: the entry if it was fresh and current, else None."""
        cdef Entry entry
        cdef bint is_live
        self.check_slot(slot)
        entry = self.lookup(key)
        is_live = entry is not None and entry.fresh_until > now and self.is_current(entry)
        if only == DEAD:
            if entry is None or is_live:
                return None
        else:
            self.write_stamp(slot)
            if self.watches.count:
                self.break_watches_of(key, None, False, None, gone)
        if entry is None:
            return None
        self.take(entry, cause, now, gone)
        return entry if is_live else None

    cdef void take(self, Entry entry, int cause, double now, GoneList *gone) noexcept:
        """Take an entry out. There is room in ``gone``, which keeps its key and its value."""
        if entry.fresh_until <= now:
            cause = EXPIRED
        self.left[cause] += 1
        push(gone, <PyObject *>entry.key, <PyObject *>entry.value, cause)
        if self.scans is not NULL or self.ordered_scan is not NULL:
            self.pass_scans(entry)
        unlink(&entry.used)
        unlink(&entry.born)
        if entry.timer.next is not NULL:
            unlink(&entry.timer)
            self.timers -= 1
        self.total_weight -= entry.weight
        PyDict_DelItem(self.entries, entry.key)

    cdef bint evict_excess(self, Py_ssize_t budget, Py_ssize_t most, double now, GoneList *gone) noexcept:
        """Evict until the bounds hold. Whether that takes more than ``budget``, or more memory than there is."""
        cdef Py_ssize_t size
        while True:
            size = len(self.entries)
            if not (0 <= most < size or self.total_weight > self.max_weight):
                return False
            if budget <= 0 and self.total_weight <= MOST_WEIGHT or not reserve(gone, 1):
                return True
            self.take(<Entry>self.used.next.owner, EVICTED, now, gone)
            budget -= 1

    cdef Py_ssize_t detach_all(self, dict fresh, Detached node) noexcept:
        """Take everything out. ``node`` is in ``detached``, unless there are no entries. How many there were."""
        cdef Py_ssize_t size = len(self.entries)
        if size:
            node.entries = self.entries
            self.entries = fresh
        self.break_watches(False)
        end_scans(&self.scans)
        end_scans(&self.ordered_scan)
        self.left[CLEARED] += size
        self.most = 0
        self.total_weight = 0
        empty(&self.used)
        empty(&self.born)
        empty(&self.moved)
        self.empty_wheel()
        return size

    cdef Py_ssize_t drop_detached(self, Py_ssize_t budget, int cause, GoneList *gone) noexcept:
        cdef Py_ssize_t dropped = 0
        cdef Detached node
        cdef PyObject *key
        cdef PyObject *entry
        while dropped < budget and self.detached:
            node = self.detached[len(self.detached) - 1]
            while dropped < budget and reserve(gone, 1) and PyDict_Next(node.entries, &node.place, &key, &entry):
                push(gone, key, <PyObject *>(<Entry>entry).value, cause)
                PyDict_DelItem(node.entries, <object>key)
                dropped += 1
            if len(node.entries) == 0:
                self.detached.pop()
            elif dropped < budget:
                # There is no memory.
                break
        return dropped

    # Below: stamps.

    cdef inline uint64_t write_stamp(self, Py_ssize_t slot) noexcept:
        """There is news in ``slot``. The stamp, which is in the news word first; 0 if writes leave the tables alone."""
        cdef uint64_t stamp = 0
        if self.tables.written:
            stamp = self.tables.next_stamp
            self.tables.next_stamp += 1
            store_word(&self.tables.news[slot], stamp)
            store_word(&self.tables.stamps[slot], stamp)
        return stamp

    cdef void write_stamps(self) noexcept:
        """There is news in every slot."""
        cdef Py_ssize_t slot
        if self.tables.written:
            for slot in range(self.tables.slots):
                store_word(&self.tables.news[slot], self.tables.next_stamp)
                store_word(&self.tables.stamps[slot], self.tables.next_stamp)
            self.tables.next_stamp += 1

    # Below: watches.

    cdef int grow_watches(self) except -1:
        cdef WatchTable *table = self.watches
        cdef Py_ssize_t index, old_size = table.size
        cdef PyObject **old = table.chains
        cdef PyObject *watch
        cdef PyObject *next_watch
        cdef PyObject **chains = <PyObject **>calloc(2 * old_size + 8, sizeof(PyObject *))
        if chains is NULL:
            raise MemoryError
        table.chains, table.size = chains, 2 * old_size + 8
        for index in range(old_size):
            watch = old[index]
            while watch is not NULL:
                next_watch = (<Watch>watch).next
                chain(table, watch)
                watch = next_watch
        free(old)
        return 0

    cdef PyObject *next_watch(self, object key, Py_hash_t hash, PyObject *after) noexcept:
        """The next open watch on ``key``; the first one after NULL."""
        cdef WatchTable *table = self.watches
        cdef PyObject *watch
        if after is not NULL:
            watch = (<Watch>after).next
        else:
            watch = table.chains[<size_t>hash % <size_t>table.size] if table.count else NULL
        while watch is not NULL:
            if (<Watch>watch).hash == hash and PyObject_RichCompareBool((<Watch>watch).key, key, Py_EQ) == 1:
                return watch
            watch = (<Watch>watch).next
        return NULL

    cdef bint is_watched(self, object key) noexcept:
        return self.watches.count and self.next_watch(key, PyObject_Hash(key), NULL) is not NULL

    cdef Py_ssize_t count_completed(self, object key, Watch under) noexcept:
        """How many watches a ``set`` completes."""
        cdef Py_ssize_t count = 0
        cdef PyObject *watch
        cdef Py_hash_t hash
        if self.watches.count:
            hash = PyObject_Hash(key)
            watch = self.next_watch(key, hash, NULL)
            while watch is not NULL:
                count += watch is not <PyObject *>under and (<Watch>watch).wants_value
                watch = self.next_watch(key, hash, watch)
        return count

    cdef int break_watches_of(self, object key, object value, bint is_set, Watch under, GoneList *gone) noexcept:
        """TOLD if watches were completed, else 0. There is room in ``gone`` for those."""
        cdef Py_hash_t hash = PyObject_Hash(key)
        cdef PyObject *watch = self.next_watch(key, hash, NULL)
        cdef PyObject *following
        cdef int outcome = 0
        while watch is not NULL:
            following = self.next_watch(key, hash, watch)
            if watch is not <PyObject *>under:
                (<Watch>watch).broken = True
                if is_set and (<Watch>watch).wants_value:
                    push(gone, watch, NULL, COMPLETED)
                    (<Watch>watch).value = value
                    (<Watch>watch).end()
                    outcome = TOLD
            watch = following
        return outcome

    cdef void break_watches(self, bint ends) noexcept:
        cdef WatchTable *table = self.watches
        cdef Py_ssize_t index
        cdef PyObject *watch
        cdef PyObject *following
        for index in range(table.size):
            watch = table.chains[index]
            while watch is not NULL:
                following = (<Watch>watch).next
                (<Watch>watch).broken = True
                if ends:
                    (<Watch>watch).end()
                watch = following

    # Below: times.

    cdef inline double shortened(self, double ttl, bint exact) noexcept:
        cdef double cut
        if exact or self.jitter == 0.0 or ttl == INF:
            return ttl
        cut = min(ttl * self.jitter, self.max_jitter)
        # xorshift64*
        self.random_state ^= self.random_state >> 12
        self.random_state ^= self.random_state << 25
        self.random_state ^= self.random_state >> 27
        return ttl - cut * <double>((self.random_state * <uint64_t>2685821657736338717) >> 11) / <double>(1 << 53)

    cdef inline int lateness(self, double now) noexcept:
        """WAKE if the wheel is over two intervals late, else 0."""
        return WAKE if self.detached or now - self.wheel_due > 2 * self.interval else 0

    cdef inline double time_of(self, uint64_t tick) noexcept:
        return self.origin + <double>tick * self.interval

    cdef inline uint64_t tick_of(self, double due) noexcept:
        """The first tick that is not before ``due``. Rounding must make it neither early nor a tick late."""
        cdef double ticks = ceil((due - self.origin) / self.interval)
        cdef uint64_t tick
        if ticks >= <double>FARTHEST_TICK:
            return FARTHEST_TICK
        if ticks <= 0:
            return 0
        tick = <uint64_t>ticks
        if self.time_of(tick) < due:
            return tick + 1
        return tick - 1 if self.time_of(tick - 1) >= due else tick

    cdef inline uint64_t tick_at(self, double now) noexcept:
        """The last tick that is not after ``now``."""
        cdef double ticks = floor((now - self.origin) / self.interval)
        cdef uint64_t tick
        if ticks >= <double>FARTHEST_TICK:
            return FARTHEST_TICK
        tick = <uint64_t>ticks if ticks > 0 else 0
        if tick and self.time_of(tick) > now:
            return tick - 1
        return tick + 1 if self.time_of(tick + 1) <= now else tick

    cdef inline void place(self, Entry entry, uint64_t tick) noexcept:
        """Into the slot of a tick from the current one on."""
        cdef uint64_t difference = tick ^ self.tick
        cdef int level = highest_bit(difference) // 6 if difference else 0
        cdef int slot = (tick >> (6 * level)) & 63
        entry.tick = tick
        append(&self.slots[level][slot], &entry.timer)
        self.occupied[level] |= <uint64_t>1 << slot

    cdef inline int file(self, Entry entry, double due, double now) noexcept:
        """Give an entry another time of expiry. WAKE if ``next_due`` became earlier, else 0."""
        cdef uint64_t tick
        cdef double time
        entry.due = due
        if due == INF:
            if entry.timer.next is not NULL:
                unlink(&entry.timer)
                self.timers -= 1
            return 0
        if self.timers == 0:
            # Idle until now: the wheel's tick is an old one.
            self.tick = max(self.tick, self.tick_at(now))
        tick = max(self.tick_of(due), self.tick + 1)
        if entry.timer.next is NULL:
            self.timers += 1
        elif entry.tick == tick:
            return 0
        else:
            unlink(&entry.timer)
        self.place(entry, tick)
        time = self.time_of(tick)
        if time >= self.wheel_due:
            return 0
        self.wheel_due = time
        return 0 if self.detached else WAKE

    cdef bint find_slot(self, int *level, int *slot, uint64_t *tick) noexcept:
        """The earliest slot with timers, and its first tick. False if there is none."""
        cdef int each, index, shift
        for each in range(LEVELS):
            while self.occupied[each]:
                index = lowest_bit(self.occupied[each])
                if self.slots[each][index].next is not &self.slots[each][index]:
                    level[0], slot[0] = each, index
                    shift = 6 * (each + 1)
                    tick[0] = (self.tick >> shift << shift if shift < 64 else 0) | (<uint64_t>index << (6 * each))
                    return True
                self.occupied[each] &= ~(<uint64_t>1 << index)
        return False

    cdef double next_wake(self) noexcept:
        cdef int level, slot
        cdef uint64_t tick
        if self.cascade.next is not &self.cascade:
            return self.time_of(self.tick)
        return self.time_of(tick) if self.find_slot(&level, &slot, &tick) else INF

    cdef Py_ssize_t take_due(self, double now, Py_ssize_t budget, GoneList *gone) noexcept:
        """Take out what has expired. How many timers were looked at, at most ``budget``."""
        cdef uint64_t target = self.tick_at(now), tick
        cdef Py_ssize_t looked = 0
        cdef int level, slot
        cdef Link *head
        cdef Link *link
        while looked < budget:
            link = self.cascade.next
            if link.owner is not NULL:
                # Before anything else, or a later tick of a finer slot would come first.
                unlink(link)
                self.place(<Entry>link.owner, (<Entry>link.owner).tick)
                looked += 1
            elif not self.find_slot(&level, &slot, &tick) or tick > target:
                self.tick = max(self.tick, target)
                break
            else:
                self.tick = tick
                head = &self.slots[level][slot]
                if level:
                    # The list changes its head.
                    self.cascade = head[0]
                    self.cascade.next.prev = self.cascade.prev.next = &self.cascade
                    empty(head)
                    continue
                while looked < budget and head.next is not head:
                    if not reserve(gone, 1):
                        return looked
                    self.take(<Entry>head.next.owner, EXPIRED, now, gone)
                    looked += 1
        return looked

    cdef void empty_wheel(self) noexcept:
        cdef int level, slot
        for level in range(LEVELS):
            while self.occupied[level]:
                slot = lowest_bit(self.occupied[level])
                empty(&self.slots[level][slot])
                self.occupied[level] &= ~(<uint64_t>1 << slot)
        empty(&self.cascade)
        self.timers = 0
        self.wheel_due = INF


cdef inline double system_clock() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <double>time.tv_sec + 1e-9 * <double>time.tv_nsec


cdef size_t sizeof_entry():
    return (<object>Entry).__basicsize__


cdef int fill(Item *item, object key, object value, int64_t weight, Py_ssize_t slot, object seen) except -1:
    """Convert what was given for a key; the references are borrowed."""
    item.quiet = seen is not None
    if seen is not None:
        item.news, item.stamp = seen
    item.slot = slot
    if not 0 <= weight <= <int64_t>MAX_WEIGHT:
        raise OverflowError(f"a weight must be from 0 to 2**62, not {weight!r}")
    item.weight = weight
    item.key = <PyObject *>key
    item.value = <PyObject *>value
    return 0


cdef void drop_items(Item *batch, Py_ssize_t size) noexcept:
    cdef Py_ssize_t index
    for index in range(size):
        Py_XDECREF(batch[index].key)
        Py_XDECREF(batch[index].value)
    free(batch)
