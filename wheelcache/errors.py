"""The errors of the engine."""

from __future__ import annotations


class WheelClosed(RuntimeError):
    """The timers were stopped, so nothing can be set, moved or looked up."""


class CacheClosed(RuntimeError):
    """The cache was closed."""


class Unloaded(Exception):
    """The cache has a snapshot that is not loaded yet. The core's gate raises it; the cache catches it, loads the
    snapshot, and calls again."""


class MissingKey(KeyError):
    """The key is not there. Distinct from a KeyError raised by user code."""


class LoadDeadlock(RuntimeError):
    """A loader takes a key that waits, directly or through other loaders, for that very loader.

    Attributes:
        key: the key that was taken.
    """

    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        # Not earlier: the exception is raised under a lock, and repr() may be user code.
        return f"the loader of {self.key!r} takes, itself or through other loaders, {self.key!r}"


class LoadTimeout(TimeoutError):
    """The loader took longer than the caller waits. It goes on, and its result is cached.

    Attributes:
        key: the key that was taken.
        timeout: seconds that the caller waited.
    """

    def __init__(self, key: object, timeout: float) -> None:
        super().__init__(key, timeout)
        self.key = key
        self.timeout = timeout

    def __str__(self) -> str:
        return f"the loader of {self.key!r} takes longer than {self.timeout} s"


class FileUnusable(RuntimeError):
    """A file that processes share, or that outlives them, or its directory, cannot be used."""


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
    """The store behind a near cache failed recently, and is not called before the next try is due."""


class SnapshotRefused(Exception):
    """A file may not be loaded as a snapshot, or no further; the message says which file, and why.

    Attributes:
        loaded: how many entries had been loaded by then.
    """

    loaded = 0


class SnapshotDamaged(SnapshotRefused):
    """The rest of a snapshot is damaged or missing. The records that were read before this was raised are good."""


class UnknownFormat(SnapshotRefused):
    """A snapshot is of a version of wheelcache that uses another format. It is not loaded, and stays where it is."""
