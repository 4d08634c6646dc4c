"""A cache, as its observer sees it: its figures, and calls that look at the entries or delete some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from wheelcache.core.contract import Record
from wheelcache.engine.cache_parts import CacheParts
from wheelcache.engine.codec import size_of
from wheelcache.engine.guests import module_of
from wheelcache.engine.keys import unwrap
from wheelcache.engine.observer import Observer


class SharedState(NamedTuple):
    """State of the site in a cache, which the workers must share.

    Attributes:
        user: the subject and the verb of a sentence about it, such as "Sessions are only in".
        loss: the consequence if they do not share it.
    """

    user: str
    loss: str


class ObservedCache:
    """The calls of one cache for its observer, which uses no other part of the cache. Keys are those of the callers.

    Attributes:
        options: the arguments of ``Cache``, checked.
        core: the entries, by the core's keys.
        clock: returns seconds.
        figures: reads the figures: see ``StatsReader``.
        actions: the functions that run the requests of operators, by action: "clear", and for pages "purge".
        open: does what the first use of an entry does.
        is_in_use: returns whether the cache was used and not closed since.
        delete_many: deletes keys, and returns the number of existing ones.
        deletions, delete_tags: see ``CacheParts``.
        observe: attaches an observer: see ``CacheParts``.
        weighs_bytes: whether the weights of the entries are bytes.
        setting: the setting of the site that names the backend of the cache; empty if there is none.
        shared_state: the state of the site in the cache that workers must share.
    """

    def __init__(self, parts: CacheParts) -> None:
        self._parts: Final = parts
        self.options = parts.options
        self.core = parts.core
        self.clock = parts.driver.clock
        self.figures = parts.stats
        self.actions: Mapping[str, Callable[..., Any]] = parts.actions
        self.open = parts.gate.open
        self.is_in_use = parts.gate.is_in_use
        self.delete_many = parts.writer.delete_many
        self.deletions = parts.deletions
        self.delete_tags = parts.delete_tags
        self.observe = parts.observe
        # Without a weigher, the core itself weighs the entries.
        self.weighs_bytes = self.options.max_weight is not None and self.options.weigher in (None, size_of)
        self.setting = ""
        self.shared_state: list[SharedState] = []

    def collect_missed(self, keys: deque[Any]) -> None:
        """Append the keys of misses to ``keys`` from now on: when a value was computed after a miss, or when the thread
        or task that missed a key ends without setting it."""
        self._parts.misses.noted.missed_keys = keys

    def bytes_of(self, record: Record) -> int:
        """Return the size of an entry."""
        return size_of(unwrap(record.key), record.value, entry_bytes=self.core.entry_bytes)

    @property
    def observer(self) -> Observer | None:
        """The observer of the cache."""
        return self._parts.observer

    @property
    def lag(self) -> float:
        """How late the wheel is, in seconds."""
        return self._parts.driver.lag

    @property
    def thread_state(self) -> str:
        """The state of the wheel thread: see ``WheelThread.state``."""
        return self._parts.driver.thread_state


def observer_for(cache: ObservedCache) -> Observer | None:
    """Return the observer that the options of a cache ask for; None if they ask for none.

    Raises:
        FileUnusable: if the figures cannot be published in ``figures_dir``.
    """
    if cache.options.figures_dir is None:
        return None
    # The check of the option has found the guest.
    return module_of("watch", "observers").Observer(cache)  # type: ignore[no-any-return]
