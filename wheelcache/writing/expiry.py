"""The core as a wheel that the wheel thread advances: expired entries leave, and the listener is told."""

from __future__ import annotations

from collections.abc import Callable

from wheelcache.core.contract import Core, Removals
from wheelcache.writing.removal_listener import RemovalListener


class Expiry:
    """See ``runtime.wheel_driver.Wheel``."""

    __slots__ = ("_core", "_listener", "_name")

    def __init__(self, name: str, core: Core, listener: RemovalListener) -> None:
        self._name = name
        self._core = core
        self._listener = listener

    def __repr__(self) -> str:
        return f"<Cache {self._name!r}, {len(self._core)} entries>"

    @property
    def next_due(self) -> float:
        return self._core.next_due

    def take_due(self, budget: int) -> Removals | None:
        removed = self._listener.list()
        self._core.advance(budget, removed)
        return removed

    def tell(self, done: Removals | None) -> None:
        self._listener.tell(done)

    def use_clock(self, clock: Callable[[], float]) -> None:
        self._core.use_clock(clock)
