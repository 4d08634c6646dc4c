# What C offers and Cython does not: the system's clocks, words shared with other processes, strings compared in place.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <time.h>

    #ifdef __linux__
    #define READS_SYSTEM_CLOCK 1
    static inline double read_nanoseconds(clockid_t id) {
        struct timespec time;
        clock_gettime(id, &time);
        return (double)((int64_t)time.tv_sec * 1000000000 + time.tv_nsec);
    }
    /* Divided, as time.monotonic() does, so that both tell the same time to the last bit. */
    static inline double exact_clock(void) { return read_nanoseconds(CLOCK_MONOTONIC) / 1e9; }
    static inline double coarse_clock(void) { return read_nanoseconds(CLOCK_MONOTONIC_COARSE) * 1e-9; }
    #else
    /* time.monotonic() has a scale of its own, so it is called. */
    #define READS_SYSTEM_CLOCK 0
    static inline double exact_clock(void) { return 0.0; }
    static inline double coarse_clock(void) { return 0.0; }
    #endif

    /* Stamps are shared with other processes. Sequentially consistent: touch reads the news after it wrote a stamp. */
    static inline uint64_t load_word(uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
    static inline void store_word(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
    static inline int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
    static inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
    #define likely(x) __builtin_expect(!!(x), 1)
    #define unlikely(x) __builtin_expect(!!(x), 0)
    #define prefetch(line) __builtin_prefetch(line)

    /* Only a string that is no subclass keeps its hash where this looks for it. */
    static inline Py_hash_t hash_of(PyObject *key) {
        if (PyUnicode_CheckExact(key)) {
            Py_hash_t hash = ((PyASCIIObject *)key)->hash;
            if (hash != -1) return hash;
        }
        return PyObject_Hash(key);
    }

    static inline int are_strings(PyObject *one, PyObject *other) {
        return PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other);
    }

    /* Both were hashed, which makes them ready. */
    static inline int are_equal_strings(PyObject *one, PyObject *other) {
        Py_ssize_t length = PyUnicode_GET_LENGTH(one);
        int kind = (int)PyUnicode_KIND(one);
        return length == PyUnicode_GET_LENGTH(other) && kind == (int)PyUnicode_KIND(other)
            && memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * (size_t)kind) == 0;
    }

    /* The hash of the string that two make together, which is in ``text`` then, without making it. 0 if that cannot be
       told: one of them is not of ASCII, or they are too long. */
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

    /* A conversion without the float object that PyFloat_AsDouble makes of an int. */
    static inline double as_seconds(PyObject *ttl) {
        if (ttl == Py_None) return Py_HUGE_VAL;
        return PyLong_CheckExact(ttl) ? PyLong_AsDouble(ttl) : PyFloat_AsDouble(ttl);
    }

    /* Whether the garbage collector may track it, now or later. */
    static inline int is_tracked_type(PyObject *object) { return PyType_IS_GC(Py_TYPE(object)) != 0; }

    static inline int visit_object(PyObject *object, visitproc visit, void *arg) {
        Py_VISIT(object);
        return 0;
    }
    """
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef int (*inquiry)(PyObject *) noexcept
    ctypedef void (*destructor)(PyObject *) noexcept
    bint READS_SYSTEM_CLOCK
    double exact_clock() noexcept
    double coarse_clock() noexcept
    uint64_t load_word(uint64_t *word) noexcept
    void store_word(uint64_t *word, uint64_t value) noexcept
    int highest_bit(uint64_t word) noexcept
    int lowest_bit(uint64_t word) noexcept
    bint likely(bint condition) noexcept
    bint unlikely(bint condition) noexcept
    void prefetch(void *line) noexcept
    Py_hash_t hash_of(PyObject *key) except? -1
    bint are_strings(PyObject *one, PyObject *other) noexcept
    bint are_equal_strings(PyObject *one, PyObject *other) noexcept
    Py_hash_t hash_of_two(object one, object other, char *text, Py_ssize_t size) noexcept
    bint is_text(PyObject *key, const char *text, Py_ssize_t length) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    bint PyUnicode_IS_ASCII(object text) noexcept
    unsigned char *PyUnicode_1BYTE_DATA(object text) noexcept
    double as_seconds(PyObject *ttl) except? -1.0
    int visit_object(PyObject *object, visitproc visit, void *arg) noexcept
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept
    bint is_tracked_type(PyObject *object) noexcept
    void PyObject_GC_UnTrack(PyObject *object) noexcept
    void PyObject_ClearWeakRefs(PyObject *object) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear
        destructor tp_dealloc
    void Py_INCREF(PyObject *object) noexcept
    void Py_DECREF(PyObject *object) noexcept
    void Py_XDECREF(PyObject *object) noexcept
    void *PyMem_RawMalloc(size_t size) noexcept
    void *PyMem_RawCalloc(size_t count, size_t size) noexcept
    void *PyMem_RawRealloc(void *memory, size_t size) noexcept
    void PyMem_RawFree(void *memory) noexcept
