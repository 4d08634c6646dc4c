"""What an HTTP cache does with its pages: serve them, only rehearse, or nothing. Operators can change it."""

from __future__ import annotations

from typing import Final

ON: Final = "on"
REHEARSE: Final = "rehearse"
OFF: Final = "off"
MODES: Final = (OFF, REHEARSE, ON)


class Mode:
    """The mode of one cache.

    Attributes:
        name: one of ``MODES``.
        served: the method of requests that a driver may answer from a stored page without a decision; None if there is
            no such request.
    """

    __slots__ = ("name", "served")

    def __init__(self, name: str) -> None:
        self.change(name)

    def change(self, name: str) -> None:
        self.name = name
        self.served = "GET" if name == ON else None
