"""The errors of the engine."""

from __future__ import annotations


class WheelClosed(RuntimeError):
    """The timers were stopped, so nothing can be set, moved or looked up."""


class CacheClosed(RuntimeError):
    """The cache was closed."""


class Unused(Exception):
    """The cache was not used yet.

    The core's gate raises this exception. The cache catches it, starts its periodic jobs, and repeats the call.
    """


class MissingKey(KeyError):
    """The cache has no such key. Distinct from a KeyError raised by user code."""


class LoadDeadlock(RuntimeError):
    """A loader needs a key whose own loader waits for it, directly or through other loaders.

    Attributes:
        key: the key that the loader needs.
    """

    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        # Not in __init__: the exception is created under a lock, and repr() may run user code.
        return f"the loader of {self.key!r} needs {self.key!r}, itself or through other loaders"


class LoadTimeout(TimeoutError):
    """The loader took longer than the caller's timeout. It continues, and its result is cached.

    Attributes:
        key: the key that the caller requested.
        timeout: the seconds that the caller waited.
    """

    def __init__(self, key: object, timeout: float) -> None:
        super().__init__(key, timeout)
        self.key = key
        self.timeout = timeout

    def __str__(self) -> str:
        return f"the loader of {self.key!r} takes longer than {self.timeout} s"


class LockError(ValueError):
    """A lock was not acquired in time, or is not held by its caller. redis-py's LockError is a ValueError, too."""


class LockNotOwned(LockError):
    """A lock that its caller acquired has ended, and another caller may hold it."""


def note_key(error: Exception, key: object) -> None:
    """Add the key to the error of a serializer, which does not know it."""
    error.add_note(f"The value of the key {key!r} was not cached.")


class FileUnusable(RuntimeError):
    """A file that processes share or leave to later processes, or its directory, cannot be used."""


class DirectoryUnusable(FileUnusable):
    """The directory that an option names cannot be used.

    Attributes:
        option: the name of the option.
        reason: the rest of the message.
    """

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option} {reason}")
        self.option = option
        self.reason = reason


class StoreUnavailable(ConnectionError):
    """The store behind a near cache failed recently, and is not called until the next attempt is due."""


class TagsUnsupported(NotImplementedError):
    """A number with tags in the store of a near cache cannot be changed in place."""

    def __init__(self) -> None:
        super().__init__(
            "a TieredCache cannot add to a number that was stored with tags, since the store does not know its form; "
            "store it without tags, or set the new value"
        )
