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
        fast_method: the method of requests for which drivers look a page up before any decision; None to disable this
            fast path.
    """

    __slots__ = ("fast_method", "name", "serves")

    def __init__(self, name: str) -> None:
        self.change(name)

    def change(self, name: str) -> None:
        self.name = name
        self.serves = name == ON
        self.fast_method = None if name == OFF else "GET"
