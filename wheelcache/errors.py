"""What the engine raises of its own."""

from __future__ import annotations


class WheelClosed(RuntimeError):
    """The timers were stopped; nothing can be set, moved or asked for any more."""


class CacheClosed(RuntimeError):
    """The cache was closed."""


class Unloaded(Exception):
    """The cache has a snapshot that is not loaded yet. Raised by the core's gate; the cache catches it, has the
    snapshot loaded, and calls again."""


class MissingKey(KeyError):
    """The key isn't there. Told apart from the KeyErrors of code that was called with what is."""


class LoadDeadlock(RuntimeError):
    """A loader takes a key that waits, directly or through other loaders, for that very loader.

    Attributes:
        key: the key that was taken.
    """

    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        # Made when asked for: the exception is raised under a lock, and repr() may be user code.
        return f"the loader of {self.key!r} takes, itself or through other loaders, {self.key!r}"


class LoadTimeout(TimeoutError):
    """The loader took longer than the caller waits. It goes on, and what it returns is cached.

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
    """A file that processes of a machine share, or that outlives them, or its directory, cannot be used."""


class StoreUnavailable(ConnectionError):
    """The store behind a near cache failed lately, and is not asked before the next try is due."""


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
