"""A transaction of a database, and the overlays that it has over the caches that follow it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import local
from typing import Protocol

from wheelcache.transactions.overlay import Overlay


class OfThread(local):
    """The overlays of one cache in use by the running thread or greenlet, which made them. Its look-ups are diverted.

    They are not found by the identifier of a thread, which another one gets after its end.
    """

    def __init__(self) -> None:
        self.overlays: list[Overlay] = []


class Target(Protocol):
    """A cache that follows transactions.

    Attributes:
        overlays: the overlays in use by any thread.
        of_thread: those of the running thread.
        open_transactions: returns the open transactions of the running code that the cache follows, oldest first.
        outlives_process: whether entries outlive a process that is killed, so that an invalidation must not be lost.
    """

    overlays: set[Overlay]
    of_thread: OfThread
    open_transactions: Callable[[], list[Transaction]]
    outlives_process: bool

    def new_overlay(self, since: int) -> Overlay:
        """Return the overlay of a transaction that began at the moment ``since``."""

    def invalidate(self, overlay: Overlay) -> None:
        """Apply the invalidations."""

    def begin_commit(self, overlay: Overlay) -> None:
        """Apply the invalidations before the commit, and let nobody keep fills of their keys until ``end_commit``."""

    def end_commit(self, overlay: Overlay) -> None:
        """Let others keep fills again, after ``invalidate``. Without ``begin_commit``, this has no effect."""

    def store_committed(self, overlay: Overlay) -> None:
        """Share the values that others have not outdated since the transaction began, after ``invalidate``."""

    def withdraw(self, overlay: Overlay) -> None:
        """Let callers that wait for the values look again: they were dropped."""


class Transaction:
    """A transaction that is open.

    Args:
        since: the moment at which it began, or an earlier one; 0 if that is not known.

    Attributes:
        is_lost: whether its connection was closed, so that the database rolls it back.
    """

    __slots__ = ("__weakref__", "_overlays", "is_lost", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.is_lost = False
        self._overlays: dict[Target, Overlay] = {}

    @property
    def is_used(self) -> bool:
        """Whether a cache has an overlay of this transaction."""
        return bool(self._overlays)

    def find_overlay(self, target: Target) -> Overlay | None:
        return self._overlays.get(target)

    def overlay(self, target: Target) -> Overlay:
        """Return the overlay over ``target``. The first call makes it."""
        overlay = self._overlays.get(target)
        if overlay is None:
            overlay = self._overlays[target] = target.new_overlay(self.since)
            # If its connection was closed, nothing shows the end of the block, after which nobody may see the values.
            if not self.is_lost:
                target.overlays.add(overlay)
                overlay.of_thread = target.of_thread.overlays
                overlay.of_thread.append(overlay)
        return overlay

    def savepoint(self, identifier: Hashable) -> None:
        self._each(lambda overlay: overlay.savepoint(identifier))

    def roll_back_to(self, identifier: Hashable, others: Sequence[Transaction] = ()) -> None:
        """Drop the changes since a savepoint: see ``rolled_back``."""
        self._each(lambda overlay: overlay.roll_back_to(identifier, keeps_invalidations=bool(others)))
        for other in others:
            other.drop_fills()

    def release(self, identifier: Hashable) -> None:
        self._each(lambda overlay: overlay.release(identifier))

    def _each(self, function: Callable[[Overlay], object]) -> None:
        for overlay in self._overlays.values():
            function(overlay)

    def will_commit(self) -> None:
        """Apply the invalidations to caches that outlive this process, which may be killed just after the commit."""
        # A listener of the cache may use another cache.
        for target, overlay in tuple(self._overlays.items()):
            if target.outlives_process:
                target.begin_commit(overlay)

    # The ends. ``others`` are the other open transactions of the same code, those of other databases, oldest first. A
    # value may depend on all of them, so it is shared with the last one, and dropped with the first that rolls back. A
    # deleted key may stand for data of any of them, so it is deleted at the commit of each.

    def committed(self, others: Sequence[Transaction] = ()) -> None:
        """Apply the invalidations, and share the values."""
        self._end(others, invalidates=True, keeps_fills=True)

    def rolled_back(self, others: Sequence[Transaction] = ()) -> None:
        """Drop all changes."""
        self._end(others, invalidates=False, keeps_fills=False)

    def may_have_ended(self, others: Sequence[Transaction] = ()) -> None:
        """End the transaction, of which it is not known whether it was committed."""
        self._end(others, invalidates=True, keeps_fills=False)

    def drop_fills(self) -> None:
        """Drop the values, since a transaction that they depend on was rolled back."""
        self._each(Overlay.drop_fills)

    def _end(self, others: Sequence[Transaction], *, invalidates: bool, keeps_fills: bool) -> None:
        for other in () if keeps_fills else others:
            other.drop_fills()
        error: BaseException | None = None
        while self._overlays:
            target, overlay = self._overlays.popitem()
            _forget(target, overlay)
            try:
                if invalidates:
                    _invalidate(target, overlay)
                target.end_commit(overlay)
                if not keeps_fills:
                    target.withdraw(overlay)
                    overlay.drop_fills()
                outer = [each for each in target.open_transactions() if each in others] if others else []
                if outer:
                    outer[-1].overlay(target).add(overlay)
                elif keeps_fills:
                    target.store_committed(overlay)
            except BaseException as raised:
                # The other caches must be invalidated, too.
                error = raised
        if error is not None:
            raise error

    def __del__(self) -> None:
        # The thread ended without an end of its transaction.
        for target, overlay in self._overlays.items():
            _forget(target, overlay)


def _invalidate(target: Target, overlay: Overlay) -> None:
    try:
        target.invalidate(overlay)
    except BaseException:
        # It may be a time limit, which came between two deletes.
        target.invalidate(overlay)
        raise


def _forget(target: Target, overlay: Overlay) -> None:
    target.overlays.discard(overlay)
    if overlay in overlay.of_thread:
        overlay.of_thread.remove(overlay)
