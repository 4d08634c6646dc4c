"""The seam for the observer of a cache: the records of its failures and clears, its published figures and its
periodic jobs.

The heart counts, and logs a line per minute. All other figures for operators belong to a guest, which watches caches
from above: it uses the calls of ``ObservedCache``, and receives the few events that leave no trace in the counts. A
cache has one observer at most. It is made with the cache if its figures are published, and otherwise
attached when an operator first looks at the cache. Without an observer, a failed load checks one attribute.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from wheelcache.engine.guests import module_of
from wheelcache.runtime.periodic_jobs import PeriodicJob


class Observer(Protocol):
    """The observer of a cache, as the cache sees it. Any thread may call the methods, which must not wait.

    Attributes:
        jobs: its periodic jobs, which run while the cache is used.
        publishes: whether other processes must learn at the first look-up that the cache is used.
    """

    @property
    def jobs(self) -> Iterable[PeriodicJob]: ...
    @property
    def publishes(self) -> bool: ...

    def failed(self, error: Exception, group: str) -> None:
        """Record an exception of a loader, for a key of the group of this name, which may be empty."""

    def cleared(self, by: str) -> None:
        """Record that the operator ``by`` cleared the cache; an empty string stands for the code of the site."""

    def after_fork_in_child(self) -> None:
        """Forget the events, which belong to the parent."""


def figures_directory(site: str) -> Path | None:
    """Return the default directory in which the processes of a site publish their figures; None if nothing does.

    Args:
        site: any text that all processes of the site know, and no other process.
    """
    watch = module_of("watch", "figures_directory")
    return None if watch is None else watch.directory_of(site)
