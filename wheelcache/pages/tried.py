"""A run of a rehearsal: its response is sent as it is, and for some of them, all obstacles of its page are found.

If the page is not stored, the run goes on recording the body, as if rules had removed the obstacles.
"""

from __future__ import annotations

import logging

from wheelcache.engine.turns import Turn
from wheelcache.pages.headers import Headers
from wheelcache.pages.needs import Obstacles
from wheelcache.pages.notes import UNEXPECTED
from wheelcache.pages.obstacles import find_obstacles, where
from wheelcache.pages.page import Page, Reply
from wheelcache.pages.reads import Reads
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.rehearsed import Begin
from wheelcache.pages.rehearsing import Tried
from wheelcache.pages.request import Request
from wheelcache.pages.rules import Response
from wheelcache.pages.run import Run
from wheelcache.pages.storing import Storing

logger = logging.getLogger("wheelcache")


class TriedRun(Run):
    """A run of a rehearsal.

    Attributes:
        begin_rerun: begins a run whose answer is compared with the page; None if there is no client.
    """

    is_rehearsed = True

    __slots__ = ("_chunks_of_all", "_has_ended", "_is_complete", "_length", "_response", "_why_not", "begin_rerun")

    def __init__(
        self, storing: Storing, request: Request, key: str, why: str, stored: Page | None, turn: Turn | None
    ) -> None:
        super().__init__(storing, request, key, why, stored, turn)
        self.begin_rerun: Begin | None = None
        self._response: Response | None = None
        self._chunks_of_all: list[bytes] = []
        self._length = 0
        self._is_complete = self._has_ended = False
        # Why the page is not stored, while the run goes on.
        self._why_not: Refusal | None = None

    @property
    def outlives_its_client(self) -> bool:
        return self._why_not is None

    def _traces(self, storing: Storing) -> Reads | None:
        return self.request.traces or storing.rehearsal.traces()

    def started(self, status: int, reason: str, headers: Headers) -> Reply | None:
        self._response = self._storing.without_lost(self.request, Response(status, headers))
        return super().started(status, reason, headers)

    def chunk(self, data: bytes) -> None:
        self._length += len(data)
        if self._length > self._storing.options.max_body:
            # The response may have no end.
            self._chunks_of_all.clear()
        elif self.notes.traces is not None:
            self._chunks_of_all.append(data)
        if self._why_not is None:
            super().chunk(data)

    def ended(self) -> None:
        self._is_complete = self._has_ended = True
        if not self._gave_up():
            super().ended()

    def closed(self) -> None:
        self._has_ended = True
        if not self._gave_up():
            super().closed()

    def give_up(self, why: Refusal) -> None:
        self._has_ended = True
        if not self._gave_up():
            super().give_up(why)

    def abandoned(self) -> None:
        self._has_ended = True
        if not self._gave_up():
            super().abandoned()

    def keep_unsent(self, size: int) -> bool:
        return self._why_not is None and super().keep_unsent(size)

    def _gave_up(self) -> bool:
        """Return whether the page was refused before the end of the response, and report this."""
        why, self._why_not = self._why_not, None
        if why is None:
            return False
        self.is_recording = False
        self._refused(why)
        return True

    def _report(self, why: Refusal | None) -> None:
        rehearsal, notes = self._storing.rehearsal, self.notes
        if why is None:
            rehearsal.stored(self.request, notes, self.page, self.begin_rerun)
            if self.page is not None and notes.traces is not None:
                self._try(None)
        elif notes.traces is None or self._response is None:
            rehearsal.not_stored(notes.view, self.request, why)
        elif self._has_ended:
            self._refused(why)
        else:
            self._why_not = why
            self.is_recording = True

    def _refused(self, why: Refusal) -> None:
        """Report a page that is not stored, with all its obstacles."""
        place = where(why, self.notes, self._storing.options.sessions.names)
        found = self._try(why)
        self._storing.rehearsal.not_stored(self.notes.view, self.request, why, place, found)

    def _try(self, why: Refusal | None) -> Obstacles | None:
        """Find the obstacles of the page, and compare its answer with those to nobody."""
        response, notes, rehearsal = self._response, self.notes, self._storing.rehearsal
        if response is None:
            return None
        is_known = self._is_complete and self._length <= self._storing.options.max_body
        body = b"".join(self._chunks_of_all) if is_known else None
        self._chunks_of_all = []
        try:
            known = rehearsal.lost_by(notes.view)
            found = find_obstacles(self._storing, self.request, notes, response, body, why, known)
            run = Tried(self.request, notes, found, response, body)
            rehearsal.tried(run, self.begin_rerun, is_refused=why is not None)
        except UNEXPECTED:
            logger.exception("The obstacles of a page were not found.")
            return None
        return found
