"""The trust in all copies, which ends when the connection that reports writes is lost."""

from __future__ import annotations

from array import array


class TrustEpoch:
    """The number of the present epoch, as the word of trust of a core: see ``core.contract``.

    An odd epoch lasts as long as all writes are reported to this process. Its end makes all entries suspect in one
    step: they may be old, and reads miss them. They stay in memory until they are replaced, deleted or expire, for
    callers that cannot get another value. A value that is read in another epoch, or between two of them, is suspect as
    well.

    Attributes:
        word: the number.
        is_refused: whether the store refuses to report writes.
    """

    __slots__ = ("is_refused", "word")

    def __init__(self) -> None:
        self.word = array("Q", [0])
        self.is_refused = False

    @property
    def is_notified(self) -> bool:
        """Whether writes are reported to this process."""
        return self.word[0] % 2 == 1

    def end(self) -> None:
        """End the epoch, without a lock."""
        self.word[0] = (self.word[0] | 1) + 1

    def begin(self) -> None:
        """Begin another epoch, after ``end``."""
        self.word[0] |= 1
        self.is_refused = False
