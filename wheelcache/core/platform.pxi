# C code for features that Cython lacks: the system's clocks, words shared with other processes, and comparison of
# strings in place.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <time.h>

    /* The clock of runtime/clock.py. */
    #ifdef CLOCK_BOOTTIME
    #define MACHINE_CLOCK CLOCK_BOOTTIME
    #else
    #define MACHINE_CLOCK CLOCK_MONOTONIC
    #endif

    static inline uint64_t nanoseconds_of(clockid_t id) {
        struct timespec time;
        clock_gettime(id, &time);
        return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    }
    static inline uint64_t nanoseconds(void) { return nanoseconds_of(MACHINE_CLOCK); }
    static inline double exact_clock(void) { return (double)nanoseconds() * 1e-9; }

    /* Read it within 23 ms, which takes 3 ns instead of 21 (before Linux 5.3, 200). There is no coarse CLOCK_BOOTTIME,
       so the exact one is read once per step of CLOCK_MONOTONIC_COARSE. Linux also steps that when it suspends the
       machine: a time from before a suspension is not used after it. */
    static inline uint64_t coarse_nanoseconds(void) {
    #ifdef CLOCK_MONOTONIC_COARSE
        static uint64_t step, read;
        uint64_t now = nanoseconds_of(CLOCK_MONOTONIC_COARSE);
        if (now != step) {
            read = nanoseconds();
            step = now;
        }
        return read;
    #else
        return nanoseconds();
    #endif
    }
    static inline double coarse_clock(void) { return (double)coarse_nanoseconds() * 1e-9; }
    /* Instead of the time by a core's own clock. */
    #define SYSTEM_CLOCK (-Py_HUGE_VAL)

    /* Words that several threads read and write. */
    static inline uint64_t load_word(uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
    static inline void store_word(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
    static inline uint64_t swap_word(uint64_t *word, uint64_t value) {
        return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    }
    static inline int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
    static inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
    #define likely(x) __builtin_expect(!!(x), 1)
    #define unlikely(x) __builtin_expect(!!(x), 0)
    #define prefetch(line) __builtin_prefetch(line)

    #define KEY_DEPTH 4

    /* Return 1 for the usual keys, whose hashing and comparing run no Python code. ``keys.is_plain`` checks others. */
    static int is_usual_key(PyObject *key, int depth) {
        PyTypeObject *kind = Py_TYPE(key);
        Py_ssize_t index;
        if (kind == &PyUnicode_Type || kind == &PyLong_Type || kind == &PyBytes_Type || kind == &PyFloat_Type) return 1;
        if (kind == &PyBool_Type || key == Py_None) return 1;
        if (kind != &PyTuple_Type)
            return kind->tp_hash == PyBaseObject_Type.tp_hash
                && kind->tp_richcompare == PyBaseObject_Type.tp_richcompare;
        for (index = 0; index < PyTuple_GET_SIZE(key); index++)
            if (depth == 0 || !is_usual_key(PyTuple_GET_ITEM(key, index), depth - 1)) return 0;
        return 1;
    }

    /* Return 1 for objects that have a method of coroutines or generators: ``check_reusable`` must check these. */
    static inline int may_be_read_once(PyObject *value) {
        PyTypeObject *kind = Py_TYPE(value);
        PyAsyncMethods *async = kind->tp_as_async;
        if (async != NULL && (async->am_await != NULL || async->am_anext != NULL)) return 1;
        return kind->tp_iternext != NULL && PyIter_Check(value);
    }

    static inline int is_string_or_int(PyObject *key) { return PyUnicode_CheckExact(key) || PyLong_CheckExact(key); }

    /* Return the hash of a usual key. Only an object of exactly ``str`` has its hash in this field. */
    static inline Py_hash_t hash_of_plain(PyObject *key) {
        if (PyUnicode_CheckExact(key)) {
            Py_hash_t hash = ((PyASCIIObject *)key)->hash;
            if (hash != -1) return hash;
        }
        return PyObject_Hash(key);
    }

    static inline int are_strings(PyObject *one, PyObject *other) {
        return PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other);
    }

    /* Compare two keys with the same hash. A string equals no object of another type; comparing it with bytes could
       issue a BytesWarning. */
    static inline int are_equal_keys(PyObject *one, PyObject *other) {
        if (PyUnicode_Check(one) != PyUnicode_Check(other)) return 0;
        return PyObject_RichCompareBool(one, other, Py_EQ);
    }

    /* Refuse NaN: every comparison of a time with NaN is false. */
    static inline double no_nan(double seconds) {
        if (Py_IS_NAN(seconds)) PyErr_SetString(PyExc_ValueError, "ttl must be a number of seconds or None, not nan");
        return Py_IS_NAN(seconds) ? -1.0 : seconds;
    }

    /* Compare two strings. Both must have been hashed, which makes their data ready. */
    static inline int are_equal_strings(PyObject *one, PyObject *other) {
        Py_ssize_t length = PyUnicode_GET_LENGTH(one);
        int kind = (int)PyUnicode_KIND(one);
        return length == PyUnicode_GET_LENGTH(other) && kind == (int)PyUnicode_KIND(other)
            && memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * (size_t)kind) == 0;
    }

    /* Copy the characters of two strings to ``text`` and return the hash of their concatenation, without creating it.
       Return 0 if one of them is not ASCII, or if they are too long together. */
    static inline Py_hash_t hash_of_two(PyObject *one, PyObject *other, char *text, Py_ssize_t size) {
        Py_ssize_t first = PyUnicode_GET_LENGTH(one), length = first + PyUnicode_GET_LENGTH(other);
        Py_hash_t hash;
        if (!PyUnicode_IS_COMPACT_ASCII(one) || !PyUnicode_IS_COMPACT_ASCII(other)) return 0;
        if (length > size || length == 0) return 0;
        memcpy(text, PyUnicode_1BYTE_DATA(one), (size_t)first);
        memcpy(text + first, PyUnicode_1BYTE_DATA(other), (size_t)(length - first));
        hash = PyHash_GetFuncDef()->hash(text, length);
        return hash == -1 ? -2 : hash;
    }

    static inline int is_text(PyObject *key, const char *text, Py_ssize_t length) {
        return PyUnicode_CheckExact(key) && PyUnicode_GET_LENGTH(key) == length && PyUnicode_IS_ASCII(key)
            && memcmp(PyUnicode_1BYTE_DATA(key), text, (size_t)length) == 0;
    }

    /* Convert a TTL to a double, without the float object that PyFloat_AsDouble creates for an int. */
    static inline double as_seconds(PyObject *ttl) {
        if (ttl == Py_None) return Py_HUGE_VAL;
        return PyLong_CheckExact(ttl) ? PyLong_AsDouble(ttl) : no_nan(PyFloat_AsDouble(ttl));
    }

    /* Return whether the garbage collector may track the object, now or later. */
    static inline int is_tracked_type(PyObject *object) { return PyType_IS_GC(Py_TYPE(object)) != 0; }

    /* Call ``destroy(object)``; later, if too many such calls are nested. */
    static inline void call_without_nesting(PyObject *object, destructor deallocate, destructor destroy) {
        Py_TRASHCAN_BEGIN(object, deallocate)
        destroy(object);
        Py_TRASHCAN_END
    }

    static inline int visit_object(PyObject *object, visitproc visit, void *arg) {
        Py_VISIT(object);
        return 0;
    }
    """
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef int (*inquiry)(PyObject *) noexcept
    ctypedef void (*destructor)(PyObject *) noexcept
    const Py_ssize_t PY_SSIZE_T_MAX
    double SYSTEM_CLOCK
    double exact_clock() noexcept
    double coarse_clock() noexcept
    uint64_t nanoseconds() noexcept
    uint64_t coarse_nanoseconds() noexcept
    uint64_t load_word(uint64_t *word) noexcept
    void store_word(uint64_t *word, uint64_t value) noexcept
    uint64_t swap_word(uint64_t *word, uint64_t value) noexcept
    int highest_bit(uint64_t word) noexcept
    int lowest_bit(uint64_t word) noexcept
    bint likely(bint condition) noexcept
    bint unlikely(bint condition) noexcept
    void prefetch(void *line) noexcept
    int KEY_DEPTH
    bint is_usual_key(PyObject *key, int depth) noexcept
    bint is_string_or_int(PyObject *key) noexcept
    bint may_be_read_once(PyObject *value) noexcept
    Py_hash_t hash_of_plain(PyObject *key) except? -1
    bint are_strings(PyObject *one, PyObject *other) noexcept
    bint are_equal_strings(PyObject *one, PyObject *other) noexcept
    int are_equal_keys(PyObject *one, PyObject *other) except -1
    Py_hash_t hash_of_two(object one, object other, char *text, Py_ssize_t size) noexcept
    bint is_text(PyObject *key, const char *text, Py_ssize_t length) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    const char *PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size) noexcept
    int PyContextVar_Get(object variable, PyObject *default, PyObject **value) noexcept
    void PyErr_Clear() noexcept
    bint PyUnicode_IS_ASCII(object text) noexcept
    unsigned char *PyUnicode_1BYTE_DATA(object text) noexcept
    Py_UCS4 PyUnicode_READ_CHAR(object text, Py_ssize_t place) noexcept
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t place) noexcept
    double as_seconds(PyObject *ttl) except? -1.0
    void call_without_nesting(PyObject *object, destructor deallocate, destructor destroy) noexcept
    int visit_object(PyObject *object, visitproc visit, void *arg) noexcept
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept
    PyObject *PyDict_GetItem(PyObject *dict, object key) noexcept
    PyObject *PyDict_New() except NULL
    Py_ssize_t PyDict_Size(PyObject *dict) noexcept
    void PyDict_Clear(PyObject *dict) noexcept
    int PyDict_DelItem(PyObject *dict, object key) noexcept
    bint is_tracked_type(PyObject *object) noexcept
    void PyObject_GC_UnTrack(PyObject *object) noexcept
    void PyObject_ClearWeakRefs(PyObject *object) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear
        destructor tp_dealloc
    void Py_INCREF(PyObject *object) noexcept
    void Py_DECREF(PyObject *object) noexcept
