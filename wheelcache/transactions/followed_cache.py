"""A cache that follows transactions, at their ends: their deletes reach all, and then their values. See
``transactions.in_transaction`` for the calls within one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wheelcache.cache import Cache
from wheelcache.engine import options
from wheelcache.engine.keys import CALLERS
from wheelcache.engine.write_watcher import WriteMoments, WritesSince
from wheelcache.runtime.steps import drive
from wheelcache.transactions.overlay import Overlay
from wheelcache.transactions.transaction import OfThread, Transaction


class FollowedCache:
    """The shared cache under the overlays: see ``transactions.transaction.Target``.

    Args:
        cache: the entries, or the copies of entries of another cache.
        open_transactions: returns the open transactions of the running code that the cache follows, oldest first.
        checked: the options of the cache.
        has_store: whether there is a store behind, which all machines share.
    """

    def __init__(
        self,
        cache: Cache,
        open_transactions: Callable[[], list[Transaction]],
        checked: Mapping[str, Any],
        *,
        has_store: bool,
    ) -> None:
        self.overlays: set[Overlay] = set()
        self.of_thread = OfThread()
        self.open_transactions = open_transactions
        # The entries of a host cache have a ``max_size``.
        self.outlives_process = has_store or "max_size" in checked
        self._engine = cache.engine
        self._moments = cache.engine.watcher(WriteMoments, WriteMoments)
        self.has_store = has_store
        self._bounds = checked["max_entries"], checked.get("max_weight", checked.get("max_size"))

    def new_overlay(self, since: int) -> Overlay:
        return Overlay(WritesSince(self._moments, since), self._engine.now, *self._bounds)

    def begin_commit(self, overlay: Overlay) -> None:
        self._engine.open()
        changes, end_before = overlay.changes(), overlay.end_commit
        names = [*changes.deleted, *(CALLERS + tag for tag in changes.tags)]
        end = self._moments.begin_commit(names, covers_all=changes.is_cleared or bool(changes.patterns))
        if end is not None:
            overlay.end_commit = end
        elif self.has_store:
            overlay.end_commit = overlay.origin.begin_commit([*changes.deleted, *changes.tags])
        if end_before is not None:
            # The first attempt to commit has failed.
            end_before()
        self.invalidate(overlay)

    def end_commit(self, overlay: Overlay) -> None:
        end, overlay.end_commit = overlay.end_commit, None
        if end is not None:
            with overlay.writes_by_others.apply():
                end()

    def invalidate(self, overlay: Overlay) -> None:
        changes, layer = overlay.changes(), overlay.origin
        with overlay.writes_by_others.apply():
            if changes.is_cleared:
                drive(layer.clear())
            for origin, tag in changes.tags.values():
                drive(origin.delete_tags([tag]))
            for (origin, *pattern), select in changes.patterns.items():
                drive(origin.delete_pattern(select, *pattern))
            if changes.deleted:
                drive(layer.delete_many([*changes.deleted]))

    def store_committed(self, overlay: Overlay) -> None:
        # In the opposite order of the sets: a page before its list of headers, whose waiters will look for the page.
        for key, fill in reversed(overlay.changes().fills.items()):
            seconds = fill.seconds_left(overlay.now())
            if not options.expires_now(seconds):
                others = overlay.writes_by_others
                overlay.origin.store_committed(key, fill.value, seconds, *fill.origin, fill.tags, others)

    def withdraw(self, overlay: Overlay) -> None:
        for key in overlay.changes().fills:
            self._engine.refuse_fill(key)
