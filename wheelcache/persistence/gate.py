"""Whether a cache is unloaded, open or closed: its core's gate is shut or open.

If there is a snapshot, the gate is shut with ``Unloaded`` until the first use. The cache catches that from any call of
the core, lets the load finish, and calls again. Hits take no part in it: there is nothing to hit before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from wheelcache.core.contract import Core
from wheelcache.errors import CacheClosed, Unloaded
from wheelcache.runtime.shared_objects import Lazy, acquiring

PATIENCE: Final = 30.0
"""Seconds to wait for another thread that loads. It may be waiting for this one: unpickling runs user code."""


class Gate:
    """The gate of one cache.

    Args:
        name: the name of the cache, for errors.

    Attributes:
        is_closed: the cache was closed.
    """

    __slots__ = ("_begun", "_core", "_error", "_gate_lock", "_is_shut", "_load", "_loading", "_thread", "is_closed")

    def __init__(self, name: str, core: Core) -> None:
        self._core = core
        self._error = partial(CacheClosed, f"the cache {name!r} was closed")
        self._load: Callable[[], object] = _load_nothing
        # Held for the whole load, and made by the first thread that needs it.
        self._loading: Lazy[threading.RLock] = Lazy(lambda: threading.RLock())
        # Held for a step each time.
        self._gate_lock = threading.RLock()
        self._begun = True
        # The identifier of the thread that loads; 0 if none does.
        self._thread = 0
        self._is_shut = False
        self.is_closed = False

    def load_first(self, load: Callable[[], object]) -> None:
        """Shut the gate until ``load`` was called, by the first thread that needs an entry."""
        self._load = load
        self._begun = False
        self._is_shut = True
        self._set_gate(Unloaded)

    def is_in_use(self) -> bool:
        """Return whether the cache was used, its load is over, and it was not closed since."""
        return self._begun and not self._thread and not self.is_closed

    def open(self) -> None:
        """Load first if that is needed, or wait until another thread has: for at most 30 seconds, then the gate opens.

        An exception of the load is raised here, once. It opens the gate, too.

        Raises:
            CacheClosed: the cache was closed.
        """
        if self._is_shut and not self.is_closed:
            self._once(self._load)
        if self.is_closed:
            self.check()

    def skip_load(self) -> None:
        """Open the gate without loading, since the entries would be cleared immediately. If a load was begun, wait for
        it as ``open`` does."""
        if self._is_shut and not self.is_closed:
            self._once(_load_nothing)
        self.check()

    def check(self) -> None:
        """
        Raises:
            CacheClosed: the cache was closed.
        """
        if self.is_closed:
            raise self._error()

    def close(self) -> None:
        """Shut the gate forever. A load in progress ends with an error."""
        self.is_closed = True
        self._set_gate(None)

    def after_fork_in_child(self) -> None:
        """Let the child load the entries that were not loaded in the parent, when the child first uses them."""
        self._gate_lock = threading.RLock()
        if self._thread == threading.get_ident():
            # The load itself forked, and goes on in the child as well.
            return
        self._loading.forget()
        self._thread = 0
        if self._is_shut:
            self._begun = False
            self._set_gate(Unloaded)

    def _once(self, load: Callable[[], object]) -> None:
        thread = threading.get_ident()
        if self._thread == thread:
            # Re-entered during unpickling.
            return
        lock = self._loading.get()
        (acquired,) = acquiring(lock, PATIENCE)
        try:
            if acquired and not self._begun and not self.is_closed:
                self._begun = True
                self._thread = thread
                try:
                    self._set_gate(Unloaded, thread)
                    load()
                finally:
                    self._thread = 0
                    self._open()
            else:
                # It is open already, unless the thread that loaded was interrupted before it could open it, or takes
                # too long.
                self._open()
        finally:
            if acquired:
                lock.release()

    def _open(self) -> None:
        self._set_gate(None)
        self._is_shut = False

    def _set_gate(self, error: Callable[[], Exception] | None, thread: int = 0) -> None:
        with self._gate_lock:
            if not self.is_closed:
                self._core.gate(error, thread)
            # Checked after that, too: a finalizer may have closed the cache meanwhile.
            if self.is_closed:
                self._core.gate(self._error)


def _load_nothing() -> None:
    """Do nothing: in place of a load that is skipped."""
