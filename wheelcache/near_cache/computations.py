"""The computations of values for the store behind a near cache, and the writes and deletes that outdate them.

The value is stored behind this cache, so the core cannot refuse it in the step that stores it. A write by this process
supersedes the turn of the load that computes the value: see ``turns``.

The watch of the turn would not do: it also breaks if the connection to the store begins to report writes, or reports
one by this process from before the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wheelcache.engine.calls import Engine
from wheelcache.engine.turns import Turn
from wheelcache.engine.write_watcher import WritesSince


class Computation:
    """The computation of the value of one key.

    Args:
        turn: the turn of the load that computes the value.
    """

    __slots__ = ("_is_refused", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._is_refused = False

    def outdate(self) -> None:
        self._is_refused = True

    @property
    def is_outdated(self) -> bool:
        """Whether a caller has begun to write or delete the key since then. Once True, it stays True."""
        turn = self._turn
        # A turn that is not open cannot be superseded: it has ended, or it is ALONE.
        return self._is_refused or turn.is_superseded or turn.turns.open.get(turn.key) is not turn


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

    __slots__ = ("_loads",)

    def __init__(self, engine: Engine) -> None:
        self._loads = engine.loads()

    def led(self, key: Any, turn: Turn | None = None) -> Computation:
        """Return the computation of ``key`` by the load apart that the running code leads: by ``turn``, if that is
        known."""
        return Computation(self._loads.led_apart(key) if turn is None else turn)

    def outdate_where(self, select: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Note that the keys that ``select`` returns, given those of the loads apart, will be written or deleted."""
        self._loads.supersede_apart(select(self._loads.apart_in_progress()))
