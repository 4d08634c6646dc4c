"""Saves the entries of a cache to a file, and restores those of a file: what ``persistence`` needs of a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from wheelcache.core.contract import RESTORE, Core, Seen
from wheelcache.errors import SnapshotRefused
from wheelcache.keys import KeyProxies, unwrap
from wheelcache.persistence.loading_snapshot import load_from
from wheelcache.persistence.saving import save
from wheelcache.persistence.snapshot_file import refuse


class Writes(Protocol):
    """The way of a write, by the keys of the core."""

    def set(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float,
        *,
        exact: bool,
        mode: int,
        seen: Seen | None,
    ) -> int:
        """The outcome of ``core.set``."""

    def evict(self, key: Any) -> None:
        """Remove an entry for want of room."""


class Snapshots:
    """See ``persistence.autosave.Savable`` and ``persistence.loading_snapshot.Store``.

    Args:
        is_portable: whether a key, as the caller wrote it, means the same in another process.
        is_coherent: entries are stored with what the stamps showed.
        is_in_use: whether the cache was used, its load is over, and it was not closed since.
    """

    __slots__ = ("_core", "_is_coherent", "_keys", "_max_entries", "_writes", "is_in_use", "is_portable", "name")

    def __init__(
        self,
        name: str,
        core: Core,
        writes: Writes,
        keys: KeyProxies,
        *,
        max_entries: int | None,
        is_coherent: bool,
        is_portable: Callable[[Any], bool],
        is_in_use: Callable[[], bool],
    ) -> None:
        self.name = name
        self._core = core
        self._writes = writes
        self._keys = keys
        self._max_entries = max_entries
        self._is_coherent = is_coherent
        self.is_portable = is_portable
        self.is_in_use = is_in_use

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
        dir_fd: int | None = None,
    ) -> int:
        return save(
            self._core,
            path,
            name=self.name,
            unwrap=unwrap,
            is_portable=self.is_portable,
            secret=secret,
            seconds=seconds,
            dir_fd=dir_fd,
        )

    def load(self, path: Path, secret: bytes | None) -> int:
        """``load_from`` for a user's file: how many entries. A file that may not be loaded is renamed, which is
        logged."""
        try:
            return self.load_from(path, secret)
        except FileNotFoundError:
            return 0
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", path, error)
            return error.loaded

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> int:
        return load_from(
            self._core,
            self,
            path,
            name=self.name,
            is_coherent=self._is_coherent,
            max_entries=self._max_entries,
            secret=secret,
            dir_fd=dir_fd,
        )

    def restore(self, key: Any, value: Any, ttl: float | None, grace: float, seen: Seen | None) -> int:
        return self._writes.set(self._keys.adapt(key), value, ttl, grace, exact=True, mode=RESTORE, seen=seen)

    def evict(self, key: Any) -> None:
        self._writes.evict(self._keys.adapt(key))
