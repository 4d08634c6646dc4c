# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The core, compiled: see ``contract.Core``.

A dict leads from a key to its entry, which is in lists in order of use and of birth and in a slot of the timing wheel.
The global interpreter lock makes a step atomic as long as no Python code runs within it. Such code runs where the
garbage collector starts, so that is paused within a step, and where a last reference goes, so those that a step gives
up are kept in ``gone`` until it is over. What may fail for want of memory comes before the first change.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem
from cpython.object cimport Py_EQ, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport PyObject
from libc.math cimport ceil, floor
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os
import threading
import time
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
    uint64_t load_word(uint64_t *word) noexcept
    void store_word(uint64_t *word, uint64_t value) noexcept
    int highest_bit(uint64_t word) noexcept
    int lowest_bit(uint64_t word) noexcept
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept


cdef double INF = float("inf")
cdef object MONOTONIC = time.monotonic
"""Read as what it reads: the system's clock, in C."""
cdef double KEEP = contract.KEEP
cdef Py_ssize_t BATCH = contract.BATCH
cdef int64_t MAX_WEIGHT = contract.MAX_WEIGHT
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
    COMPLETED = 6  # in ``gone``: a watch, for ``told``

cdef Py_ssize_t DROPPED_PER_SET = 4
cdef Py_ssize_t SMALL_TABLE = 1024
cdef Py_ssize_t FEW = 8192

include "links.pxi"
include "wheel.pxi"


@cython.final
@cython.freelist(256)
cdef class Entry:
    cdef object key
    cdef object value
    cdef double fresh_until
    cdef double due
    cdef uint64_t weight
    cdef uint64_t news
    cdef uint64_t stamp
    cdef Py_ssize_t slot
    cdef uint64_t birth
    cdef uint64_t turn  # the last ordered scan in which it came, was born or was moved
    cdef Link used
    cdef Link born
    cdef Link moved  # valid in the scan ``turn`` only
    cdef Timer timer


@cython.final
cdef class Detached:
    """Entries that ``clear`` took out, and how far they were dropped."""

    cdef dict entries
    cdef Py_ssize_t place


include "stamps.pxi"
include "watches.pxi"
include "scans.pxi"


@cython.final
cdef class CompiledCore:
    """See ``contract.Core``."""

    cdef object __weakref__
    cdef dict entries
    cdef list detached
    cdef Py_ssize_t most  # the most entries that the dict held
    cdef Link used  # least recently used first
    cdef Link born
    cdef Link moved  # by hits before their turn in the ordered scan
    cdef PyObject *scans
    cdef PyObject *ordered_scan
    cdef uint64_t turn
    cdef uint64_t births
    cdef Wheel wheel
    cdef Stamps stamps
    cdef WatchTable *watches
    cdef readonly object told

    cdef Py_ssize_t max_entries  # -1 for no bound
    cdef bint weighs
    cdef uint64_t max_weight
    cdef uint64_t total_weight
    cdef double jitter
    cdef double max_jitter
    cdef uint64_t random_state
    cdef object clock  # None for the system's

    cdef bint barrier  # the gate is shut, or a fork is in progress
    cdef object gate_error
    cdef object gate_thread
    cdef object fork_thread
    cdef object fork_lock
    cdef uint64_t hits
    cdef uint64_t misses
    cdef uint64_t left[5]  # by cause

    def __cinit__(self):
        self.watches = <WatchTable *>calloc(1, sizeof(WatchTable))
        if self.watches is NULL:
            raise MemoryError
        self.watches.references = 1

    def __init__(
        self, *, max_entries=None, max_weight=None, double jitter=0.0, double max_jitter=60.0, double interval=1.0,
        slots=512, clock=None, stamps=None,
    ):
        self.entries = {}
        self.detached = []
        self.told = deque()
        self.fork_lock = threading.Lock()
        empty(&self.used)
        empty(&self.born)
        empty(&self.moved)
        self.max_entries = -1 if max_entries is None else max_entries
        self.weighs = max_weight is not None
        self.max_weight = MAX_WEIGHT if max_weight is None else max_weight
        self.jitter, self.max_jitter = jitter, max_jitter
        self.clock = None if clock is MONOTONIC else clock
        start_wheel(&self.wheel, interval, self.now())
        self.seed()
        open_stamps(stamps, &self.stamps)

    def __dealloc__(self):
        end_scans(&self.scans)
        end_scans(&self.ordered_scan)
        close_stamps(&self.stamps)
        if self.watches is not NULL:
            release(self.watches)

    # Below: reading.

    def find(self, key, default=None):
        value = self.lookup(key)
        if value is MISSING:
            if self.barrier:
                self.check_gate()
            return default
        return value

    def get(self, key, default=None):
        value = self.lookup(key)
        if value is MISSING:
            if self.barrier:
                self.check_gate()
            self.misses += 1
            return default
        return value

    def get_many(self, keys):
        cdef list wanted = list(keys), values = [MISSING] * len(wanted)
        cdef Py_ssize_t index
        cdef Entry entry
        cdef double now = self.read_clock()
        if self.barrier:
            for key in wanted:
                if self.live(key, now) is None:
                    self.begin()
        for index in range(len(wanted)):
            entry = self.live(wanted[index], now)
            if entry is None:
                self.misses += 1
            else:
                self.hits += 1
                self.use(entry)
                values[index] = entry.value
        return values

    cdef inline object lookup(self, object key):
        """The value of a fresh and current entry, counted and moved, else MISSING."""
        # A clock may be Python code, so it is read before the look-up.
        cdef double now = -INF if self.clock is None else self.clock()
        cdef Entry entry = self.entry_of(key)
        if entry is None:
            return MISSING
        if self.clock is None and entry.fresh_until != INF:
            now = system_clock()
        if entry.fresh_until <= now or not self.is_current(entry):
            return MISSING
        self.hits += 1
        self.use(entry)
        return entry.value

    def __len__(self):
        return len(self.entries)

    @property
    def weight(self):
        return self.total_weight

    @property
    def next_due(self):
        return -INF if self.detached else self.wheel.next_due

    @property
    def entry_bytes(self):
        # The object and its GC header; its place in the dict, 1.5 times 28 bytes.
        return (<object>Entry).__basicsize__ + 16 + 42

    @property
    def in_step(self):
        # No Python code ever runs inside a step.
        return False

    def now(self):
        return self.read_clock()

    def times(self, key):
        record = self.peek(key)
        return None if record is None else record[2]

    def peek(self, key, *, bint use=False):
        cdef Entry entry
        cdef bint collects
        if self.barrier:
            self.begin()
        entry = self.entry_of(key)
        if entry is None:
            return None
        collects = PyGC_Disable()
        try:
            if use:
                self.use(entry)
            return self.record(entry)
        finally:
            if collects:
                PyGC_Enable()

    cdef object record(self, Entry entry):
        # ``tuple.__new__``, since the ``__new__`` of a named tuple is Python code.
        times = tuple.__new__(Times, (entry.fresh_until, entry.due, True if self.is_current(entry) else False))
        seen = (entry.news, entry.stamp) if self.stamps.given else None
        return tuple.__new__(Record, (entry.key, entry.value, times, entry.weight, seen))

    def keys(self):
        cdef double now = self.read_clock()
        cdef list keys = []
        cdef Link *link
        if self.barrier:
            self.begin()
        link = self.used.next
        while link.owner is not NULL:
            if (<Entry>link.owner).fresh_until > now and self.is_current(<Entry>link.owner):
                keys.append((<Entry>link.owner).key)
            link = link.next
        return keys

    def counts(self):
        cdef bint collects = PyGC_Disable()
        try:
            removals = {CAUSES[cause]: self.left[cause] for cause in range(5)}
            return tuple.__new__(Counts, (self.hits, self.misses, removals))
        finally:
            if collects:
                PyGC_Enable()

    def count(self, *, uint64_t hits=0, uint64_t misses=0):
        self.hits += hits
        self.misses += misses

    def watch(self, key, *, Py_ssize_t slot=0, bint wants_value=False):
        cdef Watch watch = Watch.__new__(Watch)
        cdef uint64_t news
        cdef bint collects
        watch.key, watch.hash, watch.value, watch.wants_value = key, PyObject_Hash(key), MISSING, wants_value
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        try:
            check_slot(&self.stamps, slot)
            if self.stamps.given:
                # The news first: if there is any more in between, the stamp is another one, too.
                news = load_word(&self.stamps.news[slot])
                watch.seen = (news, load_word(&self.stamps.table[slot]))
            begin_watch(self.watches, watch)
        finally:
            if collects:
                PyGC_Enable()
        return watch

    def scan(self, *, bint ordered=False):
        cdef Scan scan = Scan.__new__(Scan)
        scan.core, scan.ordered, scan.last_birth = self, ordered, self.births
        if self.barrier:
            self.begin()
        if not ordered:
            scan.cursor = self.born.next
            begin_scan(&self.scans, scan)
            return scan
        if self.ordered_scan is not NULL:
            raise RuntimeError("an ordered scan of this core is in progress")
        self.turn += 1
        empty(&self.moved)
        scan.cursor = self.used.next
        begin_scan(&self.ordered_scan, scan)
        return scan

    # Below: writing. ``finish`` comes after the step.

    def set(
        self, key, value, ttl, double grace=0.0, bint exact=False, int64_t weight=0, int mode=0, expected=MISSING,
        Watch watch=None, Py_ssize_t slot=0, seen=None, list removed=None,
    ):
        cdef list gone = []
        cdef double seconds = INF if ttl is None else ttl, now
        cdef int outcome
        cdef bint collects
        if seconds == KEEP and mode != SAME and mode != RESTORE:
            raise ValueError("KEEP is for SAME alone")
        check_item(weight, seen)
        now = self.read_clock()
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        try:
            outcome = self.put(key, value, now, seconds, grace, exact, weight, mode, expected, watch, slot, seen, gone)
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return outcome

    def set_many(self, items, ttl, list removed):
        cdef list wanted = [(key, value, weight, slot, seen) for key, value, weight, slot, seen in items]
        cdef list gone = [], outcomes = []
        cdef double seconds = INF if ttl is None else ttl, now = self.read_clock()
        cdef bint collects
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        try:
            for key, value, weight, slot, seen in wanted:
                hash(key)
                check_item(weight, seen)
                check_slot(&self.stamps, slot)
            for key, value, weight, slot, seen in wanted:
                outcomes.append(
                    self.put(key, value, now, seconds, 0.0, False, weight, ANY, MISSING, None, slot, seen, gone)
                )
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return outcomes

    def touch(self, key, ttl, bint exact=True):
        cdef double seconds = INF if ttl is None else ttl, now = self.read_clock(), grace
        cdef Entry entry
        if self.barrier:
            self.begin()
        entry = self.live(key, now)
        if entry is None or self.stamps.given and not restamp(&self.stamps, entry):
            return 0
        grace = 0.0 if entry.due == INF else entry.due - entry.fresh_until
        entry.fresh_until = now + self.shortened(seconds, exact)
        return STORED | self.file(entry, entry.fresh_until + grace, now) | self.lateness(now)

    def delete(self, key, default=None, int only=0, cause=RemovalCause.DELETED, Py_ssize_t slot=0, list removed=None):
        cdef list gone = []
        cdef double now = self.read_clock()
        cdef int code = DELETED if cause is RemovalCause.DELETED else CAUSES.index(cause)
        cdef bint collects
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        try:
            value = self.remove(key, default, now, only, code, slot, gone)
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return value

    def delete_many(self, keys, list removed):
        cdef list wanted = [(key, slot) for key, slot in keys], gone = []
        cdef double now = self.read_clock()
        cdef int deleted = 0
        cdef bint collects
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        try:
            for key, slot in wanted:
                hash(key)
                check_slot(&self.stamps, slot)
            for key, slot in wanted:
                deleted += self.remove(key, MISSING, now, 0, DELETED, slot, gone) is not MISSING
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return deleted

    def evict(self, Py_ssize_t budget=BATCH, list removed=None, *, size=None):
        cdef list gone = []
        cdef double now = self.read_clock()
        cdef Py_ssize_t most = self.max_entries if size is None else size
        cdef bint more, collects
        if self.barrier:
            self.begin()
        collects = PyGC_Disable()
        more = self.evict_excess(budget, most, now, gone)
        if collects:
            PyGC_Enable()
        self.finish(gone, removed)
        return more

    def advance(self, Py_ssize_t budget=BATCH, list removed=None):
        cdef list gone = []
        cdef double now = self.read_clock()
        cdef Py_ssize_t looked
        cdef Link *timer
        cdef bint collects
        self.wait_for_fork()
        collects = PyGC_Disable()
        try:
            looked = self.drop_detached(budget, gone)
            while (timer := next_expired(&self.wheel, now, budget, &looked)) is not NULL:
                self.take(<Entry>timer.owner, EXPIRED, now, gone)
        finally:
            find_next_due(&self.wheel)
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return looked

    def clear(self, *, bint drop=True, bint news=True):
        cdef Py_ssize_t size
        cdef list gone = []
        cdef bint collects
        self.wait_for_fork()
        collects = PyGC_Disable()
        try:
            size = self.detach_all(&self.stamps if news else NULL)
            if drop:
                self.drop_detached(BATCH, gone)
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, None)
        return size

    def drain(self, Py_ssize_t budget=BATCH, list removed=None):
        cdef list gone = []
        cdef bint collects
        self.wait_for_fork()
        collects = PyGC_Disable()
        try:
            self.drop_detached(budget, gone)
            more = len(self.detached) > 0
        finally:
            if collects:
                PyGC_Enable()
        self.finish(gone, removed)
        return more

    # Below: what stays the same for long.

    def use_clock(self, clock):
        cdef double now = system_clock() if clock is None else clock()
        cdef Link *link
        # One reference is kept until the end.
        old, self.clock = self.clock, None if clock is MONOTONIC else clock
        if now < time_of(&self.wheel, self.wheel.tick):
            empty_wheel(&self.wheel)
            self.wheel.origin, self.wheel.tick = now, 0
            link = self.used.next
            while link.owner is not NULL:
                (<Entry>link.owner).timer.link.next = NULL
                self.file(<Entry>link.owner, (<Entry>link.owner).due, now)
                link = link.next

    def use_stamps(self, stamps, *, bint keep):
        cdef Stamps other
        cdef bint collects
        open_stamps(stamps, &other)
        self.wait_for_fork()
        collects = PyGC_Disable()
        try:
            # Entries of a core without stamps have no slots.
            if not keep or not self.stamps.given:
                self.detach_all(NULL)
            self.stamps, other = other, self.stamps
        finally:
            if collects:
                PyGC_Enable()
            close_stamps(&other)

    def gate(self, error, thread=0):
        self.gate_thread = thread
        self.barrier = error is not None or self.fork_thread is not None
        # Last, as the old one may go.
        self.gate_error = error

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
        break_all_watches(self.watches, True)
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

    cdef int finish(self, list gone, list removed) except -1:
        """After the last change: report what is in ``gone``. The references go with the caller's."""
        cdef int cause
        cdef tuple each
        for each in gone:
            cause = each[0]
            if cause == COMPLETED:
                self.told.append(each[1])
            elif removed is not None:
                removed.append((each[1], each[2], CAUSES[cause]))
        if self.most > SMALL_TABLE and len(self.entries) * 8 < self.most and len(self.entries) <= FEW:
            self.fit_table()
        return 0

    cdef int fit_table(self) except -1:
        """Give memory back: a dict keeps its size until it is rebuilt."""
        cdef bint collects = PyGC_Disable()
        cdef dict rebuilt
        try:
            rebuilt = dict(self.entries)
            self.most = len(rebuilt)
            self.entries, rebuilt = rebuilt, self.entries
        finally:
            if collects:
                PyGC_Enable()
        return 0

    # Below: within a step. Nothing here runs Python code.

    cdef inline Entry entry_of(self, object key):
        cdef PyObject *found = PyDict_GetItemWithError(self.entries, key)
        return None if found is NULL else <Entry>found

    cdef inline bint is_current(self, Entry entry) noexcept:
        return not self.stamps.given or load_word(&self.stamps.table[entry.slot]) == entry.stamp

    cdef inline Entry live(self, object key, double now):
        cdef Entry entry = self.entry_of(key)
        return entry if entry is not None and entry.fresh_until > now and self.is_current(entry) else None

    cdef inline void use(self, Entry entry) noexcept:
        """Move to the young end."""
        if self.used.prev is &entry.used:
            return
        if self.ordered_scan is not NULL:
            self.note_move(entry)
        unlink(&entry.used)
        append(&self.used, &entry.used)

    cdef void note_move(self, Entry entry) noexcept:
        """An ordered scan is in progress, and an entry moves out of its way."""
        if (<Scan>self.ordered_scan).cursor is &entry.used:
            (<Scan>self.ordered_scan).cursor = entry.used.next
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
        self, object key, object value, double now, double ttl, double grace, bint exact, uint64_t weight, int mode,
        object expected, Watch watch, Py_ssize_t slot, object seen, list gone,
    ) except -1:
        """``set``, within its step. An exception leaves everything as it was but for detached entries."""
        cdef Entry entry, live, victim = None
        cdef double fresh_until, due
        cdef uint64_t news = 0, stamp = 0
        cdef int outcome = 0
        cdef bint is_new, is_heavy = weight > self.max_weight, is_suspect = False
        check_slot(&self.stamps, slot)
        if self.detached:
            self.drop_detached(DROPPED_PER_SET, gone)
        entry, live = self.entry_of(key), self.live(key, now)
        if watch is not None and watch.broken:
            return CHANGED
        if mode == SAME:
            if live is None or live.value is not expected:
                return CHANGED
        elif mode != ANY and live is not None:
            return PRESENT
        if mode == RESTORE:
            if next_watch(self.watches, key, NULL) is not NULL:
                return CHANGED
            if not self.has_room(entry, weight):
                return NO_ROOM
        if seen is not None and self.stamps.given:
            news, stamp = seen
            is_suspect = load_word(&self.stamps.table[slot]) != stamp
            if is_suspect and self.stamps.written:
                if watch is None and live is not None:
                    self.take(live, REPLACED, now, gone)
                    write_news(&self.stamps, slot)
                return OUTDATED
        if ttl == KEEP and mode == SAME:
            fresh_until, due = entry.fresh_until, entry.due
        else:
            fresh_until = now + self.shortened(ttl, exact)
            due = fresh_until + grace
        is_new = entry is None
        if mode != RESTORE and not is_suspect:
            note_completed(self.watches, key, watch, gone)
        if is_heavy:
            if not is_new:
                self.take(entry, REPLACED, now, gone)
        elif is_new:
            entry = Entry.__new__(Entry)
            if 0 <= self.max_entries <= len(self.entries):
                victim = <Entry>self.used.next.owner
                gone.append((EVICTED if victim.fresh_until > now else EXPIRED, victim.key, victim.value))
            PyDict_SetItem(self.entries, key, entry)
        else:
            gone.append((REPLACED if entry.fresh_until > now else EXPIRED, key, entry.value))
        # From here on, nothing fails.
        if mode != RESTORE:
            outcome = break_watches(self.watches, key, MISSING if is_suspect else value, watch)
        if seen is None:
            news = stamp = write_news(&self.stamps, slot)
            if self.stamps.given and not self.stamps.written:
                news = load_word(&self.stamps.news[slot])
                stamp = load_word(&self.stamps.table[slot])
        if is_heavy:
            return outcome | TOO_HEAVY
        if victim is not None:
            self.drop(victim, EVICTED, now)
        if is_new:
            self.bear(entry, key)
        else:
            self.left[REPLACED if entry.fresh_until > now else EXPIRED] += 1
            self.use(entry)
        entry.value, entry.fresh_until, entry.slot, entry.news, entry.stamp = value, fresh_until, slot, news, stamp
        if self.weighs:
            self.total_weight += weight - entry.weight
            entry.weight = weight
        outcome |= STORED | self.file(entry, due, now)
        if self.total_weight > self.max_weight and self.evict_excess(BATCH, self.max_entries, now, gone):
            outcome |= MORE
        return outcome | self.lateness(now)

    cdef bint has_room(self, Entry entry, uint64_t weight) noexcept:
        """Whether a value can be restored without evicting."""
        if entry is None and 0 <= self.max_entries <= len(self.entries):
            return False
        if weight > self.max_weight or not self.weighs:
            return True
        return self.total_weight - (0 if entry is None else entry.weight) + weight <= self.max_weight

    cdef void bear(self, Entry entry, object key) noexcept:
        """A new entry, which is in the dict already."""
        entry.key = key
        entry.weight = 0
        entry.used.owner = entry.born.owner = entry.timer.link.owner = entry.moved.owner = <void *>entry
        entry.timer.link.next = entry.moved.next = NULL
        self.births += 1
        entry.birth = self.births
        # An ordered scan does not wait for it.
        entry.turn = self.turn
        append(&self.used, &entry.used)
        append(&self.born, &entry.born)
        self.most = max(self.most, len(self.entries))

    cdef object remove(self, object key, object default, double now, int only, int cause, Py_ssize_t slot, list gone):
        """``delete``, within its step."""
        cdef Entry entry, live
        check_slot(&self.stamps, slot)
        entry, live = self.entry_of(key), self.live(key, now)
        if only == DEAD and live is not None:
            return default
        if entry is not None:
            self.take(entry, cause, now, gone)
        if only != DEAD and cause != EVICTED:
            write_news(&self.stamps, slot)
            break_watches(self.watches, key, MISSING, None)
        return default if live is None else live.value

    cdef inline int take(self, Entry entry, int cause, double now, list gone) except -1:
        """Take an entry out. ``gone`` keeps its key and its value."""
        gone.append((cause if entry.fresh_until > now else EXPIRED, entry.key, entry.value))
        self.drop(entry, cause, now)
        return 0

    cdef void drop(self, Entry entry, int cause, double now) noexcept:
        """Take out an entry that is in ``gone``."""
        self.left[cause if entry.fresh_until > now else EXPIRED] += 1
        if self.scans is not NULL or self.ordered_scan is not NULL:
            self.pass_scans(entry)
        unlink(&entry.used)
        unlink(&entry.born)
        cancel(&self.wheel, &entry.timer)
        self.total_weight -= entry.weight
        PyDict_DelItem(self.entries, entry.key)

    cdef bint evict_excess(self, Py_ssize_t budget, Py_ssize_t most, double now, list gone) noexcept:
        """Evict until the bounds hold. Whether that takes more than ``budget``, or more memory than there is."""
        try:
            while 0 <= most < len(self.entries) or self.total_weight > self.max_weight:
                if budget <= 0 and self.total_weight <= MOST_WEIGHT:
                    return True
                self.take(<Entry>self.used.next.owner, EVICTED, now, gone)
                budget -= 1
        except MemoryError:
            return True
        return False

    cdef Py_ssize_t detach_all(self, Stamps *stamps) except -1:
        """Take everything out, with news in ``stamps``. How many entries there were."""
        cdef Py_ssize_t size = len(self.entries)
        cdef dict entries = {}
        cdef Detached node = Detached.__new__(Detached)
        if size:
            self.detached.append(node)
            node.entries, self.entries = self.entries, entries
        if stamps is not NULL:
            write_news_everywhere(stamps)
        break_all_watches(self.watches, False)
        end_scans(&self.scans)
        end_scans(&self.ordered_scan)
        self.left[CLEARED] += size
        self.most = 0
        self.total_weight = 0
        empty(&self.used)
        empty(&self.born)
        empty_wheel(&self.wheel)
        return size

    cdef Py_ssize_t drop_detached(self, Py_ssize_t budget, list gone) except -1:
        cdef Py_ssize_t dropped = 0, place
        cdef Detached node
        cdef PyObject *key
        cdef PyObject *entry
        while dropped < budget and self.detached:
            node = self.detached[len(self.detached) - 1]
            place = node.place
            while dropped < budget and PyDict_Next(node.entries, &place, &key, &entry):
                gone.append((CLEARED, <object>key, (<Entry>entry).value))
                PyDict_DelItem(node.entries, <object>key)
                node.place = place
                dropped += 1
            if not node.entries:
                self.detached.pop()
        return dropped

    cdef inline int file(self, Entry entry, double due, double now) noexcept:
        """Give an entry another time of expiry. WAKE if ``next_due`` became earlier, else 0."""
        entry.due = due
        return WAKE if schedule(&self.wheel, &entry.timer, due, now) and not self.detached else 0

    cdef inline int lateness(self, double now) noexcept:
        """WAKE if the wheel is over two intervals late, else 0."""
        return WAKE if self.detached or now - self.wheel.next_due > 2 * self.wheel.interval else 0

    cdef inline double shortened(self, double ttl, bint exact) noexcept:
        if exact or self.jitter == 0.0 or ttl == INF:
            return ttl
        # xorshift64*
        self.random_state ^= self.random_state >> 12
        self.random_state ^= self.random_state << 25
        self.random_state ^= self.random_state >> 27
        cdef double drawn = <double>((self.random_state * <uint64_t>2685821657736338717) >> 11) / <double>(1 << 53)
        return ttl - min(ttl * self.jitter, self.max_jitter) * drawn


cdef inline double system_clock() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <double>time.tv_sec + 1e-9 * <double>time.tv_nsec


cdef inline int check_item(int64_t weight, object seen) except -1:
    cdef uint64_t news, stamp
    if not 0 <= weight <= MAX_WEIGHT:
        raise OverflowError(f"a weight must be from 0 to 2**62, not {weight!r}")
    if seen is not None:
        news, stamp = seen
    return 0


include "access.pxi"
