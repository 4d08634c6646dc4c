"""A cache behind a near cache that records its calls, and can fail."""

import inspect
from contextlib import contextmanager
from contextvars import ContextVar

WRITES = {"add", "set", "set_many", "touch", "aadd", "aset", "aset_many", "atouch"}

_is_inside = ContextVar("_is_inside", default=False)


class Noted:
    """
    Attributes:
        calls: the names and arguments of all calls from outside.
        error: raised by every call, if there is one.
    """

    calls: list
    error: Exception | None

    @classmethod
    def timeouts(cls):
        """The last arguments of all calls that write."""
        return [args[-1] for name, args in cls.calls if name in WRITES]


def noting(base):
    """A class like ``base`` that notes its calls; what its own methods call is not noted."""
    cls = type(f"Noting{base.__name__}", (Noted, base), {"calls": [], "error": None})

    @contextmanager
    def noted(name, args):
        if not _is_inside.get():
            cls.calls.append((name, args))
            if cls.error is not None:
                raise cls.error
        token = _is_inside.set(True)
        try:
            yield
        finally:
            _is_inside.reset(token)

    def noted_method(name, method):
        def call(self, *args, **kwargs):
            with noted(name, args):
                return method(self, *args, **kwargs)

        async def acall(self, *args, **kwargs):
            with noted(name, args):
                return await method(self, *args, **kwargs)

        return acall if inspect.iscoroutinefunction(method) else call

    not_noted = ("make_key", "make_and_validate_key", "validate_key", "close", "aclose")
    for name, method in inspect.getmembers(base, inspect.isfunction):
        if not name.startswith("_") and name not in not_noted:
            setattr(cls, name, noted_method(name, method))
    return cls
