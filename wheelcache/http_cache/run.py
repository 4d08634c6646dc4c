"""One run of the application, and the use of its response. It does no I/O, so that both drivers share it.

A driver reports the events of the response in order: ``started``, ``chunk`` for each piece of the body, and ``ended``
at its regular end; or ``closed``, ``failed``, ``give_up`` or ``abandoned``. ``started`` and ``failed`` may return a
``Reply``, which the driver sends in place of the application's response.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from wheelcache.http_cache import rules
from wheelcache.http_cache.headers import Headers, single
from wheelcache.http_cache.notes import PageNotes
from wheelcache.http_cache.page import Page
from wheelcache.http_cache.replies import Reply
from wheelcache.http_cache.request import Request
from wheelcache.http_cache.stored_pages import PURGED

if TYPE_CHECKING:
    from wheelcache.http_cache.pages import Pages

logger = logging.getLogger("wheelcache")

COMPLETE: Final = 200

LASTING: Final = frozenset(["max_body", "file", "write", "extension", "trailers"])
"""Reasons that will hold for the next response of the page as well, although its headers do not show them."""

FORWARDED_MISS: Final = (b"cache-status", b"wheelcache; fwd=miss")
FORWARDED_STALE: Final = (b"cache-status", b"wheelcache; fwd=stale")


class Run:
    """A run of the application that may end with a stored page.

    Attributes:
        request: the request of the client.
        key: the key of the page or the variant that the request selects.
        notes: the notes that the application may make.
        stored: a stale page that the run validates or replaces; None if there is none.
        leads: whether other requests may wait for this run.
        has_client: whether the response is sent to a client; False for a renewal in the background.
        conditions: headers that replace the client's ``CONDITIONS``; None if the application gets the client's.
        announcement: headers that the driver adds to the application's response.
        is_recording: whether the response may still be stored, so that the driver must report its body.
    """

    __slots__ = (
        *("_began", "_chunks", "_moment", "_page", "_pages", "_promised", "_size", "announcement", "conditions"),
        *("has_client", "is_recording", "key", "leads", "notes", "request", "stored"),
    )

    def __init__(
        self, pages: Pages, request: Request, key: str, stored: Page | None, *, leads: bool, is_marked: bool
    ) -> None:
        self.request = request
        self.key = key
        self.notes = PageNotes()
        self.stored = stored
        self.leads = leads
        self.has_client = True
        self.conditions: Headers | None = None
        self.announcement: Headers = []
        self.is_recording = True
        self._pages = pages
        self._began = pages.clock()
        self._moment = pages.stored.moment(request.key)
        self._page: Page | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._promised: int | None = None
        if not is_marked:
            self.conditions = [] if stored is None else rules.validators(stored.headers)
            if pages.shows_status:
                self.announcement = [FORWARDED_MISS if stored is None else FORWARDED_STALE]

    def started(self, status: int, reason: str, headers: Headers) -> Reply | None:
        """Handle the beginning of the response. Return a reply to send in its place, or None to send it."""
        pages, stored = self._pages, self.stored
        now = pages.clock()
        if stored is not None:
            if status == 304 and self.conditions:
                return self._validated(stored, headers, now)
            if status in rules.STALE_ERRORS and stored.freshness.may_replace_an_error(stored.age(now)):
                return self._stale(stored, now)
        page = pages.page_of(self.request, self.notes, status, reason, headers, now - self._began)
        if isinstance(page, str):
            if stored is not None and status not in rules.SERVER_ERRORS:
                # The stored page is no longer the application's answer.
                pages.forget(self.key)
            self._end(refusal=page, marks=True)
            return None
        self._page = page
        length = single(page.headers, b"content-length")
        self._promised = None if length is None else int(length)
        if self.conditions is not None and status == COMPLETE:
            return pages.unchanged(page, self.request)
        return None

    def chunk(self, data: bytes) -> None:
        """Handle a piece of the body."""
        if not self.is_recording:
            return
        self._size += len(data)
        if self._size > self._pages.policy.max_body:
            self.give_up("max_body")
        elif data:
            self._chunks.append(data)
            if self._size == self._promised:
                # Waiting requests need not wait until the client of this one has read it.
                self.ended()

    def ended(self) -> None:
        """Handle the regular end of the response: store it, and release the waiting requests."""
        if not self.is_recording:
            return
        page = self._page
        if page is None:
            self.give_up("no response")
            return
        if self._promised not in (None, self._size):
            self.give_up("content-length")
            return
        page.fill(b"".join(self._chunks))
        refusal = self._pages.store(self.request, page, self.notes, self._moment)
        self._end(refusal=refusal, marks=refusal != PURGED)

    def closed(self) -> None:
        """Handle a response that the server closed before its end, as it may once all promised bytes have arrived."""
        if self._promised == self._size:
            self.ended()
        else:
            self.abandoned()

    def failed(self) -> Reply | None:
        """Handle an exception before the beginning of the response. Return a stale page to send instead, or None."""
        stored, now = self.stored, self._pages.clock()
        if stored is not None and stored.freshness.may_replace_an_error(stored.age(now)):
            logger.warning("The application raised an exception; a stale page is sent.", exc_info=True)
            return self._stale(stored, now)
        self._end()
        return None

    def give_up(self, reason: str) -> None:
        """Stop recording, because the response cannot be stored for this reason."""
        if self.is_recording:
            self._end(refusal=reason, marks=reason in LASTING)

    def abandoned(self) -> None:
        """Handle the cancellation of the run. If other requests wait for its page, one of them runs the application."""
        if self.leads:
            self.leads = False
            self._pages.flights.abandon(self.key)
        self.is_recording = False

    @property
    def fields(self) -> frozenset[bytes]:
        """The request headers and cookies on which the stored page depends."""
        return frozenset() if self.stored is None else self.stored.fields

    def _validated(self, stored: Page, headers: Headers, now: float) -> Reply:
        pages = self._pages
        pages.figures.count("revalidated")
        page = pages.updated(stored, headers, now - self._began)
        self._end(refusal=pages.store(self.request, page, self.notes, self._moment))
        counted_as = "fresh" if self.has_client else None
        return pages.reply(page, self.request, pages.clock(), counted_as, b"; detail=validated")

    def _stale(self, stored: Page, now: float) -> Reply:
        self._end()
        return self._pages.reply(stored, self.request, now, "stale" if self.has_client else None, b"; detail=error")

    def _end(self, *, refusal: str | None = None, marks: bool = False) -> None:
        """End the recording, and release the waiting requests.

        Args:
            refusal: the reason why the response is not stored; None if it is.
            marks: whether to mark the page, so that the next requests for it do not wait for each other.
        """
        pages = self._pages
        self.is_recording = False
        self._chunks = []
        if refusal is not None:
            pages.refused(refusal)
        if self.leads:
            self.leads = False
            if refusal is not None and marks:
                pages.marks.add(self.key, refusal, pages.clock(), is_lasting=refusal in LASTING)
            pages.flights.finish(self.key)
