# The short ways to a core: the twins of those in access.py, which has what they do. A look-up is a call of C.

from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, MAX_SIMPLE_LENGTH, Serialized
from wheelcache.errors import Unloaded

cdef object SERIALIZED = Serialized
cdef object OWN_TTL = DEFAULT_TTL
cdef double MOST_FAST_TTL = MAX_FAST_TTL
cdef Py_ssize_t LONGEST_SIMPLE = MAX_SIMPLE_LENGTH


cdef class WriteState:
    cdef public bint is_plain
    cdef public int quiet
    cdef public object leases


@cython.auto_pickle(False)
cdef class CacheAccess:
    cdef object __weakref__
    cdef readonly CompiledCore _core
    cdef object ttl
    cdef double seconds
    cdef WriteState writes

    def _bind(self, CompiledCore core not None, WriteState writes not None):
        if self._core is not None:
            # A call that is in progress may be reading the other one.
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
        """The value of ``key``, or ``default``. Never an expired one."""
        cdef PyObject *value
        if self._core is None:
            raise unbound(self)
        if type(key) is not str and type(key) is not int:
            key = self._adapt(key)
        value = self._core.found(key)
        if value is not <PyObject *>MISSING:
            return <object>value
        if self._core.barrier:
            try:
                self._core.check_gate()
            except Unloaded:
                self._load_snapshot()
                return self.get(key, default)
        self._core.misses += 1
        self.missed(key)
        return default

    def find(self, key, default=None):
        """``get``, without counting a miss: for a caller that goes on with ``loading.load``, which counts it."""
        cdef PyObject *value
        if self._core is None:
            raise unbound(self)
        if type(key) is not str and type(key) is not int:
            key = self._adapt(key)
        value = self._core.found(key)
        if value is not <PyObject *>MISSING:
            return <object>value
        if self._core.barrier:
            try:
                self._core.check_gate()
            except Unloaded:
                self._load_snapshot()
                return self.find(key, default)
        self.missed(key)
        return default

    cdef inline int missed(self, object key) except -1:
        # With the system's clock and without stamps no miss is heard: in a test that freezes the time the clock is
        # another one.
        if (self._core.clock is not None or self._core.map.stamps.given) and self.writes.hears_misses:
            self.writes.missed(key)
        return 0

    # The default is no constant that a signature in a docstring could show. As fast as without, by measurement.
    @cython.binding(True)
    def set(self, key, value, ttl=OWN_TTL):
        """Store ``value``, in place of any other. False if it is not stored: it alone outweighs ``max_weight``, or, in
        a coherent cache, another process wrote the key since this caller missed it.

        Args:
            ttl: seconds, > 0; None for never; the cache's own if not given.
        """
        cdef double seconds
        if self._core is None:
            raise unbound(self)
        if ttl is OWN_TTL:
            seconds, ttl = self.seconds, self.ttl
        elif is_usual(ttl, &seconds):
            pass
        else:
            return self._set(key, value, ttl)
        if type(key) is not str or not self.writes.is_plain:
            return self._set(key, value, ttl)
        return self.store(key, value, seconds, ttl)

    cdef object store(self, object key, object value, double seconds, object ttl):
        """``set`` with a key that is a string, where nothing but the core has a part in it."""
        cdef WriteState writes = self.writes
        cdef int outcome
        try:
            outcome = self._core.store(key, value, seconds, 0)
            if outcome != writes.quiet:
                writes.announce(outcome, None)
        except Unloaded:
            self._load_snapshot()
            return self.set(key, value, ttl)
        except BaseException:
            writes.interrupted()
            raise
        return True

    def delete(self, key):
        """Remove an entry. Whether it was there."""
        cdef WriteState writes = self.writes
        if self._core is None:
            raise unbound(self)
        if type(key) is not str or not writes.is_plain or writes.leases.in_force:
            return self._delete(key) is not MISSING
        try:
            return self._core.remove(key, MISSING, ALL, DELETED, 0, None) is not MISSING
        except Unloaded:
            self._load_snapshot()
            return self.delete(key)


@cython.auto_pickle(False)
cdef class PrefixAccess:
    cdef CompiledCore core
    cdef CacheAccess cache
    cdef public str _prefix
    cdef public object _loads
    cdef public object _encode
    cdef public frozenset _atoms
    cdef public bint _checks_keys

    def _look_up_in(self, CacheAccess cache not None):
        self.core = cache._core
        self.cache = cache

    def get(self, key, default=None, version=None):
        if version is None and self.core is not None and self._prefix is not None:
            stored = self.core.lookup_prefixed(self._prefix, key)
            if stored is not MISSING:
                if type(stored) is SERIALIZED:
                    return self._loads(stored)
                return stored
        return self._get_missed(key, default, version)

    def _set_at_once(self, key, value, ttl):
        cdef double seconds
        if self.cache is None or self.cache._core is None or self._prefix is None:
            raise unbound(self)
        if type(key) is not str or not (is_usual(ttl, &seconds) and self.cache.writes.is_plain):
            return None
        key = prefixed(self._prefix, key)
        if self._checks_keys and not is_simple(key):
            return None
        return self.cache.store(key, value if type(value) in self._atoms else self._encode(value), seconds, ttl)


cdef object unbound(object access):
    """What is raised in place of a read of memory that is not there."""
    return AttributeError(f"this {type(access).__name__} has no core yet, or no more")


cdef inline bint is_usual(object ttl, double *seconds) except -1:
    """Whether ``ttl`` is None, or a number of seconds that is not among the longest."""
    cdef int overflow = 0
    if ttl is None:
        seconds[0] = INFINITY
        return True
    if type(ttl) is int:
        seconds[0] = <double>PyLong_AsLongLongAndOverflow(ttl, &overflow)
    elif type(ttl) is float:
        seconds[0] = PyFloat_AS_DOUBLE(ttl)
    else:
        return False
    return 0.0 < seconds[0] < MOST_FAST_TTL


cdef inline object prefixed(str prefix, object key):
    if type(key) is str:
        return PyUnicode_Concat(prefix, key)
    return f"{prefix}{key!s}"


cdef inline bint is_simple(str key):
    """As in access.py; a key that is not ASCII is left to that."""
    cdef Py_ssize_t index, length = PyUnicode_GET_LENGTH(key)
    cdef unsigned char *characters
    if length > LONGEST_SIMPLE or not PyUnicode_IS_ASCII(key):
        return False
    characters = PyUnicode_1BYTE_DATA(key)
    for index in range(length):
        if not 32 < characters[index] < 127:
            return False
    return True


cdef extern from "Python.h":
    double PyFloat_AS_DOUBLE(object number) noexcept
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    object PyUnicode_Concat(object left, object right)
