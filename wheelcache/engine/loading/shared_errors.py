"""The exceptions of a load that several callers wait for: each caller raises an object of its own.

An exception collects the frames of every caller that raises it, and with them their local variables.
"""

from __future__ import annotations

import copy
from typing import Any


def error_for_waiter(error: Exception, key: Any) -> Exception:
    """Return the exception to raise for a caller that waited for a load of ``key``, whose leader raised ``error``.

    It is a copy of the same class and with the same arguments, without a traceback, cause or context, and with a note
    that names the key. An exception that cannot be copied is returned itself, without its traceback.
    """
    try:
        copied = _copied(error)
        if copied is not None:
            copied.add_note(f"Another caller started this load of {key!r}. Its traceback is in the log.")
            return copied
    except Exception:  # noqa: S110  # the class of the exception, or of the key, raises errors of its own
        pass
    return error.with_traceback(None)


def _copied(error: Exception) -> Exception | None:
    """Return a copy; None if the class of the exception does not make one."""
    copied: Exception
    if isinstance(error, ExceptionGroup):
        copied = error.derive([_copied(each) or each.with_traceback(None) for each in error.exceptions])
        has_same_args = True
    else:
        copied = copy.copy(error)
        # By identity: arguments may have an ``__eq__`` of their own.
        has_same_args = [*map(id, copied.args)] == [*map(id, error.args)]
    if copied is error or type(copied) is not type(error) or not has_same_args:
        return None
    copied.__traceback__ = copied.__cause__ = copied.__context__ = None
    if hasattr(error, "__notes__"):
        # ``copy.copy`` shares the list.
        copied.__notes__ = [*error.__notes__]
    return copied
