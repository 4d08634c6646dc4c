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
        serves: whether stored pages answer requests.
        looked_up: the method of requests for which a driver looks a page up without a decision; None if there is no
            such request.
    """

    __slots__ = ("looked_up", "name", "serves")

    def __init__(self, name: str) -> None:
        self.change(name)

    def change(self, name: str) -> None:
        self.name = name
        self.serves = name == ON
        self.looked_up = None if name == OFF else "GET"
