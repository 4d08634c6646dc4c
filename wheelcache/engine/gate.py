"""The state of a cache: not used yet, open or closed. In the first and the last state, the gate of its core is shut.

If the first use must start the periodic jobs, the gate is shut with ``Unused`` until then: a process that only misses
is a worker, too. The cache catches this exception from any call of the core, opens the gate, and calls again. Hits pay
nothing for this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from wheelcache.core.contract import Core
from wheelcache.errors import CacheClosed, Unused


class Gate:
    """The gate of one cache.

    Args:
        name: the name of the cache, for error messages.

    Attributes:
        is_shut: whether the first use is still to come.
        is_closed: whether the cache was closed.
    """

    def __init__(self, name: str, core: Core) -> None:
        self._core = core
        self._error = partial(CacheClosed, f"the cache {name!r} was closed")
        self._begin: Callable[[], object]
        self._lock = threading.RLock()
        self.is_shut = False
        self.is_closed = False

    def begin_with(self, begin: Callable[[], object]) -> None:
        """Shut the gate. The first use of the cache opens it and calls ``begin``."""
        self._begin = begin
        self.is_shut = True
        self._set(Unused)

    def is_in_use(self) -> bool:
        """Return whether the cache was used, and not closed since."""
        return not self.is_shut and not self.is_closed

    def open(self) -> None:
        """Open the gate, at the first use.

        Raises:
            CacheClosed: if the cache was closed.
        """
        if self.is_shut and not self.is_closed:
            self.open_early()
            self._begin()
        if self.is_closed:
            raise self._error()

    def open_early(self) -> None:
        """Open the gate before the first use, since the layer in front of the cache starts the jobs itself."""
        self._set(None)
        self.is_shut = False

    def close(self) -> None:
        """Shut the gate forever."""
        self.is_closed = True
        self._set(self._error)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def _set(self, error: Callable[[], Exception] | None) -> None:
        with self._lock:
            if not self.is_closed:
                self._core.gate(error)
            # Checked again afterwards: a finalizer may have closed the cache in between.
            if self.is_closed:
                self._core.gate(self._error)
