# The fast paths to a core, compiled. access.py documents them. A look-up is a call of a C function.

from cpython.set cimport PySet_GET_SIZE

from asyncio import _get_running_loop as get_running_loop
from itertools import islice

from wheelcache.core import access as in_python
from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, Serialized
from wheelcache.runtime.reusable import check_reusable
from wheelcache.errors import Unused

cdef object SERIALIZED = Serialized
cdef object LAYERED = object()
cdef object OWN_TTL = DEFAULT_TTL
cdef enum:
    MOST_PLAIN = 250  # PLAIN_LENGTH of misses.py
    MOST_NOTED = 1024  # MAX_MISSES of request_scope.py
cdef object UNTAGGED = ()  # a literal as the default costs a set 3 ns less than this name
cdef double MOST_FAST_TTL = MAX_FAST_TTL


cdef class WriteState:
    cdef public bint is_plain
    cdef public bint is_watched
    cdef public int usual_outcome
    cdef Py_buffer words
    cdef Py_hash_t slots

    def record_in(self, words):
        cdef Py_buffer present, before = self.words
        PyObject_GetBuffer(words, &present, PyBUF_WRITABLE)
        self.words, self.slots = present, present.len // <Py_ssize_t>sizeof(uint64_t) - 1
        PyBuffer_Release(&before)

    cdef inline int will_write(self, object key) except -1:
        """Record the moment of a plain write of a string or an int: see ``WriteMoments``."""
        cdef Py_hash_t slot
        if unlikely(self.slots):
            slot = hash_of_plain(<PyObject *>key) % self.slots
            if slot < 0:
                slot += self.slots
            store_word(<uint64_t *>self.words.buf + 1 + slot, nanoseconds())
        return 0

    def __dealloc__(self):
        PyBuffer_Release(&self.words)


# The core of an accessor that has none yet: its gate is shut.
cdef CompiledCore UNBOUND = CompiledCore()
UNBOUND.gate(lambda: AttributeError("this cache has no core yet"))
cdef WriteState NO_WRITES = WriteState()


# Without tp_clear, which would leave an accessor without a core: the core and the writes break the cycles they are in.
@cython.auto_pickle(False)
@cython.no_gc_clear
cdef class CacheAccess:
    cdef object __weakref__
    cdef readonly CompiledCore _core
    cdef object ttl
    cdef double seconds
    cdef WriteState writes

    def __cinit__(self, *args, **kwargs):
        self._core, self.writes = UNBOUND, NO_WRITES

    def _bind(self, CompiledCore core not None, WriteState writes not None):
        if self._core is not UNBOUND:
            # A call in progress may be using the present core.
            raise RuntimeError(f"this {type(self).__name__} has a core already")
        self._core = core
        self.writes = writes

    @property
    def _ttl(self):
        return self.ttl

    @_ttl.setter
    def _ttl(self, value):
        self.seconds = as_seconds(<PyObject *>value)
        self.ttl = value

    def get(self, key, default=None):
        """Return the value of ``key``, or ``default`` if it is missing or expired."""
        found = self.look_up(key, True)
        return default if found is MISSING else found

    def find(self, key, default=None):
        """Return the value of ``key``, or ``default``, as ``get`` does, but without counting a miss.

        For code that loads a missing value: the load counts the miss.
        """
        found = self.look_up(key, False)
        return default if found is MISSING else found

    @cython.final
    cdef inline object look_up(self, object key, bint counts):
        cdef PyObject *value
        if not is_usual_key(<PyObject *>key, KEY_DEPTH):
            key = self._adapt(key)
        value = self._core.found(key)
        return <object>value if likely(value is not <PyObject *>MISSING) else self.missed(key, counts)

    @cython.final
    cdef object missed(self, object key, bint counts):
        """End a look-up that has found nothing, and return MISSING; after the first use of a cache, look again."""
        if self._core.gate_error is not None:
            try:
                self._core.refuse()
            except Unused:
                self._begin_use()
                return self.look_up(key, counts)
        if counts:
            self._core.miss(key)
        # With the system's clock, misses are not recorded. In a test that freezes the time, the clock is another one.
        if self._core.clock is not None and self.writes.records_misses:
            self.writes.missed(key)
        return MISSING

    def get_many(self, keys):
        """Return a dict with the existing keys among ``keys`` and their values."""
        cdef list batch = keys if type(keys) is list else list(keys)
        cdef dict found
        cdef PyObject *value
        cdef Py_ssize_t start
        if len(batch) > BATCH:
            found = {}
            for start in range(0, len(batch), BATCH):
                found.update(self.get_many(batch[start:start + BATCH]))
                let_others_run()
            return found
        if not self.reads_at_once() or not are_usual(batch):
            return self._get_many(batch)
        found = __Pyx_PyDict_NewPresized(len(batch))
        for key in batch:
            value = self._core.hit(
                find(&self._core.map, <PyObject *>key, hash_of_plain(<PyObject *>key)), SYSTEM_CLOCK
            )
            if value is <PyObject *>MISSING:
                self._core.miss(key)
            else:
                found[key] = <object>value
        return found

    cdef inline bint reads_at_once(self) noexcept:
        """Return whether only the core handles a look-up, with the system's clock, so that no Python code runs."""
        return self._core.clock is None and self._core.gate_error is None

    cdef inline bint writes_at_once(self) noexcept:
        """Return whether only the core handles a write, with the system's clock."""
        return self.writes.is_plain and self.reads_at_once()

    # ``binding``, since the signature in a docstring cannot show this default. It makes no measurable difference.
    @cython.binding(True)
    def set(self, key, value, ttl=OWN_TTL, *, tags=()):
        return self.write(key, value, ttl, tags, ANY)

    @cython.binding(True)
    def add(self, key, value, ttl=OWN_TTL, *, tags=()):
        return self.write(key, value, ttl, tags, ABSENT)

    @cython.final
    cdef inline bint write(self, object key, object value, object ttl, object tags, int mode) except -1:
        cdef double seconds = self.seconds
        if (
            type(key) is str and self.writes.is_plain and tags is UNTAGGED
            and (ttl is OWN_TTL or is_usual(ttl, &seconds))
        ):
            return self.store(key, value, seconds, mode)
        ttl = self.ttl if ttl is OWN_TTL else ttl
        return self._add(key, value, ttl, tags) if mode == ABSENT else self._set(key, value, ttl, tags)

    cdef bint store(self, object key, object value, double seconds, int mode) except -1:
        """Do a ``set``, or with ABSENT an ``add``, for a string as the key, if only the core handles it."""
        cdef int outcome
        if may_be_read_once(<PyObject *>value):
            check_reusable(value)
        try:
            self.writes.will_write(key)
            outcome = self._core.store(key, value, seconds, mode, mode == ABSENT)
            self.announce(outcome, 1)
        except Unused:
            self._begin_use()
            return self.write(key, value, seconds, UNTAGGED, mode)
        return outcome & STORED

    cdef inline int announce(self, int outcome, Py_ssize_t count) except -1:
        cdef WriteState writes = self.writes
        # A value that is not stored needs no announcement, except the first write of a process, which starts threads.
        if outcome != writes.usual_outcome and (outcome != PRESENT or writes.usual_outcome != STORED):
            writes.announce(outcome, None, count)
        return 0

    @cython.binding(True)
    def set_many(self, values, ttl=OWN_TTL, *, jitter=True, tags=()):
        cdef double seconds = self.seconds
        cdef list keys, stored, refused = []
        if type(values) is not dict or not (ttl is OWN_TTL or is_usual(ttl, &seconds)) or tags is not UNTAGGED:
            return self._set_many(values, ttl, jitter=jitter, tags=tags)
        if len(values) > BATCH:
            check_all_reusable(list(values.values()))
            items = iter(list(values.items()))
            while batch := dict(islice(items, BATCH)):
                refused += self.set_many(batch, ttl, jitter=jitter)
                let_others_run()
            return refused
        keys, stored = items_of(values)
        if not self.writes_at_once() or not are_strings_or_ints(keys):
            return self._set_many(values, ttl, jitter=jitter, tags=tags)
        check_all_reusable(stored)
        self.store_all(keys, stored, seconds, not jitter)
        return refused

    cdef int store_all(self, list keys, list values, double seconds, bint exact) except -1:
        cdef int outcome
        for key in keys:
            self.writes.will_write(key)
        outcome = put_all(self._core, keys, values, seconds, exact)
        self.announce(outcome, len(keys))
        return 0

    @cython.binding(True)
    def touch(self, key, ttl=OWN_TTL):
        cdef double seconds = self.seconds
        if type(key) is not str or not (ttl is OWN_TTL or is_usual(ttl, &seconds)) or not self.reads_at_once():
            return self._touch(key, ttl)
        return self.touch_entry(key, seconds)

    cdef bint touch_entry(self, str key, double seconds) except -1:
        cdef int outcome
        self.writes.will_write(key)
        outcome = give_ttl(self._core, self._core.index_of(key), seconds, exact_clock())
        if outcome:
            self.announce(outcome, 1)
        return outcome & STORED

    @cython.binding(True)
    def incr(self, key, delta=1):
        if type(key) is str and type(delta) is int and self.writes_at_once():
            total = self.add_to_int(key, delta)
            if total is not None:
                return total
        return self._incr(key, delta)

    cdef object add_to_int(self, str key, object delta):
        """Do an ``incr`` of an int by an int, and return the sum. Return None if the key is missing or has another
        value."""
        cdef CompiledCore core = self._core
        cdef Write write
        cdef uint32_t index = core.index_of(key)
        cdef int outcome
        cdef double now = exact_clock()
        if not is_live(&core.map, index, now) or type(<object>at(&core.map.entries, index).value) is not int:
            return None
        value = <object>at(&core.map.entries, index).value
        total = value + delta
        memset(&write, 0, sizeof(Write))
        write.key, write.hash, write.value = <PyObject *>key, hash_of_plain(<PyObject *>key), <PyObject *>total
        write.ttl, write.mode, write.expected, write.now = KEEP_TTL, SAME, <PyObject *>value, now
        self.writes.will_write(key)
        outcome = core.store_under(None, &write, None)
        if outcome & CHANGED:
            return None
        self.announce(outcome, 1)
        return total

    @cython.binding(True)
    def get_or_load(
        self, key, loader, ttl=OWN_TTL, *, grace=None, refresh_ahead=None, fail_safe=None, timeout=None,
        negative_ttl=None, tags=(),
    ):
        cdef double seconds
        found = self.find(key, MISSING)
        if (
            found is not MISSING
            and (ttl is OWN_TTL or (type(ttl) is int and is_usual(ttl, &seconds)))
            and grace is None and refresh_ahead is None and timeout is None and negative_ttl is None
            and fail_safe is None
        ):
            return found
        policy = self._policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        if found is not MISSING:
            return self._refreshed(key, found, loader, ttl, policy, tags)
        # Called here, since loaders may be nested, and every call in between counts towards the limit of recursion.
        return self._load_missed(self._request(key, loader, ttl, policy, tags))

    def delete(self, key):
        """Remove the entry of ``key``. Return whether there was a fresh one."""
        cdef WriteState writes = self.writes
        cdef bint was_there
        if type(key) is not str or not writes.is_plain:
            return self._delete(key) is not MISSING
        try:
            writes.will_write(key)
            was_there = self._core.remove(key, MISSING, False, None) is not MISSING
        except Unused:
            self._begin_use()
            return self.delete(key)
        if writes.is_watched:
            writes.deleted(key)
        return was_there


cdef int copy_texts(compiled, original, tuple names) except -1:
    """Give methods the docstrings of their twins in Python."""
    for name in names:
        getattr(compiled, name).__doc__ = getattr(original, name).__doc__
    return 0


copy_texts(CacheAccess, in_python.CacheAccess, ("set", "add", "set_many", "touch", "incr", "get_or_load"))


@cython.auto_pickle(False)
cdef class PrefixAccess:
    cdef CompiledCore core
    cdef CacheAccess cache
    cdef public str _prefix
    cdef public object _loads
    cdef public object _encode
    cdef public frozenset _atoms
    cdef public Py_ssize_t _max_key_length
    cdef public set _overlays
    cdef public object _of_thread
    cdef public object _open_transactions
    cdef public tuple _immediate
    cdef public object _chain
    cdef public object _inside
    cdef public object _shared
    cdef public set _scopes_with_misses
    cdef public object _noted
    cdef public object _running_scope
    cdef public object _count_computation
    cdef tuple waiting

    def _look_up_in(self, CacheAccess cache not None):
        self.core = cache._core

    def _write_to(self, CacheAccess cache, tuple waiting):
        self.cache = cache
        self.waiting = waiting

    def get(self, key, default=None, version=None):
        """Return the value of ``key``, or ``default`` if it is missing or expired."""
        if self._overlays is not None and PySet_GET_SIZE(self._overlays):
            found = self.in_overlay(key, version)
            if found is not MISSING:
                if type(found) is SERIALIZED:
                    found = self.restored(key, found)
                elif found is LAYERED:
                    found = MISSING
                return self._get_missed(key, default, version) if found is MISSING else found
        if version is None and self.core is not None and self._prefix is not None:
            stored = self.core.lookup_prefixed(self._prefix, key)
            if type(stored) is SERIALIZED:
                stored = self.restored(key, stored)
            if stored is not MISSING:
                return stored
            if default is None and self.waiting is not None and self.count_and_note(key):
                return None
        return self._get_missed(key, default, version)

    cdef bint count_and_note(self, object key) except -1:
        """Count a miss, and note it as ``Misses.note`` does. Return False, without any effect, if that is not usual."""
        if type(key) is not str or not self.cache.reads_at_once() or self.follows(key):
            return False
        for prefix in self.waiting:
            if PyUnicode_Tailmatch(key, prefix, 0, PY_SSIZE_T_MAX, -1):
                return False
        key = self._usual_key(key)
        scope = self._running_scope()
        if key is None or len(<str>key) > MOST_PLAIN or scope is None or scope._task is not None:
            return False
        misses = scope.misses.get(self._noted)
        if misses is None or len(<dict>misses) >= MOST_NOTED or get_running_loop() is not None:
            return False
        self.core.miss(key)
        (<dict>misses)[key] = nanoseconds()
        self._scopes_with_misses.add(id(scope))
        return True

    cdef bint may_be_noted(self, str key) except -1:
        """Return whether the running code may have missed a key, so that a write ends a computation."""
        if not PySet_GET_SIZE(self._scopes_with_misses):
            return False
        scope = self._running_scope()
        if scope is None:
            return False
        if scope.parent is not None or len(key) > MOST_PLAIN:
            return True
        misses = scope.misses.get(self._noted)
        return misses is not None and key in <dict>misses

    cdef inline object restored(self, object key, object stored):
        """Return the value of a serialized one that was found under the caller's key; MISSING if it was deleted, since
        it cannot be decoded."""
        loads = self._loads
        # A ``try`` around an ordinary call costs a hit 4 ns.
        cdef PyObject *value = PyObject_CallOneArg(<PyObject *>loads, <PyObject *>stored)
        if unlikely(value is NULL):
            return self.not_restored(key, stored)
        restored = <object>value
        Py_DECREF(value)
        return restored

    cdef object not_restored(self, object key, object stored):
        try:
            raise_again()
        except Exception as error:
            if not self._undecoded(key, stored, error):
                raise
        return MISSING

    cdef object in_overlay(self, object key, object version):
        """Return the stored form of a value of the running transaction; MISSING if the shared entry is visible, and
        LAYERED if Python code must find out, or note the miss of a key that the transaction has deleted."""
        cdef list overlays = self._of_thread.overlays
        cdef object fill
        if not overlays:
            return MISSING
        if len(overlays) != 1 or version is not None:
            return LAYERED
        overlay = overlays[0]
        visible = overlay.visible
        key = None if visible is None else self._usual_key(key)
        if key is None:
            return LAYERED
        fill = (<dict>visible).get(key, MISSING)
        if fill is MISSING:
            return fill
        return fill.value if fill.expires_at > self.core.read_clock() else LAYERED

    def _get_at_once(self, key):
        if self.core is None or self._prefix is None or (self._overlays is not None and PySet_GET_SIZE(self._overlays)):
            return MISSING
        stored = self.core.lookup_prefixed(self._prefix, key)
        return self.restored(key, stored) if type(stored) is SERIALIZED else stored

    cpdef object _layer(self, object key=""):
        if self._open_transactions is None:
            return self._chain
        return self._inside if self.follows(key) else self._shared

    cdef inline bint follows(self, object key) except -1:
        """Return whether a call follows an open transaction."""
        opened = self._open_transactions
        return opened is not None and opened() and not str(key).startswith(self._immediate)

    cdef inline object key_to_write(self, object key):
        """Return the core's key, if the core alone handles writes of it; otherwise None."""
        if self.cache is None or self.follows(key):
            return None
        if type(key) is not str or self._prefix is None:
            return None
        key = prefixed(self._prefix, key)
        if self._max_key_length and not is_printable(key, self._max_key_length):
            return None
        return key

    def _set_at_once(self, key, value, ttl):
        return self.set_at_once(key, value, ttl, ANY)

    def _add_at_once(self, key, value, ttl):
        return self.set_at_once(key, value, ttl, ABSENT)

    cdef object set_at_once(self, object key, object value, object ttl, int mode):
        cdef double seconds
        if not is_usual(ttl, &seconds):
            return None
        key = self.key_to_write(key)
        if key is None or not self.cache.writes.is_plain:
            return None
        if self.may_be_noted(key):
            self._count_computation(key)
        if type(value) not in self._atoms:
            # The serializer may be Python code that gives the cache a listener.
            value = self._encode(value)
            if not self.cache.writes.is_plain:
                return None
        return self.cache.store(key, value, seconds, mode)

    def _incr_at_once(self, key, delta):
        key = self.key_to_write(key)
        if key is None or type(delta) is not int or not self.cache.writes_at_once():
            return None
        return self.cache.add_to_int(key, delta)

    def _get_many_at_once(self, keys):
        cdef list values = []
        cdef Py_ssize_t place
        cdef CompiledCore core = self.core
        cdef str prefix = self._prefix
        if self.cache is None or prefix is None or len(keys) > BATCH or not self.cache.reads_at_once():
            return None
        if self.follows(""):
            return None
        for key in keys:
            if type(key) is not str or not self.is_storable(key):
                return None
        # No Python code runs in this loop, so it is one step.
        for key in keys:
            value = core.lookup_prefixed(prefix, key)
            if value is MISSING:
                core.miss(PyUnicode_Concat(prefix, key))
            values.append(value)
        for place in range(len(values)):
            if type(values[place]) is SERIALIZED:
                values[place] = self.restored(keys[place], values[place])
                if values[place] is MISSING:
                    core.miss(PyUnicode_Concat(prefix, keys[place]))
        return values

    def _set_many_at_once(self, data, ttl):
        cdef double seconds
        cdef list keys, values
        cdef Py_ssize_t place
        if type(data) is not dict or len(data) > BATCH or not is_usual(ttl, &seconds):
            return False
        if self.cache is None or self._prefix is None or self.follows(""):
            return False
        # Copied before serialization: the serializer may be Python code, and another thread may then change the dict.
        keys, values = items_of(data)
        for key in keys:
            if type(key) is not str or not self.is_storable(key):
                return False
        for place in range(len(keys)):
            keys[place] = PyUnicode_Concat(self._prefix, keys[place])
            if self.may_be_noted(keys[place]):
                self._count_computation(keys[place], len(keys))
        for place in range(len(values)):
            if type(values[place]) not in self._atoms:
                values[place] = self._encode(values[place])
        if not self.cache.writes_at_once():
            return False
        self.cache.store_all(keys, values, seconds, False)
        return True

    cdef inline bint is_storable(self, str key) noexcept:
        """Return whether a key with the prefix is stored as it is."""
        cdef Py_ssize_t longest = self._max_key_length
        return not longest or (
            PyUnicode_GET_LENGTH(self._prefix) + PyUnicode_GET_LENGTH(key) <= longest
            and is_printable(self._prefix, longest) and is_printable(key, longest)
        )

    cpdef object _usual_key(self, object key):
        """Return the core's key for a string; None if the key is not stored as it is, or if there is no core."""
        if type(key) is not str or self.core is None or self._prefix is None or not self.is_storable(key):
            return None
        return PyUnicode_Concat(self._prefix, key)


@cython.auto_pickle(False)
cdef class VersionedAccess(PrefixAccess):
    cdef public object _own_timeout
    cdef public object _default_mark

    cdef inline object ttl_of(self, object timeout):
        return self._own_timeout if timeout is OWN_TTL or timeout is self._default_mark else timeout

    @cython.binding(True)
    def add(self, key, value, timeout=OWN_TTL, version=None, *, tags=()):
        if version is None and tags is UNTAGGED:
            done = self.set_at_once(key, value, self.ttl_of(timeout), ABSENT)
            if done is not None:
                return done
        return self._drive(self._add(key, value, timeout, version, tags=tags))

    @cython.binding(True)
    def set(self, key, value, timeout=OWN_TTL, version=None, *, nx=False, xx=False, tags=()):
        if version is None and tags is UNTAGGED and nx is False and xx is False:
            done = self.set_at_once(key, value, self.ttl_of(timeout), ANY)
            if done is not None:
                return done
        return self._drive(self._set(key, value, timeout, version, nx=nx, xx=xx, tags=tags))

    @cython.binding(True)
    def touch(self, key, timeout=OWN_TTL, version=None):
        cdef double seconds
        if version is None and is_usual(self.ttl_of(timeout), &seconds):
            final = self.key_to_write(key)
            if final is not None and self.cache.reads_at_once():
                return self.cache.touch_entry(final, seconds)
        return self._drive(self._touch(key, timeout, version))

    @cython.binding(True)
    def delete(self, key, version=None):
        final = self.key_to_write(key) if version is None else None
        return self._drive(self._delete(key, version)) if final is None else self.cache.delete(final)

    @cython.binding(True)
    def incr(self, key, delta=1, version=None, *, ignore_key_check=False):
        if version is None:
            total = self._incr_at_once(key, delta)
            if total is not None:
                return total
        return self._drive(self._incr(key, delta, version, ignore_key_check=ignore_key_check))


copy_texts(VersionedAccess, in_python.VersionedAccess, ("add", "set", "touch", "delete", "incr"))
