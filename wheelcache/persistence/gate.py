"""Whether a cache is unloaded, open or closed: it is the gate of its core that is shut or open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wheelcache.core.contract import Core
from wheelcache.errors import CacheClosed
from wheelcache.persistence.lazy_load import LazyLoad


class Gate:
    """The gate of one cache.

    Args:
        name: of the cache, for errors.

    Attributes:
        is_closed: the cache was closed.
    """

    __slots__ = ("_core", "_error", "_lazy_load", "is_closed")

    def __init__(self, name: str, core: Core) -> None:
        self._core = core
        self._error = partial(CacheClosed, f"the cache {name!r} was closed")
        self._lazy_load: LazyLoad | None = None
        self.is_closed = False

    def load_first(self, load: Callable[[], object]) -> None:
        """Shut the gate until ``load`` was called, by the first call that needs an entry."""
        self._lazy_load = LazyLoad(self._core, load)

    def is_in_use(self) -> bool:
        """Whether the cache was used, its load is over, and it was not closed since."""
        return not self.is_closed and (self._lazy_load is None or not self._lazy_load.is_pending)

    def open(self) -> None:
        """Load what is to be loaded first, or wait until another thread has.

        Raises:
            CacheClosed: the cache was closed.
        """
        if self._lazy_load is not None and self._lazy_load.is_shut:
            self._lazy_load.finish()
        if self.is_closed:
            self.check()

    def skip_load(self) -> None:
        """Open the gate without loading: the entries would be cleared at once."""
        if self._lazy_load is not None and not self.is_closed:
            self._lazy_load.skip()
        self.check()

    def check(self) -> None:
        """
        Raises:
            CacheClosed: the cache was closed.
        """
        if self.is_closed:
            raise self._error()

    def close(self) -> None:
        """Shut the gate for good."""
        self.is_closed = True
        if self._lazy_load is None:
            self._core.gate(self._error)
        else:
            self._lazy_load.close(self._error)

    def after_fork_in_child(self) -> None:
        if self._lazy_load is not None:
            self._lazy_load.after_fork_in_child()
