"""The computations of values for the store behind a near cache, and the writes and deletes that outdate them.

The value is stored behind this cache, so the core cannot refuse it in the step that stores it. Two records show whether
it is outdated. A write by this process supersedes the turn of the load that computes the value: see ``turns``. With
COHERENCE, the stamps show the writes of all processes of the machine, at their beginning and at their end: a value that
is stored in between is outdated, too. The storing of a computed value is no such write, since processes that compute a
value at the same time do not outdate each other.

The watch of the turn would not do: it also breaks if the connection to the store begins to report writes, or reports
one by this process from before the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.contract import Seen
from wheelcache.engine import Engine
from wheelcache.turns import Turn


class Computation:
    """The computation of the value of one key.

    Args:
        engine: the cache of the copies.
        seen: the stamps of the key when the computation began.
        turn: the turn of the load that computes the value; None if a caller computes it after a ``get`` that missed.
    """

    __slots__ = ("_engine", "_is_refused", "_key", "_seen", "_turn")

    def __init__(self, engine: Engine, key: Any, seen: Seen | None, turn: Turn | None = None) -> None:
        self._engine = engine
        self._key = key
        self._seen = seen
        self._turn = turn
        self._is_refused = False

    def outdate(self) -> None:
        self._is_refused = True

    @property
    def is_outdated(self) -> bool:
        """Whether a caller has begun to write or delete the key since then, or a commit that has invalidated it is in
        progress. Once True, it stays True."""
        turn = self._turn
        if self._is_refused:
            return True
        # A turn that is not open cannot be superseded: it has ended, or it is ALONE.
        if turn is not None and (turn.is_superseded or turn.turns.open.get(turn.key) is not turn):
            return True
        if self._seen is None:
            return False
        now = self._engine.seen(self._key)
        return now is None or now[0] != self._seen[0]


class CommittedValue:
    """The value of one key that a transaction computed, which was committed.

    Args:
        others: the writes by others since the transaction began.
    """

    __slots__ = ("_is_refused", "_key", "_others")

    def __init__(self, key: Any, others: WritesSince) -> None:
        self._key = key
        self._others = others
        self._is_refused = False

    def outdate(self) -> None:
        self._is_refused = True

    @property
    def is_outdated(self) -> bool:
        """Whether another caller has begun to write or delete the key since the transaction began."""
        return self._is_refused or self._others.contain([self._key])


class Computations:
    """The computations in progress, by the keys of a near cache.

    Args:
        engine: the cache of the copies.
    """

    __slots__ = ("_engine", "_loads", "_misses")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._misses = engine.misses()
        self._loads = engine.loads()

    def led(self, key: Any, turn: Turn | None = None) -> Computation:
        """Return the computation of ``key`` by the load apart that the running code leads: by ``turn``, if that is
        known."""
        if turn is None:
            turn = self._loads.led_apart(key)
        return Computation(self._engine, key, None if turn.watch is None else turn.watch.seen, turn)

    def answered_by(self, keys: Iterable[Any]) -> dict[Any, Computation]:
        """Return the computations that end with a write of ``keys``, by their keys: those that the running thread or
        task began with a miss that was noted. Without COHERENCE there are none, since the last write wins."""
        found = {}
        for key in keys:
            seen, _ = self._misses.pop_miss(key)
            if seen is not None:
                found[key] = Computation(self._engine, key, seen)
        return found

    def outdate_where(self, select: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Note that the keys that ``select`` returns, given those of the loads apart, will be written or deleted."""
        self._loads.supersede_apart(select(self._loads.apart_in_progress()))
