"""Runs of the application whose answers are compared with a stored page, and the results: see ``rehearsal``.

These runs have the interface of ``run.Run`` towards the drivers. Nothing is stored, and no header is changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from wheelcache.http_cache.cache_status import NO_ANNOUNCEMENT, Announcement
from wheelcache.http_cache.headers import Headers, without
from wheelcache.http_cache.notes import PageNotes
from wheelcache.http_cache.page import Page
from wheelcache.http_cache.reads import Reads
from wheelcache.http_cache.reasons import Refusal, refusal
from wheelcache.http_cache.rehearsal import EQUAL, Answer, Difference, answer_of, compare
from wheelcache.http_cache.replies import Reply
from wheelcache.http_cache.request import Request, is_conditional
from wheelcache.http_cache.settings import Settings
from wheelcache.runtime.shared_objects import lazy_lock
from wheelcache.turns import Turn

DEFAULT_SHARE: Final = 0.05
"""The share of compared answers if an operator begins a rehearsal."""

MOST_RERUNS: Final = 8
"""Reruns that wait or run at the same time."""

MOST_ROWS: Final = 2_000
"""Views, with the outcomes of each."""

LONGEST_URL: Final = 200

REHEARSAL: Final = refusal("rehearsal", "rehearsal: a hit otherwise")

NO_VIEW: Final = "-"

HITS, STORED, NOT_STORED = "hits", "stored", "not stored"
"""The kinds of counts, in addition to those of ``rehearsal.Kind``: requests that would have been hits, those whose page
was stored, and those whose page was not, with a reason. Together, they are the visits."""

Heard = Callable[[Answer | None], object]
"""Receives the answer of a run; None if it did not end, or is too long."""


class Count(NamedTuple):
    """A count, with the last example of it.

    Attributes:
        number: how often it happened.
        example: values for people: the URL, the line and both texts, or the reason.
    """

    number: int
    example: dict[str, Any]


Counts = dict[tuple[str, str], Count]
"""By view and kind."""


class Rehearsal:
    """Counts the outcomes of a rehearsal, and decides which requests are compared.

    Args:
        share: the share of the requests that would have been hits whose answers are compared.
        settings: the options of the cache.
        most: the maximum size of a body that is compared, in bytes.
    """

    def __init__(self, share: float, settings: Settings, most: int) -> None:
        self._share = share
        self._settings = settings
        self._most = most
        self._lock = lazy_lock()
        self._counts: Counts = {}
        self._reruns = 0

    def count(self, view: str | None, kind: str, example: dict[str, Any] | None = None) -> None:
        """Count an outcome for a view."""
        key = view or NO_VIEW, kind
        with self._lock.get():
            found = self._counts.get(key)
            if found is None:
                if len(self._counts) >= MOST_ROWS:
                    return
                found = Count(0, {})
            self._counts[key] = Count(found.number + 1, found.example if example is None else example)

    def traces(self) -> Reads | None:
        """Return a record of the reads of a run, for some of them."""
        return Reads() if random.random() < self._share else None

    def heard(self, notes: PageNotes, request: Request, why: Refusal | None) -> None:
        """Count a run that was no hit, and why its page was not stored."""
        if why is None:
            self.count(notes.view, STORED)
        else:
            self.not_stored(notes.view, request, why, notes.traces)

    def not_stored(self, view: str | None, request: Request, why: Refusal, traces: Reads | None = None) -> None:
        """Count a request whose page was not stored.

        Args:
            traces: the reads of the run; None if they were not recorded.
        """
        example = None
        if traces is not None:
            # A session that is written sets a cookie.
            causes = traces.written if why.reason == "set-cookie" else traces.found
            place = next((each for each in causes if each.what in why.detail or causes is traces.written), None)
            where = None if place is None else f"{place.what}: {place.file}, line {place.line}"
            example = {"url": _url(request), "reason": why.reason, "detail": why.detail, "where": where}
        self.count(view, f"{NOT_STORED}: {why.reason}", example)

    def counts(self) -> Counts:
        with self._lock.get():
            return dict(self._counts)

    def begin(self, request: Request, page: Page) -> Rehearsed | None:
        """Count a request that would have been answered with a page. Return a run whose answer is compared; None if
        this request is not among them."""
        self.count(page.view, HITS)
        is_chosen = random.random() < self._share or request.traces is not None
        # Of a conditional request, the answer may have no body.
        if not is_chosen or request.method != "GET" or is_conditional(request) or request.value(b"authorization"):
            return None
        comparison = _Comparison(self, request, page)
        announcement = self._settings.cache_status.forwarded("bypass", REHEARSAL)
        run = Rehearsed(request, self._settings, self._most, comparison.heard_visitor, announcement)
        comparison.run = run
        return run

    def rerun(self, request: Request, heard: Heard) -> Rehearsed | None:
        """Return a run without a client; None if there are too many."""
        with self._lock.get():
            if self._reruns >= MOST_RERUNS:
                return None
            self._reruns += 1

        def done(answer: Answer | None) -> None:
            with self._lock.get():
                self._reruns -= 1
            heard(answer)

        return Rehearsed(request, self._settings, self._most, done, has_client=False)

    def compared(self, page: Page, request: Request, found: Difference) -> None:
        """Count the outcome of a comparison."""
        example = {"url": _url(request), "line": found.line, "stored": found.stored, "visitor": found.visitor}
        self.count(page.view, found.kind.value, example)

    def answer_of_page(self, page: Page, request: Request) -> Answer:
        headers = page.headers
        if page.blanks is not None and page.blanks.random_bytes is not None:
            headers = without(headers, {b"content-encoding"})
        return answer_of(page.status, headers, page.body, frozenset())

    def after_fork_in_child(self) -> None:
        self._lock.forget()
        self._counts = {}
        self._reruns = 0


class _Comparison:
    """The comparison of one answer with the stored page, and with two reruns if they differ."""

    run: Rehearsed

    def __init__(self, rehearsal: Rehearsal, request: Request, page: Page) -> None:
        self._rehearsal = rehearsal
        self._request = request
        self._reduced = request.without_client(page.fields)
        self._page = page
        self._stored = rehearsal.answer_of_page(page, request)
        self._visitor: Answer | None = None
        self._reruns: list[Answer] = []
        if request.traces is not None:
            request.traces.is_comparing = True

    def heard_visitor(self, answer: Answer | None) -> None:
        if answer is None or answer == self._stored:
            self._end(None if answer is None else EQUAL)
            return
        self._visitor = answer
        self._rerun()

    def _rerun(self) -> None:
        run = self._rehearsal.rerun(self._reduced, self._heard_rerun)
        if run is None:
            self._end(None)
        else:
            self.run.begin_rerun(run)

    def _heard_rerun(self, answer: Answer | None) -> None:
        if answer is None or self._visitor is None:
            self._end(None)
            return
        self._reruns.append(answer)
        if len(self._reruns) < 2:
            self._rerun()
            return
        # A page that depends on a cookie, but is for visitors without it, is one for all of them.
        is_keyed = self._reduced.value(b"cookie") is not None
        self._end(compare(self._stored, self._visitor, self._reruns, is_keyed=is_keyed))

    def _end(self, found: Difference | None) -> None:
        """Count the outcome; None if a run had no answer."""
        if found is not None:
            self._rehearsal.compared(self._page, self._request, found)
        if self._request.traces is not None:
            self._request.traces.is_comparing = False


class Rehearsed:
    """A run whose answer is compared.

    Args:
        most: the maximum size of a body, in bytes.
        announcement: headers that the driver adds to the answer.
        heard: called once, at the end of the run.

    Attributes:
        request, notes, has_client, is_recording, announcement: as those of ``Run``.
        begin_rerun: a function that the driver sets: begins another run, without a client.
    """

    conditions: Final = None
    headers: Final = None
    is_awaited: Final = False
    turn: Turn | None = None

    def __init__(
        self,
        request: Request,
        settings: Settings,
        most: int,
        heard: Heard,
        announcement: Announcement = NO_ANNOUNCEMENT,
        *,
        has_client: bool = True,
    ) -> None:
        self.request = request
        self.notes = PageNotes(settings.ignored, most_blanked=None if settings.tokens is None else most)
        self.has_client = has_client
        self.announcement = announcement
        self.is_recording = True
        self.fields: frozenset[bytes] = frozenset()
        self.begin_rerun: Callable[[Rehearsed], object] = _begin_nothing
        self._settings = settings
        self._most = most
        self._heard = heard
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
        if self._size > self._most:
            self._end(None)
        else:
            self._chunks.append(data)

    def ended(self) -> None:
        if not self.is_recording:
            return
        body, ignored = b"".join(self._chunks), self._lost()
        headers, blanked = self._headers, self.notes.blanked
        if blanked is not None and blanked.body == body:
            body = blanked.blanks.body
            headers = [pair for pair in headers if not blanked.is_of_the_visitor(pair)]
            if blanked.blanks.random_bytes is not None:
                # The body before its compression.
                headers = [pair for pair in headers if pair[0] != b"content-encoding"]
        self._end(answer_of(self._status, headers, body, ignored))

    def _lost(self) -> frozenset[bytes]:
        rule = self._settings.page_rules.of(self.request.host.lower(), self.request.path)
        return rule.lost_cookies or frozenset()

    def closed(self) -> None:
        self._end(None)

    def failed(self) -> Reply | None:
        self._end(None)
        return None

    def give_up(self, why: Refusal) -> None:
        self._end(None)

    def abandoned(self) -> None:
        self._end(None)

    def keep_unsent(self, size: int) -> bool:
        """Return False: the application waits for its client, as without the cache."""
        return False

    def sent(self, size: int) -> None:
        """Do nothing: no bytes were kept."""

    def _end(self, answer: Answer | None) -> None:
        if self.is_recording:
            self.is_recording = False
            self._chunks = []
            self._heard(answer)


def _url(request: Request) -> str:
    path = quote(request.path.encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~")
    return (f"{path}?{request.query}" if request.query else path)[:LONGEST_URL]


def _begin_nothing(run: Rehearsed) -> None:
    """Begin no run: the driver has not set another function."""
