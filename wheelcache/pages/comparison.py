"""One comparison of a rehearsal: when the application runs again, and when the outcome is known. It does no I/O.

Clocks look like personal words if two reruns fall into the same second, so the second rerun waits for ``PAUSE``. If the
page still looks wrong, more reruns follow: a list in random order may be the same by chance. For clocks that show only
minutes, a wrong page is compared again after ``LATER``, and removed from the count if a clock caused the difference. If
all words that differ look like times, it is not counted before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from wheelcache.pages.rehearsal import EQUAL, Answer, Difference, Kind, compare, unclear

SOON: Final = 0.1
"""Seconds. The server sends the answer to the visitor first."""

PAUSE: Final = 1.2
"""Seconds: longer than the second of a clock."""

LATER: Final = 61.0
"""Seconds: longer than the minute of a clock."""

RERUNS: Final = 2
"""If they agree with the visitor, or with each other."""

MOST_RERUNS: Final = 6
"""A page that shows eight entries in random order looks wrong in 57% of the comparisons after two reruns, in 1% after
four, and in none of 300 after six."""

Heard = Callable[[Answer | str], object]
"""Receives the answer of a run, or the reason why there is none that can be compared."""


class Comparison:
    """The comparison of an answer with a stored page.

    Args:
        stored: the stored page.
        is_keyed: whether the page depends on a cookie.
        is_new: whether the page was stored just now, so that the visitor got this page.
        rerun: begins a run after some seconds, or reports at once that none is possible. It receives the seconds, the
            function for the answer, and the bytes that all answers take.
        repeat: begins a run with the request of the visitor, as ``rerun`` does; None if there is none. If its answer is
            like those of the reruns, the time has made the difference, and not the visitor.
        report: receives the outcome, and the former one if it is a correction.
        end: called once, when nothing more follows.
    """

    def __init__(
        self,
        stored: Answer,
        *,
        is_keyed: bool,
        is_new: bool,
        rerun: Callable[[float, Heard, int], object],
        repeat: Callable[[float, Heard, int], object] | None = None,
        report: Callable[[Difference, Difference | None], object],
        end: Callable[[], object],
    ) -> None:
        self._stored = stored
        self._visitor = stored
        self._is_keyed = is_keyed
        self._is_new = is_new
        self._begin_rerun = rerun
        self._repeat = repeat
        self._report = report
        self._end = end
        self._reruns: list[Answer] = []
        self._outcome: Difference | None = None
        self._is_late = False

    def begin(self, visitor: Answer | str) -> None:
        """Begin with the answer to the visitor."""
        if isinstance(visitor, str):
            self._finish(unclear(visitor))
        elif visitor == self._stored and not self._is_new:
            self._finish(EQUAL)
        elif visitor.cookies != self._stored.cookies:
            # The visitor would not have got them, and the application may rely on them.
            of_page, of_visitor = (each.cookies.decode("latin-1") for each in (self._stored, visitor))
            self._finish(Difference(Kind.WRONG, 0, of_page, of_visitor, header="set-cookie"))
        else:
            self._visitor = visitor
            self._rerun(SOON)

    def _rerun(self, delay: float) -> None:
        size = self._stored.size + (1 + RERUNS) * max(self._stored.size, self._visitor.size)
        self._begin_rerun(delay, self._heard, size)

    def _heard(self, answer: Answer | str) -> None:
        if isinstance(answer, str):
            self._finish(self._outcome or unclear(answer))
            return
        if answer.status >= 400 and answer.status not in (self._stored.status, self._visitor.status):
            # It needs something that only visitors send, such as the name of a browser.
            self._finish(self._outcome or unclear(f"a request without the visitor gets the status {answer.status}"))
            return
        self._reruns.append(answer)
        if self._is_new and answer == self._stored:
            self._finish(EQUAL)
            return
        number = len(self._reruns)
        if number < RERUNS:
            self._rerun(PAUSE)
            return
        found = compare(self._stored, self._visitor, self._reruns, is_keyed=self._is_keyed)
        if found.kind is not Kind.WRONG or self._outcome is not None or self._is_late:
            self._finish(found)
        elif found.is_time:
            # Probably a clock that shows minutes.
            self._is_late = True
            self._rerun(LATER)
        elif number < MOST_RERUNS:
            self._rerun(0.0)
        elif self._repeat is not None:
            self._repeat(0.0, partial(self._repeated, found), 0)
        else:
            self._wrong(found)

    def _repeated(self, found: Difference, answer: Answer | str) -> None:
        """Go on with the answer to a repeated request of the visitor."""
        if isinstance(answer, Answer):
            again = compare(answer, answer, self._reruns, is_keyed=False)
            if again.kind is Kind.NOISE:
                self._finish(found._replace(kind=Kind.OUTDATED))
                return
        self._wrong(found)

    def _wrong(self, found: Difference) -> None:
        """Report a wrong page, and compare it again later."""
        self._report(found, None)
        self._outcome = found
        self._rerun(LATER)

    def _finish(self, found: Difference) -> None:
        if found != self._outcome:
            self._report(found, self._outcome)
        self._end()
