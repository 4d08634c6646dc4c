# The compiled twin of context_memo.py. Through it, a hit by Django's proxy takes 0.2 us; with the classes in Python, 0.5.

from contextvars import ContextVar

cdef extern from *:
    """
    /* Return the value of a ContextVar in the running context, or None. */
    static PyObject *value_in_context(PyObject *variable) {
        PyObject *value = NULL;
        return PyContextVar_Get(variable, Py_None, &value) < 0 ? NULL : value;
    }
    """
    object value_in_context(object variable)
    unsigned long PyThread_get_thread_ident()


@cython.final
cdef class Kept:
    """The objects of one thread and context, which are never changed: copied contexts share them."""

    cdef unsigned long thread
    cdef dict objects


@cython.auto_pickle(False)
@cython.final
cdef class ContextMemo:
    """See ``context_memo.ContextMemo``."""

    cdef object kept

    def __cinit__(self):
        self.forget_everywhere()

    def find(self, name):
        return self.found(name)

    cdef object found(self, object name):
        kept = self.kept_here(self.kept)
        return None if kept is None or type(name) is not str else (<Kept>kept).objects.get(name)

    cdef object kept_here(self, object variable):
        """Return the ``Kept`` of the running thread and context, or None."""
        kept = value_in_context(variable)
        return kept if type(kept) is Kept and (<Kept>kept).thread == PyThread_get_thread_ident() else None

    def look_up(self, name, look_up, kinds):
        # Read first: if everything is forgotten during the look-up, nobody finds its result.
        cdef object variable = self.kept
        cdef Kept new
        found = look_up(name)
        if isinstance(found, kinds) and type(name) is str:
            kept = self.kept_here(variable)
            new = Kept.__new__(Kept)
            new.thread = PyThread_get_thread_ident()
            new.objects = {**({} if kept is None else (<Kept>kept).objects), name: found}
            variable.set(new)
        return found

    def forget(self):
        self.kept.set(None)

    def forget_everywhere(self):
        self.kept = ContextVar("kept")


@cython.auto_pickle(False)
@cython.final
cdef class KeptAttribute:
    """See ``context_memo.KeptAttribute``."""

    cdef ContextMemo memo
    cdef str name
    cdef str attribute

    def __cinit__(self, ContextMemo memo not None, str name not None, str attribute not None):
        self.memo, self.name, self.attribute = memo, name, attribute

    def __get__(self, instance, owner):
        if instance is None:
            return self
        found = self.memo.found(self.name)
        if found is None:
            raise AttributeError(self.attribute)
        return getattr(found, self.attribute)
