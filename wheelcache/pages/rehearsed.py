"""A run of the application whose answer is compared with a stored page: see ``rehearsal``.

It has the interface of ``run.Run`` towards the drivers. Nothing is stored, and no header is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wheelcache.pages.cache_status import NO_ANNOUNCEMENT, Announcement
from wheelcache.pages.comparison import Heard
from wheelcache.pages.headers import Headers
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.options import Options
from wheelcache.pages.page import Reply
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.rehearsal import Answer, answer_of
from wheelcache.pages.request import Request
from wheelcache.pages.site import Site

Begin = Callable[["Rehearsed"], object]
"""Begins a run without a client."""


class Rehearsed:
    """A run whose answer is compared.

    Args:
        announcement: headers that the driver adds to the answer.
        lost: cookies that the answer may set.

    Attributes:
        heard: a function that receives the answer, once.
        request, notes, has_client, is_recording, announcement: as those of ``Run``.
        begin_rerun: a function that the driver sets: begins another run, without a client.
    """

    conditions: Final = None
    headers: Final = None
    is_awaited: Final = False
    outlives_its_client: Final = False

    def __init__(
        self,
        request: Request,
        options: Options,
        site: Site,
        announcement: Announcement = NO_ANNOUNCEMENT,
        *,
        has_client: bool = True,
        lost: frozenset[bytes] = frozenset(),
    ) -> None:
        self.request = request
        self.notes = PageNotes(options.ignored, most_blanked=None if site.tokens is None else options.max_body)
        self.notes.is_rerun = not has_client
        self.has_client = has_client
        self.announcement = announcement
        self.is_recording = True
        self.begin_rerun: Begin = _do_nothing
        self._options = options
        self._lost = lost
        self.heard: Heard = _do_nothing
        self._status = 0
        self._headers: Headers = []
        self._chunks: list[bytes] = []
        self._size = 0

    def started(self, status: int, reason: str, headers: Headers) -> Reply | None:
        self._status, self._headers = status, headers
        return None

    def chunk(self, data: bytes) -> None:
        if not self.is_recording:
            return
        self._size += len(data)
        if self._size > self._options.max_body:
            self._end("longer than max_body")
        else:
            self._chunks.append(data)

    def ended(self) -> None:
        if not self.is_recording:
            return
        if not self._status:
            self._end("the application did not start a response")
            return
        body, notes, options = b"".join(self._chunks), self.notes, self._options
        # A hit sets the cookie of the tokens, too, if its page has any.
        lost = () if options.lost is None else options.lost.of(self.request.host, self.request.path)
        ignored, most = notes.token_cookies.union(lost, self._lost), options.max_body
        self._end(answer_of(self._status, self._headers, body, ignored=ignored, most=most, tokens=notes.tokens))

    def closed(self) -> None:
        self._end("the response did not end")

    def failed(self) -> Reply | None:
        self._end("the application failed")
        return None

    def give_up(self, why: Refusal) -> None:
        self._end(why.detail)

    def abandoned(self) -> None:
        self._end("the run was abandoned")

    def keep_unsent(self, size: int) -> bool:
        """Return False: the application waits for its client, as without the cache."""
        return False

    def sent(self, size: int) -> None:
        """Do nothing: no bytes were kept."""

    def _end(self, answer: Answer | str) -> None:
        """Report the answer, or why there is none."""
        if self.is_recording:
            self.is_recording = False
            self._chunks = []
            self.heard(answer)


def _do_nothing(given: object) -> None:
    """Do nothing: no other function was set."""
