"""The computations of values by one process that are in progress, and the writes and deletes that outdate them.

A watch of the core would not do: it also breaks if the connection to the store begins to report writes, or reports one
by this process from before the computation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary


class Computation:
    """The computation of the value of one key, by one or more callers.

    Attributes:
        is_outdated: whether this process has begun to write or delete the key since then.
    """

    __slots__ = ("__weakref__", "is_outdated")

    def __init__(self) -> None:
        self.is_outdated = False


class Computations:
    """The computations in progress, by the keys of a near cache."""

    __slots__ = ("_in_progress",)

    def __init__(self) -> None:
        self._in_progress: WeakValueDictionary[Any, Computation] = WeakValueDictionary()

    def begin(self, key: Any) -> Computation:
        """Return the computation of ``key``. The caller refers to it until it stores the value."""
        return self._in_progress.setdefault(key, Computation())

    def keys(self) -> list[Any]:
        """Return the keys of the computations."""
        return [reference.key for reference in self._in_progress.valuerefs()]

    def outdate(self, keys: Iterable[Any]) -> None:
        """Note that ``keys`` will be written or deleted."""
        for key in keys if self._in_progress else ():
            computation = self._in_progress.pop(key, None)
            if computation is not None:
                computation.is_outdated = True

    def outdate_all(self) -> None:
        """Note that all keys will be deleted."""
        self.outdate(self.keys())
