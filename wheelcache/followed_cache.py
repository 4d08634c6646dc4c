"""A cache of a backend that follows transactions: what its calls see within one, and its end.

At the end, the deletes of the transaction reach all, and then its values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.coherence.notices import Bus, Notice, collected, merged
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.contract import HIDDEN
from wheelcache.keys import CALLERS, callers_tags
from wheelcache.transactions.overlay import Fill, Overlay
from wheelcache.transactions.transaction import OfThread, Transaction

NOTHING: Final = object()
"""The default of a look-up that finds nothing."""


class FollowedCache:
    """The shared cache under the overlays: see ``transactions.transaction.Target``.

    Args:
        cache: the entries, or the copies of entries of another cache.
        open_transactions: returns the open transactions of the running code that the cache follows, oldest first.
        max_entries, max_weight: the bounds of the cache.
        bus: reports writes to other machines; None if there are none.
        outlives_process: whether the entries outlive this process.
        has_store: whether there is a store behind, which all machines share.
    """

    def __init__(
        self,
        cache: Cache,
        open_transactions: Callable[[], list[Transaction]],
        max_entries: int | None,
        max_weight: int | None,
        bus: Bus | None = None,
        *,
        outlives_process: bool,
        has_store: bool = False,
    ) -> None:
        self.overlays: set[Overlay] = set()
        self.of_thread = OfThread()
        self.open_transactions = open_transactions
        self.outlives_process = outlives_process
        self._engine = cache.engine
        self._moments = cache.engine.record_writes()
        self._bus = bus
        self.has_store = has_store
        self._bounds = max_entries, max_weight

    def new_overlay(self, since: int) -> Overlay:
        return Overlay(WritesSince(self._moments, since), self._engine.now, *self._bounds)

    def begin_commit(self, overlay: Overlay) -> None:
        changes, end_before = overlay.changes(), overlay.end_commit
        names = [*changes.deleted, *(CALLERS + tag for tag in changes.tags)]
        # With COHERENCE, a pattern clears the cache.
        commit = self._moments.begin_commit(None if changes.is_cleared or changes.patterns else names)
        if commit is not None:
            overlay.end_commit = commit.end
        elif self.has_store:
            overlay.end_commit = overlay.origin.begin_commit([*changes.deleted, *changes.tags])
        if end_before is not None:
            # The first attempt to commit has failed.
            end_before()
        self.invalidate(overlay)

    def end_commit(self, overlay: Overlay) -> None:
        end, overlay.end_commit = overlay.end_commit, None
        if end is not None:
            end()

    def invalidate(self, overlay: Overlay) -> None:
        with collected(self._bus) as notices:
            try:
                self._invalidate(overlay)
            finally:
                if self._bus is not None and notices:
                    self._report(self._bus, overlay, merged(notices))

    def _report(self, bus: Bus, overlay: Overlay, notice: Notice) -> None:
        """Publish the notice of the invalidations, once if this is within their transaction. A store is invalidated
        again after the commit, since a caller may have filled it in between, so this is reported as well: another
        machine may have a copy of that value."""
        if notice != overlay.reported:
            is_in_transaction = bus.publish(notice)
            overlay.reported = notice if is_in_transaction and not self.has_store else None

    def _invalidate(self, overlay: Overlay) -> None:
        changes = overlay.changes()
        by_version: dict[Any, list[Any]] = {}
        for backend, key, *version in changes.deleted.values():
            by_version.setdefault((backend, *version), []).append(key)
        with overlay.writes_by_others.apply():
            if changes.is_cleared:
                overlay.origin.clear_now()
            for backend, tag in changes.tags.values():
                backend.drop_tag_now(tag)
            for backend, *pattern in changes.patterns:
                backend.delete_pattern_now(*pattern)
            for (backend, *version), keys in by_version.items():
                backend.delete_now(keys, *version)

    def store_committed(self, overlay: Overlay) -> None:
        # In the opposite order of the sets: a page before its list of headers, whose waiters will look for the page.
        for cache_key, fill in reversed(overlay.changes().fills.items()):
            seconds = fill.seconds_left(overlay.now())
            if not options.expires_now(seconds):
                backend, *origin = fill.origin
                backend.store_committed(cache_key, *origin, fill, seconds, overlay.writes_by_others)

    def withdraw(self, overlay: Overlay) -> None:
        for cache_key in overlay.changes().fills:
            self._engine.refuse_fill(cache_key)


class FollowingAccess:
    """What the calls of a backend that follows transactions see. It comes before the backend among the bases."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _follow(self, followed: FollowedCache) -> None:
        self._followed = followed
        self._overlays, self._of_thread = followed.overlays, followed.of_thread

    def overlay(self, key: Any = None) -> Overlay | None:
        """Return the overlay of the open transaction, which the first call makes; None without a transaction."""
        transactions = self._followed.open_transactions()
        if not transactions:
            return None
        overlay = transactions[-1].overlay(self._followed)
        overlay.origin = self
        return overlay

    def delete_tags(self, *tags: str) -> None:
        overlay = self.overlay()
        if overlay is None:
            super().delete_tags(*tags)  # type: ignore[misc]
            return
        checked = [options.tag("tags", tag) for tag in tags]
        overlay.drop_tags(dict(zip(self._tag_names(checked), [(self, tag) for tag in checked], strict=True)))

    # The end of a transaction calls these: see ``FollowedCache``.

    def clear_now(self) -> None:
        super().clear()  # type: ignore[misc]

    def drop_tag_now(self, tag: str) -> None:
        super().delete_tags(tag)  # type: ignore[misc]

    def _in_overlay(self, cache_key: Any) -> Any:
        """Return the Fill that the running transaction sees, HIDDEN, or None if the shared cache must be asked."""
        return _find(self._open_overlays(), cache_key)

    def _open_overlays(self) -> list[Overlay]:
        """Return the overlays of the open transactions, as far as there are any, the newest first."""
        followed = self._followed
        if not followed.overlays:
            return []
        found = [transaction.find_overlay(followed) for transaction in reversed(followed.open_transactions())]
        return [overlay for overlay in found if overlay is not None]

    def _own_value_or_apply_delete(self, cache_key: Any, key: Any, *version: int | None) -> Fill | None:
        """Return the value that an immediate call on ``key`` acts on, if the transaction has set it. Otherwise, delete
        the entry of the shared cache if the transaction has."""
        overlays = self._open_overlays()
        found = _find(overlays, cache_key)
        if type(found) is Fill:
            return found
        for overlay in overlays:
            # A later set does not answer an earlier miss: it replaces the entry of this call.
            overlay.forget_miss(cache_key)
        if found is HIDDEN and self.overlay(key) is not None:
            self.delete_now([key], *version)
        return None

    def _made(self, cache_key: Any, key: Any) -> None:
        """Show the entry of the shared cache that an immediate call has made, also if the transaction had deleted its
        key. Until then, the commit deletes it: others may have loaded the old value again."""
        if self._in_overlay(cache_key) is HIDDEN and self.overlay(key) is not None:
            for overlay in self._open_overlays():
                overlay.reveal(cache_key)

    def _get_in_transaction(self, key: Any, default: Any, version: int | None) -> Any:
        cache_key = self._key(key, version)
        found = self._in_overlay(cache_key)
        if type(found) is Fill:
            return self._decode(found.value)
        if found is not HIDDEN:
            value = self._get_shared(key, NOTHING, version)
            if value is NOTHING:
                return default
            if not self._hides_entry(cache_key, key):
                return value
        # The set that may follow is no fill: other callers have another value.
        self._misses.begin(cache_key)
        return default

    def _count_computation(self, cache_key: Any) -> None:
        """Count the computation of a value that the transaction sets."""
        if self._scopes_with_misses:
            self._misses.count_computation(cache_key)
            self._misses.pop_miss(cache_key)

    def _hides_entry(self, cache_key: Any, key: Any = None) -> bool:
        """Return whether a transaction has dropped a tag of the entry that was found in the shared cache."""
        for overlay in self._open_overlays():
            if overlay.drops_tags and self.overlay(key) is not None:
                record = self._cache.engine.peek(cache_key)
                if record is None or overlay.has_dropped(callers_tags(record.tags)):
                    return True
        return False

    def _new_fill(
        self, cache_key: Any, stored: Any, ttl: float | None, origin: tuple[Any, ...], names: tuple[str, ...]
    ) -> Fill:
        engine = self._cache.engine
        expires_at = inf if ttl is None else engine.now() + ttl
        return Fill(origin, stored, expires_at, names, engine.weigh(cache_key, stored))


def _find(overlays: list[Overlay], cache_key: Any) -> Any:
    for place, overlay in enumerate(overlays):
        found = overlay.find(cache_key)
        if found is not None:
            is_dropped = type(found) is Fill and any(newer.has_dropped(found.tags) for newer in overlays[:place])
            return HIDDEN if is_dropped else found
    return None


def with_calls(calls: type, backend: Any) -> Any:
    """Return a class of backends with ``calls`` over those of this package, and under those that a site overrides.

    Its ``_set_shared`` is the ``set`` under that of ``calls``: ``super().set`` would take 70 ns more.
    """
    package = __name__.partition(".")[0]
    own = next(each for each in backend.__mro__ if each.__module__.partition(".")[0] == package)
    about = {"__module__": backend.__module__, "__doc__": backend.__doc__}
    found = type(own.__name__, (calls, own), {**about, "_set_shared": own.set})
    return found if own is backend else type(backend.__name__, (backend, found), about)
