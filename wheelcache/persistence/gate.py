"""The state of a cache: unloaded, open or closed. In the first and the last state, the gate of its core is shut.

If there is a snapshot to load, or the first use must start the periodic jobs, the gate is shut with ``Unloaded`` until
then. The cache catches this exception from any call of the core, waits until the gate is open, and calls again. Hits
pay nothing for this.
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
"""Seconds to wait for another thread's load. That thread may be waiting for this one: unpickling runs user code."""


class Gate:
    """The gate of one cache.

    Args:
        name: the name of the cache, for error messages.

    Attributes:
        is_shut: whether the snapshot was not loaded yet.
        is_closed: whether the cache was closed.
    """

    def __init__(self, name: str, core: Core) -> None:
        self._core = core
        self._error = partial(CacheClosed, f"the cache {name!r} was closed")
        self._load: Callable[[], object] = _load_nothing
        # Held for the whole load.
        self._loading: Lazy[threading.RLock] = Lazy(lambda: threading.RLock())
        # Held for one step at a time.
        self._gate_lock = threading.RLock()
        self._begun = True
        # The identifier of the thread that loads; 0 if none does.
        self._thread = 0
        self.is_shut = False
        self.is_closed = False

    def load_first(self, load: Callable[[], object]) -> None:
        """Shut the gate. The first thread that needs an entry calls ``load``, and the gate opens."""
        self._load = load
        self._begun = False
        self.is_shut = True
        self._set_gate(Unloaded)

    def is_in_use(self) -> bool:
        """Return whether the cache was used, its load is over, and it was not closed since."""
        return self._begun and not self._thread and not self.is_closed

    def open(self) -> None:
        """Load the snapshot if necessary, or wait for a thread that loads it. The gate opens after 30 seconds anyway.

        If the load raises, the gate opens as well, and the exception is raised from this call only.

        Raises:
            CacheClosed: if the cache was closed.
        """
        if self.is_shut and not self.is_closed:
            self._once(self._load)
        if self.is_closed:
            self.check()

    def skip_load(self) -> None:
        """Open the gate without loading, since the entries would be cleared immediately.

        If a load is in progress, wait for it as ``open`` does.
        """
        if self.is_shut and not self.is_closed:
            self._once(_load_nothing)
        self.check()

    def check(self) -> None:
        """Raise CacheClosed if the cache was closed."""
        if self.is_closed:
            raise self._error()

    def close(self) -> None:
        """Shut the gate forever. A load in progress ends with an error."""
        self.is_closed = True
        self._set_gate(None)

    def after_fork_in_child(self) -> None:
        """Let the child load the snapshot at its first use if the parent had not loaded it."""
        self._gate_lock = threading.RLock()
        if self._thread == threading.get_ident():
            # The load itself forked, and goes on in the child as well.
            return
        self._loading.forget()
        self._thread = 0
        if self.is_shut:
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
                # The gate is open already, unless the loading thread was interrupted before it could open it, or takes
                # longer than ``PATIENCE``.
                self._open()
        finally:
            if acquired:
                lock.release()

    def _open(self) -> None:
        self._set_gate(None)
        self.is_shut = False

    def _set_gate(self, error: Callable[[], Exception] | None, thread: int = 0) -> None:
        with self._gate_lock:
            if not self.is_closed:
                self._core.gate(error, thread)
            # Checked again afterwards: a finalizer may have closed the cache in between.
            if self.is_closed:
                self._core.gate(self._error)


def _load_nothing() -> None:
    """Do nothing, in place of a load that is skipped."""
