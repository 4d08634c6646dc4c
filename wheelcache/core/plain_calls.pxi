# Functions for the fast paths of access.pxi: checks for the usual keys and TTLs, and conversions.

cdef inline void let_others_run() noexcept:
    """Give the global interpreter lock to a waiting thread, between two steps of a long call."""
    with nogil:
        pass


cdef inline tuple items_of(dict values):
    """Return the keys and the values as two lists. No Python code, not even the collector's, runs during the copy, so
    they match."""
    cdef list keys = [], stored = []
    cdef tuple both = (keys, stored)
    for key, value in values.items():
        keys.append(key)
        stored.append(value)
    return both


cdef inline bint are_usual(list keys) except -1:
    """Return whether the core accepts ``keys`` unchanged, and compute their hashes."""
    for key in keys:
        if not is_string_or_int(<PyObject *>key) and not is_usual_key(<PyObject *>key, KEY_DEPTH):
            return False
        hash_of_plain(<PyObject *>key)
    return True


cdef inline bint are_strings_or_ints(list keys) noexcept:
    """Return whether all ``keys`` are strings or ints. Such keys are in no group, and groups are tags."""
    for key in keys:
        if not is_string_or_int(<PyObject *>key):
            return False
    return True


cdef inline int check_all_reusable(list values) except -1:
    for value in values:
        if may_be_read_once(<PyObject *>value):
            check_reusable(value)
    return 0


cdef int raise_again() except -1:
    """Raise the exception of a function of the C API that has failed."""
    return -1


cdef inline bint is_usual(object ttl, double *seconds) except -1:
    """Return whether ``ttl`` is None or a number of seconds below MAX_FAST_TTL, and set ``seconds``."""
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


cdef inline bint is_printable(str key, Py_ssize_t max_length) noexcept:
    """Return whether ``key`` is printable, as ``is_printable`` of access.py does. False for keys that are not ASCII."""
    cdef Py_ssize_t index, length = PyUnicode_GET_LENGTH(key)
    cdef unsigned char *characters
    if length > max_length or not PyUnicode_IS_ASCII(key):
        return False
    characters = PyUnicode_1BYTE_DATA(key)
    for index in range(length):
        if not 32 < characters[index] < 127:
            return False
    return True


cdef extern from "Python.h":
    PyObject *PyObject_CallOneArg(PyObject *function, PyObject *argument)  # NULL after an exception
    double PyFloat_AS_DOUBLE(object number) noexcept
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    object PyUnicode_Concat(object left, object right)

cdef extern from *:
    # A function of Cython. Creating a dict of 100 items in its final size saves 0.5 of 3.2 us.
    dict __Pyx_PyDict_NewPresized(Py_ssize_t n)


def exchange_word(words, Py_ssize_t index, uint64_t word):
    """Put ``word`` into a buffer of 64-bit words, and return the word that it replaces, in one step for all threads."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(words, &buffer, PyBUF_WRITABLE)
    try:
        if not 0 <= index < buffer.len // <Py_ssize_t>sizeof(uint64_t):
            raise IndexError("there is no such word")
        return swap_word(<uint64_t *>buffer.buf + index, word)
    finally:
        PyBuffer_Release(&buffer)
