# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True, embedsignature=True, embedsignature.format=clinic
"""The core, compiled: see ``contract.Core``.

The global interpreter lock makes a step atomic as long as no Python code runs within it. The garbage collector starts
at allocations of objects that it tracks, so a step makes none, or pauses it. Dropping a last reference runs finalizers,
so a step drops references at its end: see ``Gone``. Allocations, which may fail, come before the first change. Each
part is a C struct in a file of its own, and a member of the core's ``Map``.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_XDECREF, Py_XINCREF, PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_Tailmatch
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

import sys
from collections import deque

from wheelcache.runtime.clock import now as machine_time
from wheelcache.engine import options
from wheelcache.core import contract
from wheelcache.core.contract import Counts, GroupCounts, Record, RemovalCause, Times
from wheelcache.core.python_core import has_gil
from wheelcache.engine.keys import NO_VIEW, is_plain
from wheelcache.errors import note_key

if not has_gil():
    # freethreading_compatible is set all the same: otherwise the import would enable the lock for the whole process.
    raise ImportError("the compiled core of wheelcache needs the global interpreter lock, which is off")

include "platform.pxi"

cdef object MISSING = contract.MISSING
cdef double KEEP_TTL = contract.KEEP_TTL, SWEEP_INTERVAL = contract.SWEEP_INTERVAL
cdef Py_ssize_t BATCH = contract.BATCH
cdef int64_t MAX_WEIGHT = contract.MAX_WEIGHT
cdef uint64_t MOST_WEIGHT = 2 * contract.MAX_WEIGHT
"""Above this total weight, ``set`` evicts beyond its budget, so that adding one more weight never overflows the sum."""
cdef double LATEST_TICKS = 2.0**52
cdef double MAX_JITTER = options.MAX_JITTER

cdef int STORED = contract.STORED, WAKE = contract.WAKE, MORE = contract.MORE, COMPLETED = contract.COMPLETED
cdef int PRESENT = contract.PRESENT, CHANGED = contract.CHANGED, OUTDATED = contract.OUTDATED
cdef int TOO_HEAVY = contract.TOO_HEAVY

include "jitter.pxi"
include "entries.pxi"
include "trust.pxi"
include "tags.pxi"
include "removals.pxi"
include "watches.pxi"
include "wheel.pxi"
include "hash_table.pxi"
include "scans.pxi"
include "departed.pxi"
include "regions.pxi"
include "duel.pxi"
include "misses.pxi"
include "key_groups.pxi"
include "eviction.pxi"
include "map.pxi"
include "writes.pxi"

@cython.final
cdef class CompiledCore:
    """See ``contract.Core``."""

    cdef object __weakref__
    cdef Map map
    cdef WatchTable *watches
    cdef readonly object completed
    cdef object clock  # None for the system's clock, which is read in C
    cdef bint weighs
    cdef Jitter jitter
    cdef object gate_error
    cdef tuple group_rules  # whose bytes ``map.groups`` uses

    # Not ``__init__``, which Python code may skip or call again.
    def __cinit__(
        self, *, max_entries=None, max_weight=None, double jitter=0.0, interval=1.0, clock=None, trust=None,
        policy="lru", seed=None,
    ):
        cdef Map *map = &self.map
        self.watches = new_watch_table()
        map.tags.by_name, map.tags.due = PyDict_New(), INFINITY
        map.tags.moments = <uint64_t *>PyMem_RawCalloc(MOMENTS, sizeof(uint64_t))
        if map.tags.moments is NULL:
            raise MemoryError
        interval = options.interval("interval", interval)
        max_entries = options.count_or_none("max_entries", max_entries)
        max_weight = options.count_or_none("max_weight", max_weight)
        jitter = options.fraction("jitter", jitter)
        self.completed = deque()
        map.max_entries = -1 if max_entries is None else min(max_entries, sys.maxsize)
        self.weighs = max_weight is not None
        map.max_weight = MAX_WEIGHT if max_weight is None else max_weight
        self.jitter.share = jitter
        self.clock = clock_of(clock)
        now = self.now()
        check_time(now, interval)
        start_wheel(&map.wheel, interval, now)
        seed_jitter(&self.jitter)
        open_trust(trust, &map.trust)
        open_groups(&map.groups)
        self.group_by(())
        is_adaptive = contract.is_adaptive_policy(policy, max_entries)
        start_policy(map, is_adaptive, int.from_bytes(urandom(8), "little") if seed is None else seed)

    def __dealloc__(self):
        close_duel(self.map.duel)
        close_past(&self.map.past)
        close_groups(&self.map.groups)
        Py_XDECREF(self.map.tags.by_name)
        PyMem_RawFree(self.map.tags.moments)
        close_trust(&self.map.trust)
        if self.watches is not NULL:
            release(self.watches)

    # Below: reading.

    def find(self, key, default=None):
        cdef PyObject *value = self.found(key)
        if value is <PyObject *>MISSING:
            self.begin()
            return default
        return <object>value

    cdef inline PyObject *found(self, object key) except NULL:
        """Do a ``find`` that ignores the gate. Return a borrowed reference to the entry's value, or MISSING."""
        cdef Py_hash_t hash = hash_of(<PyObject *>key)
        cdef double now
        if likely(self.clock is None):
            return self.hit(find(&self.map, <PyObject *>key, hash), SYSTEM_CLOCK)
        # The clock may be Python code, so it is read before the look-up.
        now = self.clock()
        return self.hit(find(&self.map, <PyObject *>key, hash), now)

    cdef inline object lookup_prefixed(self, str prefix, object key):
        """Return ``found(prefix + key)``. Not creating the concatenated string saves 30 of 100 ns."""
        cdef char text[SHORT_TEXT]
        cdef Py_hash_t hash
        cdef CompiledCore kept
        if type(key) is str and self.clock is None:
            hash = hash_of_two(prefix, key, text, SHORT_TEXT)
            if hash:
                return <object>self.hit(find_text(&self.map, text, len(prefix) + len(<str>key), hash), SYSTEM_CLOCK)
        # The clock and the key's ``__str__`` may be Python code that assigns another core to the backend.
        kept = self
        return <object>kept.found(prefixed(prefix, key))

    cdef inline PyObject *hit(self, uint32_t index, double now) noexcept:
        """Return the value of an entry that is fresh and current, as ``found`` does."""
        cdef Entry *entry
        if index == 0:
            return <PyObject *>MISSING
        entry = at(&self.map.entries, index)
        now = time_for(entry, now)
        if entry.fresh_until <= now or not is_current(&self.map, index, entry):
            return <PyObject *>MISSING
        self.map.groups.hits[group_number(&self.map.entries, index)] += 1
        on_hit(&self.map, index, entry, now)
        return entry.value

    def __len__(self):
        return self.map.entries.count

    @property
    def weight(self):
        return self.map.total_weight

    @property
    def next_due(self):
        return next_work(&self.map)

    @property
    def entry_bytes(self):
        # The entry, its two buckets, and its items in the arrays of its block.
        return sizeof(Entry) + 8 + 1 + (8 if self.weighs else 0) + (8 if self.map.trust.word is not NULL else 0)

    @property
    def in_step(self):
        return False

    def now(self):
        return self.read_clock()

    def times(self, key):
        cdef uint32_t index
        self.begin()
        index = self.index_of_existing(key)
        return None if index == 0 else times_of(&self.map, index)

    def peek(self, key, *, bint use=False):
        cdef uint32_t index
        self.begin()
        index = self.index_of_existing(key)
        if index == 0:
            return None
        if use:
            on_use(&self.map, index, at(&self.map.entries, index))
        return record_of(&self.map, index)

    def keys(self, Py_ssize_t limit=PY_SSIZE_T_MAX):
        cdef double now = self.read_clock()
        cdef list keys = []
        cdef uint32_t index
        self.begin()
        index = before_in_order(&self.map, 0)
        while index and limit > 0:
            if is_live(&self.map, index, now):
                keys.append(<object>at(&self.map.entries, index).key)
            index, limit = before_in_order(&self.map, index), limit - 1
        return keys[::-1]

    def counts(self):
        # Copy all counts first: building the dict runs Python code, which hashes the Enum members.
        cdef uint64_t hits = hits_of(&self.map.groups), misses = self.map.misses
        cdef uint64_t puts = sum_of(&self.map.groups, self.map.groups.puts)
        cdef uint64_t weight = self.map.evicted_weight, carry = self.map.evicted_carry
        cdef uint64_t counted[REMOVAL_CAUSES]
        cdef uint64_t missed[MISS_CAUSES]
        memcpy(counted, self.map.removals, sizeof(counted))
        memcpy(missed, self.map.past.misses, sizeof(missed))
        removals = {CAUSES[cause]: counted[cause] for cause in range(REMOVAL_CAUSES)}
        causes = tuple([missed[cause] for cause in range(MISS_CAUSES)])
        return tuple.__new__(Counts, (hits, misses, removals, puts, (<object>carry << 64) + weight, causes))

    def count_hit(self, key):
        self.map.groups.hits[group_of_hit(&self.map, <PyObject *>key, self.index_of(key))] += 1

    def count_stale_hit(self, key):
        cdef uint32_t number = group_of_hit(&self.map, <PyObject *>key, self.index_of(key))
        self.map.groups.groups[number].stale_hits += 1

    def miss_cause(self, key):
        return self.cause(key, hash_of(<PyObject *>key))

    cdef int cause(self, object key, Py_hash_t hash) except -1:
        cdef double now = self.own_time()
        return cause_of_miss(&self.map, <PyObject *>key, hash, now)

    def count_miss(self, key, int cause=-1, *, group=None):
        cdef Py_hash_t hash = hash_of(<PyObject *>key)
        if cause < 0:
            cause = self.cause(key, hash)
        count_miss(&self.map, <PyObject *>key, hash, min(cause, <int>MISS_CAUSES - 1), encoded_name(group))

    cdef int miss(self, object key) except -1:
        cdef Py_hash_t hash = hash_of(<PyObject *>key)
        count_miss(&self.map, <PyObject *>key, hash, self.cause(key, hash), None)
        return 0

    def count_load(self, key, double seconds, *, group=None, bint has_failed=False):
        cdef uint32_t number = count_load(&self.map, <PyObject *>key, seconds, encoded_name(group), has_failed)
        return name_of_number(&self.map.groups, number)

    def group_by(self, rules):
        encoded = tuple([(*[text.encode("ascii") for text in rule[:3]], rule.is_preliminary) for rule in rules])
        open_rules(&self.map.groups, encoded)
        self.group_rules = encoded

    def is_preliminary(self, key):
        return True if is_preliminary(&self.map.groups, <PyObject *>key) else False

    def groups(self):
        return [GroupCounts(*each) for each in groups_of(&self.map)]

    def watch(self, key, *, bint wants_value=False):
        cdef Watch watch = Watch.__new__(Watch)
        watch.key, watch.hash, watch.value, watch.wants_value = key, hash_of(<PyObject *>key), MISSING, wants_value
        self.begin()
        begin_watch(self, watch)
        return watch

    @property
    def trust(self):
        return present_trust(&self.map)

    def scan(self, *, double start=0.0):
        cdef Scan scan = Scan.__new__(Scan, self)
        cdef Map *map = &self.map
        self.begin()
        scan.epoch = map.epoch
        scan.cursor = map.entries.top - <uint32_t>(map.entries.top * start)
        return scan

    # Below: writing. ``finish`` runs after the last change of the step.

    def set(
        self, key, value, ttl, double grace=0.0, bint exact=False, int64_t weight=0, labels=None, list removed=None,
    ):
        cdef Write write
        if likely(grace == 0.0 and removed is None and weight == 0 and not exact and labels is None):
            return self.store(key, value, as_seconds(<PyObject *>ttl), ANY, False)
        memset(&write, 0, sizeof(Write))
        write.ttl, write.grace, write.exact = as_seconds(<PyObject *>ttl), grace, exact
        return self.do(&write, key, value, weight, labels, None, removed)

    def add(self, key, value, ttl, int64_t weight=0, labels=None, list removed=None):
        cdef Write write
        memset(&write, 0, sizeof(Write))
        write.ttl, write.exact, write.mode = as_seconds(<PyObject *>ttl), True, ABSENT
        return self.do(&write, key, value, weight, labels, None, removed)

    def replace(
        self, key, value, ttl, expected, double grace=0.0, bint exact=False, int64_t weight=0, list removed=None
    ):
        cdef Write write
        memset(&write, 0, sizeof(Write))
        write.ttl, write.grace, write.exact = as_seconds(<PyObject *>ttl), grace, exact
        write.mode, write.expected = SAME, <PyObject *>expected
        return self.do(&write, key, value, weight, None, None, removed)

    def fill(
        self, key, value, ttl, Watch watch not None, double grace=0.0, int64_t weight=0, labels=None, list removed=None
    ):
        cdef Write write
        memset(&write, 0, sizeof(Write))
        write.ttl, write.grace = as_seconds(<PyObject *>ttl), grace
        return self.do(&write, key, value, weight, labels, watch, removed)

    cdef int do(
        self, Write *write, object key, object value, int64_t weight, object labels, Watch watch, list removed
    ) except -1:
        """Do a step of ``set``, whose other arguments are in ``write``."""
        cdef bytes group
        if labels is not None:
            # Borrowed: the caller keeps the labels.
            write.tags = <PyObject *>(<tuple>labels)[0]
            write.since = (<tuple>labels)[1]
            if len(<tuple>write.tags) == 0:
                write.tags = NULL
            group = encoded_name((<tuple>labels)[2])
            write.group = <PyObject *>group if group is not None else NULL
        check_weight(weight)
        write.key, write.hash, write.value = <PyObject *>key, hash_of(<PyObject *>key), <PyObject *>value
        write.weight, write.now = weight, self.read_clock()
        return self.store_under(watch, write, removed)

    cdef int store(self, object key, object value, double ttl, int mode, bint exact) except -1:
        """Store a value without grace and weight: ``set`` with the usual arguments."""
        cdef Write write
        memset(&write, 0, sizeof(Write))
        write.key, write.hash, write.value = <PyObject *>key, hash_of(<PyObject *>key), <PyObject *>value
        write.ttl, write.mode, write.exact, write.now = ttl, mode, exact, self.read_clock()
        return self.store_under(None, &write, None)

    cdef int store_under(self, Watch watch, Write *write, list removed) except -1:
        cdef Gone gone
        cdef list watches = None
        cdef int outcome
        self.begin()
        if self.watches.count:
            watches = watches_on(self.watches, <object>write.key, write.hash)
        begin_removals(&gone, removed)
        outcome = put(self, write, watches, watch, &gone)
        if unlikely(outcome & COMPLETED):
            return self.finish_set(outcome, watches, &gone)
        finish(&gone)
        return outcome

    cdef int finish_set(self, int outcome, list watches, Gone *gone) except -1:
        cdef Watch watch
        try:
            for watch in watches:
                if watch.is_completed:
                    watch.is_completed = False
                    self.completed.append(watch)
        finally:
            finish(gone)
        return outcome

    cdef int finish_removals(self, Gone *gone) except -1:
        """Give back memory, and end a step that has removed entries."""
        shrink(&self.map, 2 * gone.count)
        return finish(gone)

    def touch(self, key, ttl):
        cdef double now = self.read_clock()
        self.begin()
        return give_ttl(self, self.index_of(key), as_seconds(<PyObject *>ttl), now)

    def delete(self, key, default=None, bint only_dead=False, list removed=None):
        return self.remove(key, default, only_dead, removed)

    cdef object remove(self, key, default, bint only_dead, list removed):
        cdef Gone gone
        cdef Py_hash_t hash = hash_of(<PyObject *>key)
        cdef list watches = None
        cdef double now = self.own_time()
        self.begin()
        if self.watches.count:
            watches = watches_on(self.watches, key, hash)
        begin_removals(&gone, removed)
        value = remove(self, key, hash, default, now, only_dead, watches, &gone)
        if gone.count:
            self.finish_removals(&gone)
        return value

    def remove_value(self, key, value, list removed=None, *, bint was_hit=False):
        cdef Gone gone
        cdef Py_hash_t hash = hash_of(<PyObject *>key)
        cdef double now = self.own_time()
        cdef uint32_t index, group
        self.begin()
        index = find(&self.map, <PyObject *>key, hash)
        if was_hit:
            group = group_of_hit(&self.map, <PyObject *>key, index)
            # It is 0 if the hit was that of an entry in another group, which was replaced since.
            self.map.groups.hits[group] -= self.map.groups.hits[group] > 0
        begin_removals(&gone, removed)
        if index and at(&self.map.entries, index).value == <PyObject *>value:
            remove_entry(&self.map, index, DELETED, time_for(at(&self.map.entries, index), now), &gone)
        self.finish_removals(&gone)

    def evict(self, Py_ssize_t budget=BATCH, list removed=None, *, size=None):
        cdef Gone gone
        cdef double now = self.read_clock()
        cdef Py_ssize_t most = self.map.max_entries if size is None else size
        cdef bint more
        self.begin()
        begin_removals(&gone, removed)
        more = evict_excess(&self.map, budget, most, now, &gone)
        self.finish_removals(&gone)
        return more

    def advance(self, Py_ssize_t budget=BATCH, list removed=None):
        cdef Map *map = &self.map
        cdef Gone gone
        cdef double now = self.read_clock()
        cdef Py_ssize_t looked
        cdef uint32_t index
        check_time(now, map.wheel.interval)
        begin_removals(&gone, removed)
        looked = drop_detached(map, budget, &gone)
        looked += sweep(map, budget - looked, now, &gone)
        while has_room(&gone):
            index = next_expired(map, now, budget, &looked)
            if index == 0:
                break
            remove_entry(map, index, EXPIRED, now, &gone)
        find_next_due(&map.wheel)
        self.finish_removals(&gone)
        return looked

    def clear(self, *, bint invalidate=True):
        cdef Py_ssize_t size
        size = self.map.entries.count
        detach_all(&self.map)
        break_all_watches(self.watches, False)
        return size

    def drain(self, Py_ssize_t budget=BATCH, list removed=None):
        cdef Gone gone
        cdef double now = self.read_clock()
        cdef bint more
        begin_removals(&gone, removed)
        sweep(&self.map, budget - drop_detached(&self.map, budget, &gone), now, &gone)
        more = next_work(&self.map) == -INFINITY
        self.finish_removals(&gone)
        return more

    def drop_tag(self, str name not None):
        self.begin()
        return drop(&self.map, name)

    def dropped_since(self, tuple tags not None, uint64_t since):
        return not check_tags(&self.map, tags, since)

    # Below: rare changes of the clock, the gate and the process.

    def use_clock(self, clock):
        clock = clock_of(clock)
        cdef double now = exact_clock() if clock is None else clock()
        check_time(now, self.map.wheel.interval)
        self.map.tags.due = INFINITY if self.map.tags.due == INFINITY else -INFINITY
        old, self.clock = self.clock, clock
        if now < time_of(&self.map.wheel, self.map.wheel.tick):
            file_all_again(&self.map, now)

    def gate(self, error):
        # Kept until the end: dropping the old one may run Python code.
        old, self.gate_error = self.gate_error, error

    def before_fork(self):
        """Do nothing: a fork holds the global interpreter lock, and so does each step."""

    def after_fork(self, *, bint in_child):
        if not in_child:
            return
        seed_jitter(&self.jitter)
        break_all_watches(self.watches, True)
        self.map.misses = 0
        memset(self.map.past.misses, 0, sizeof(self.map.past.misses))
        zero_groups(&self.map.groups)
        memset(self.map.removals, 0, sizeof(self.map.removals))
        self.map.evicted_weight = self.map.evicted_carry = 0
        self.completed.clear()

    # Below: calls that come before a step.

    cdef inline double own_time(self) except? -1:
        """Return the time by the core's own clock, or SYSTEM_CLOCK, for ``time_for``."""
        return SYSTEM_CLOCK if self.clock is None else self.clock()

    cdef inline double read_clock(self) except? -1:
        return exact_clock() if self.clock is None else self.clock()

    cdef inline uint32_t index_of(self, object key) except? 0xFFFFFFFF:
        return find(&self.map, <PyObject *>key, hash_of(<PyObject *>key))

    cdef uint32_t index_of_existing(self, object key) except? 0xFFFFFFFF:
        """Return the index of an entry in any state; 0 if there is none or one of its tags was dropped."""
        cdef uint32_t index = self.index_of(key)
        cdef Entry *entry = at(&self.map.entries, index) if index else NULL
        if index and entry.flags & HAS_TAGS and are_dropped(tags_of(&self.map.entries, index, entry)):
            return 0
        return index

    cdef inline int begin(self) except -1:
        """Raise the error of the gate if it is shut."""
        return self.refuse() if unlikely(self.gate_error is not None) else 0

    cdef int refuse(self) except -1:
        error = self.gate_error
        if error is not None:
            raise error()
        return 0


include "plain_calls.pxi"
include "access.pxi"
include "context_memo.pxi"

patch_collection()
