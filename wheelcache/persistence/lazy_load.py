"""Loads the snapshot of a cache when the cache is first used.

Until then the gate of the core is shut with ``Unloaded``. The cache catches that from any call of the core, has the
load finished, and calls again. Hits have no part in it: there is nothing to hit before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from wheelcache.core.contract import Core
from wheelcache.errors import Unloaded
from wheelcache.runtime.shared_objects import Lazy, acquiring

PATIENCE: Final = 30.0
"""Seconds to wait for another thread that loads. It may be waiting for this one: unpickling runs user code."""


class LazyLoad:
    """The gate of a core, shut until the snapshot is loaded, and when the cache is closed.

    Args:
        core: the core. Its gate is shut from now on.
        load: loads the snapshot, in the thread that uses the cache first.
    """

    __slots__ = ("_begun", "_closed", "_core", "_gate_lock", "_is_shut", "_load", "_loading", "_thread")

    def __init__(self, core: Core, load: Callable[[], object]) -> None:
        self._core = core
        self._load = load
        self._closed: Callable[[], Exception] | None = None
        # Held for the whole load, and made by the first thread that needs it.
        self._loading: Lazy[threading.RLock] = Lazy(lambda: threading.RLock())
        # Held for a step each time.
        self._gate_lock = threading.RLock()
        self._begun = False
        # The identifier of the thread that loads; 0 if none does.
        self._thread = 0
        self._is_shut = True
        self._set_gate(Unloaded)

    @property
    def is_pending(self) -> bool:
        """Whether the load is not begun, or not over yet."""
        return self._closed is None and (not self._begun or self._thread != 0)

    @property
    def is_shut(self) -> bool:
        """Whether calls have to wait for the load."""
        return self._is_shut and self._closed is None

    def finish(self) -> None:
        """Load, if that was not begun, or else wait until it is over: for at most 30 seconds, then the gate opens.

        What raises in ``load`` is raised here, once. It opens the gate, too.
        """
        self._once(self._load)

    def skip(self) -> None:
        """Open the gate without loading. If the load was begun, wait for it as ``finish`` does."""
        self._once(_load_nothing)

    def close(self, error: Callable[[], Exception]) -> None:
        """Shut the gate for good, with ``error``. A load in progress ends with that."""
        self._closed = error
        self._set_gate(None)

    def after_fork_in_child(self) -> None:
        """What was not loaded in the parent is loaded in the child, when the child first uses it."""
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
            # Called by what is unpickled.
            return
        lock = self._loading.get()
        (acquired,) = acquiring(lock, PATIENCE)
        try:
            if acquired and not self._begun and self._closed is None:
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
            if self._closed is None:
                self._core.gate(error, thread)
            # Looked at after that, too: a finalizer may have closed the cache meanwhile.
            if self._closed is not None:
                self._core.gate(self._closed)


def _load_nothing() -> None:
    """What ``skip`` does in place of the load."""
