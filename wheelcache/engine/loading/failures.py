"""Loads that failed: when the key may be loaded again, and the exceptions for the callers that have waited."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from contextlib import suppress
from random import SystemRandom
from typing import Any, Final

random: Final = SystemRandom().random
"""Not the generator that the application may have seeded."""

FIRST: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds from a failure to the next try: 1, 2, 4 ... 60, each times a random number from 0.5 to 1, so that keys that
failed together are not tried together."""

KEYS_AT_MOST: Final = 4096
"""The number of failed keys to remember. The oldest are forgotten first and may then be tried too early."""


class Backoff:
    """The keys that failed recently.

    Attributes:
        failures: for each key, the number of failures, the time of the last one, and the time of the next try.
    """

    def __init__(self) -> None:
        self.failures: dict[Hashable, tuple[int, float, float]] = {}

    def is_over(self, key: Hashable, now: float) -> bool:
        """Return whether ``key`` may be loaded again at the time ``now``, in seconds."""
        failure = self.failures.get(key)
        # If ``now`` is before the failure, a test has moved the time back.
        return failure is None or failure[2] <= now or now < failure[1]

    def failed(self, key: Hashable, now: float) -> float:
        """Record a failure of ``key``. Return the seconds until it may be tried again."""
        count = self.failures.pop(key, (0,))[0]
        pause = min(FIRST * 2.0**count, LONGEST_PAUSE) * (0.5 + random() / 2)
        while len(self.failures) >= KEYS_AT_MOST:
            # Another thread may remove the same key.
            with suppress(KeyError, RuntimeError, StopIteration):
                del self.failures[next(iter(self.failures))]
        # A count of 16 is more than LONGEST_PAUSE needs. Without a limit, the power would eventually overflow.
        self.failures[key] = (min(count + 1, 16), now, now + pause)
        return pause

    def succeeded(self, key: Hashable) -> None:
        """Forget the failures of ``key``."""
        self.failures.pop(key, None)

    def clear(self) -> None:
        self.failures = {}


def error_for_waiter(error: Exception, key: Any) -> Exception:
    """Return the exception to raise for a caller that waited for a load of ``key``, whose leader raised ``error``: an
    exception collects the frames of every caller that raises it, and with them their local variables.

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
