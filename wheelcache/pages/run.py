"""One run of the application, and the use of its response. It does no I/O, so that both drivers share it.

A driver reports the events of the response in order: ``started``, ``chunk`` for each piece of the body, and ``ended``
at its regular end; or ``closed``, ``failed``, ``give_up`` or ``abandoned``. ``started`` and ``failed`` may return a
``Reply``, which the driver sends in place of the application's response.
"""

from __future__ import annotations

import logging
from typing import Final

from wheelcache.engine.keys import NO_VIEW
from wheelcache.engine.turns import End, Turn
from wheelcache.pages import rules
from wheelcache.pages.blanks import GZIP, content_coding, for_one_visitor
from wheelcache.pages.cache_status import NO_ANNOUNCEMENT
from wheelcache.pages.headers import Headers
from wheelcache.pages.marks import new_mark
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.page import Page, Reply, not_modified
from wheelcache.pages.reads import Reads
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.request import Request
from wheelcache.pages.rules import Response
from wheelcache.pages.stored_pages import PURGED
from wheelcache.pages.storing import TOO_LONG, Storing
from wheelcache.runtime.clock import moment

logger = logging.getLogger("wheelcache")

FILE: Final = refusal("file", "sent with wsgi.file_wrapper")
WRITE: Final = refusal("write", "sent with the write function of WSGI")
EXTENSION: Final = refusal("extension", "sent with an extension of ASGI")
TRAILERS: Final = refusal("trailers", "has trailers")
LASTING: Final = frozenset([TOO_LONG, FILE, WRITE, EXTENSION, TRAILERS])
"""Reasons that will hold for the next response of the page as well, although its headers do not show them."""

BODY: Final = refusal("body", "request with a body")
ERROR: Final = refusal("error", "the application failed")
ERROR_REPLACED: Final = refusal("error", "error")
INCOMPLETE: Final = refusal("incomplete", "incomplete response")
CHANGED: Final = refusal("csrf", "CSRF token in a body that is changed inside the cache")
NO_RESPONSE: Final = refusal("no response")
WRONG_LENGTH: Final = refusal("content-length", "the body is shorter or longer than its Content-Length")


class Forward:
    """A request that the application answers, and whose response is not stored.

    Args:
        why: the parameter ``fwd`` of Cache-Status.
        why_not: the reason why it is not stored.

    Attributes:
        announcement: headers that the driver adds to the application's response.
        is_watched: whether the driver must report the beginning of the response.
    """

    __slots__ = ("_request", "_storing", "announcement", "is_watched")

    def __init__(self, storing: Storing, request: Request, why: str, why_not: Refusal) -> None:
        self._storing = storing
        self._request = request
        self.is_watched = why == "method" or request.loses_cookies
        self.announcement = storing.options.status.forwarded(why, why_not)
        if request.traces is not None:
            storing.report(request, why_not)

    def started(self, status: int, headers: Headers) -> None:
        """Handle the beginning of a response that ``is_watched``."""
        self._storing.invalidate(self._request, status, headers)
        if self._request.loses_cookies:
            self._storing.note_lost(self._request, Response(status, headers))


class Run:
    """A run of the application that may end with a stored page.

    Args:
        key: the key of the page or the variant that the request selects.
        why: the parameter ``fwd`` of Cache-Status.
        stored: a stale page that the run validates or replaces; None if there is none.
        turn: the turn that other requests may wait for; None if they do not wait for this run.

    Attributes:
        request: the request of the client.
        notes: the notes that the application may make.
        has_client: whether the response is sent to a client; False for a renewal in the background.
        conditions: headers that replace the client's ``CONDITIONS``; None if the application gets the client's.
        announcement: headers that the driver adds to the application's response.
        is_recording: whether the response may still be stored, so that the driver must report its body.
        is_rehearsed: whether the response is sent as it is, although its page may be stored: see ``tried``.
        cause: why there was no page when the run began, if it counts as a miss; otherwise None.
        page: the page that the response becomes; None before its beginning, or if it is not stored.
        headers: the headers that the driver sends instead of the application's; None to send these.
    """

    is_rehearsed = False

    __slots__ = (
        *("_began", "_chunks", "_seconds", "_since", "_size", "_storing", "_why"),
        *("announcement", "cause", "conditions", "has_client", "headers", "is_recording", "key", "notes", "page"),
        *("request", "stored", "turn"),
    )

    def __init__(
        self, storing: Storing, request: Request, key: str, why: str, stored: Page | None, turn: Turn | None
    ) -> None:
        self.request = request
        self.key = key
        most = None if storing.site.tokens is None else storing.options.max_body
        self.notes = PageNotes(storing.options.ignored, self._traces(storing), most_blanked=most)
        self.stored = stored
        self.turn = turn
        self.has_client = True
        self.announcement = NO_ANNOUNCEMENT
        self.is_recording = True
        self.headers: Headers | None = None
        self.conditions: Headers | None = None
        if stored is not None:
            self.conditions = rules.validators(stored.headers)
        elif turn is not None:
            self.conditions = []
        self._storing = storing
        self._why = why
        self.cause: int | None = None
        self._began = storing.clock()
        self._seconds: float | None = None
        self._since = moment()
        self.page: Page | None = None
        self._chunks: list[bytes] = []
        self._size = 0

    def started(self, status: int, reason: str, headers: Headers) -> Reply | None:
        """Handle the beginning of the response. Return a reply to send in its place, or None to send it."""
        storing, stored = self._storing, self.stored
        now = storing.clock()
        # A client that reads slowly does not make the view slow.
        self._seconds = now - self._began
        response = Response(status, headers)
        if storing.options.lost is not None:
            storing.note_lost(self.request, response)
        if stored is not None:
            if status == 304 and self.conditions:
                return self._validated(stored, headers, now)
            if status in rules.STALE_ERRORS and stored.freshness.may_replace_an_error(stored.age(now)):
                return self._stale(stored, now, status)
        kept = response if storing.options.lost is None else storing.without_lost(self.request, response)
        if kept is not response and not self.is_rehearsed:
            self.headers = kept.headers
        page = storing.page_of(self.request, self.notes, kept, reason, self._seconds)
        if isinstance(page, Refusal):
            if status in rules.SERVER_ERRORS:
                self._end(page, marks=True)
            else:
                self._refuse(page)
            return None
        self.announcement = storing.options.status.forwarded(self._why)
        self.page = page
        if page.blanks is not None and not self.is_rehearsed:
            self.headers = for_one_visitor(kept.headers)
        if self.conditions is not None and not self.request.is_plain:
            unchanged = not_modified(page, self.request, storing.wall())
            if unchanged is not None:
                return Reply(304, unchanged.reason, unchanged.headers + self.announcement.headers, b"")
        return None

    def chunk(self, data: bytes) -> None:
        """Handle a piece of the body."""
        if not self.is_recording:
            return
        self._size += len(data)
        if self._size > self._storing.options.max_body:
            self.give_up(TOO_LONG)
        elif data:
            self._chunks.append(data)
            if self.page is not None and self._size == self.page.length:
                # Waiting requests need not wait until the client of this one has read it.
                self.ended()

    def ended(self) -> None:
        """Handle the regular end of the response: store it, and release the waiting requests."""
        if not self.is_recording:
            return
        page = self.page
        if page is None:
            self.give_up(NO_RESPONSE)
            return
        if page.length not in (None, self._size):
            self.give_up(WRONG_LENGTH)
            return
        body, tokens = b"".join(self._chunks), self._storing.site.tokens
        if page.blanks is not None:
            blanked = self.notes.blanked
            if blanked is None or blanked.body != body:
                self.give_up(CHANGED)
                return
            body = page.blanks.body
        if tokens is not None:
            is_compressed = page.blanks is None and content_coding(page.headers) == GZIP
            why = tokens.refused(body, is_compressed=is_compressed)
            if why is not None:
                self.give_up(why)
                return
        page.fill(body)
        self._store(page)

    def _store(self, page: Page) -> Refusal | None:
        why = self._storing.store(self.request, page, self.notes, self._since)
        self._end(why, marks=why != PURGED)
        return why

    def closed(self) -> None:
        """Handle a response that the server closed before its end, as it may once all promised bytes have arrived."""
        if self.page is not None and self.page.length == self._size:
            self.ended()
        else:
            self.abandoned()

    def failed(self) -> Reply | None:
        """Handle an exception before the beginning of the response. Return a stale page to send instead, or None."""
        stored, now = self.stored, self._storing.clock()
        if stored is not None and stored.freshness.may_replace_an_error(stored.age(now)):
            logger.warning("The application raised an exception; a stale page is sent.", exc_info=True)
            return self._stale(stored, now, has_failed=True)
        self._end(None, has_failed=True)
        return None

    def give_up(self, why: Refusal) -> None:
        """Stop recording, because the response cannot be stored for this reason."""
        if self.is_recording:
            # One variant may be compressed, and another one too long.
            varies = self.page is not None and self.page.fields != frozenset()
            self._end(why, marks=why in LASTING, is_lasting=not varies)

    def abandoned(self) -> None:
        """Handle the cancellation of the run. If other requests wait for its page, one of them runs the application."""
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.end(End.AGAIN)
        if self.is_recording:
            self.is_recording = False
            self._storing.stored.count_run(self.key, self.cause, None, self.view)

    def keep_unsent(self, size: int) -> bool:
        """See ``StoredPages.keep_unsent``."""
        return self._storing.stored.keep_unsent(size)

    def sent(self, size: int) -> None:
        self._storing.stored.sent(size)

    @property
    def fields(self) -> frozenset[bytes]:
        """The request headers and cookies on which the stored page depends."""
        return frozenset() if self.stored is None else self.stored.fields

    @property
    def is_awaited(self) -> bool:
        """Whether other requests have waited for the page, and may still do so."""
        return self.turn is not None and self.turn.is_joined

    def _validated(self, stored: Page, headers: Headers, now: float) -> Reply:
        storing = self._storing
        storing.figures.count("revalidated")
        page, why = storing.updated(self.request, stored, headers, now - self._began)
        if why is None:
            why = self._store(page)
        else:
            self._refuse(why)
        status = storing.options.status.forwarded(self._why, why, 304)
        counted_as = "fresh" if self.has_client else None
        return storing.reply(page, self.request, storing.clock(), counted_as, status.headers)

    def _refuse(self, why: Refusal) -> None:
        """End the recording of a response that must not be stored."""
        if self.stored is not None and why.leaves_mark and why.cookie is None:
            # The stored page is no longer the application's answer.
            self._storing.stored.forget(self.key)
        self._end(why, marks=True)

    def _stale(self, stored: Page, now: float, failed: int | None = None, *, has_failed: bool = False) -> Reply:
        self._end(None, has_failed=has_failed)
        storing, counted_as = self._storing, "stale" if self.has_client else None
        status = storing.options.status.forwarded(self._why, ERROR_REPLACED, failed)
        return storing.reply(stored, self.request, now, counted_as, status.headers)

    @property
    def outlives_its_client(self) -> bool:
        """Whether the run goes on if its client disconnects."""
        return True

    def _traces(self, storing: Storing) -> Reads | None:
        """Return the record of the reads of the run; None to make none."""
        return self.request.traces

    def _report(self, why: Refusal | None) -> None:
        """Report the end of the recording to a rehearsal."""

    @property
    def view(self) -> str:
        """The name of the view of the page, or NO_VIEW."""
        return self.notes.view or (self.stored is not None and self.stored.view) or NO_VIEW

    def _end(
        self, why: Refusal | None, *, marks: bool = False, is_lasting: bool = False, has_failed: bool = False
    ) -> None:
        """End the recording, and release the waiting requests.

        Args:
            why: the reason why the response is not stored; None if it is.
            marks: whether to mark the page, so that the next requests for it do not wait for each other.
            is_lasting: see ``new_mark``.
            has_failed: whether the application raised an exception.
        """
        storing = self._storing
        if self.is_recording:
            self.is_recording = False
            seconds = storing.clock() - self._began if self._seconds is None else self._seconds
            storing.stored.count_run(self.key, self.cause, seconds, self.view, has_failed=has_failed)
        self._chunks = []
        if why is not None:
            self.announcement = storing.options.status.forwarded(self._why, why)
            storing.refused(why, self.request, self.view)
        self._report(why)
        turn, self.turn = self.turn, None
        if turn is not None or self.is_rehearsed:
            if why is not None and marks and why.leaves_mark:
                mark = new_mark(why, storing.clock(), is_lasting=is_lasting, view=self.notes.view)
                storing.stored.marks.add(self.key, mark)
            if turn is not None:
                turn.end(End.EACH)
