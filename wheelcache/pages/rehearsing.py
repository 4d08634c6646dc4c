"""The part of an HTTP cache that rehearses: it chooses the answers to compare, and counts the outcomes by view."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from wheelcache.pages.comparison import Comparison, Heard
from wheelcache.pages.headers import without
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.options import Options
from wheelcache.pages.page import Page
from wheelcache.pages.page_rules import NO_RULE
from wheelcache.pages.reads import Reads
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.rehearsal import Answer, Difference, Kind, answer_of, unclear
from wheelcache.pages.rehearsed import Begin, Rehearsed
from wheelcache.pages.request import Request, is_conditional
from wheelcache.pages.site import Site
from wheelcache.pages.variants import cookies
from wheelcache.runtime.shared_objects import Lazy
from wheelcache.timers.timers import Timers

logger = logging.getLogger("wheelcache")

DEFAULT_SHARE: Final = 0.05
"""The share of compared answers if an operator begins a rehearsal."""

MOST_COMPARISONS: Final = 1000
"""Comparisons with reruns at the same time. Most of them wait for the pause between two reruns."""

MOST_COMPARED: Final = 32 << 20
"""Bytes of the answers in them."""

MOST_RUNNING: Final = 4
"""Reruns at the same time."""

UNLIMITED_RERUNS: Final = 200
"""Reruns of a view in a process. Beyond them, its answers are compared more and more rarely: a clock on each page
causes two reruns for each comparison, and a wrong page up to seven."""

MOST_ROWS: Final = 2_000
"""Views, with the outcomes of each."""

LONGEST_URL: Final = 200

TICK: Final = 0.05
"""Seconds."""

REHEARSAL: Final = refusal("rehearsal", "rehearsal: a hit otherwise")

NO_VIEW: Final = "-"

HITS, STORED, NOT_STORED = "hits", "stored", "not stored"
"""The kinds of counts, in addition to those of ``rehearsal.Kind``: requests that would have been hits, those whose page
was stored, and those whose page was not, with a reason. Together, they are the visits."""


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
        options: the options of the cache. ``rehearse`` is also the share of the stored pages that are compared.
    """

    def __init__(self, options: Options, site: Site) -> None:
        self._options = options
        self._site = site
        self._share = options.rehearse or DEFAULT_SHARE
        self._lock = threading.Lock()
        # Made for the first difference.
        self._timers = Lazy(partial(Timers, TICK, _call, clock=site.clock))
        self.after_fork_in_child()

    # Counts.

    def count(self, view: str | None, kind: str, example: dict[str, Any] | None = None, number: int = 1) -> None:
        """Count an outcome for a view, or take it back."""
        key = view or NO_VIEW, kind
        with self._lock:
            found = self._counts.get(key)
            if found is None:
                if len(self._counts) >= MOST_ROWS:
                    return
                found = Count(0, {})
            self._counts[key] = Count(found.number + number, found.example if example is None else example)

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
        with self._lock:
            return dict(self._counts)

    # Runs that were no hits.

    def traces(self) -> Reads | None:
        """Return a record of the reads of a run, for some of them."""
        return Reads() if random.random() < self._share else None

    def stored(self, request: Request, notes: PageNotes, page: Page | None, begin: Begin | None) -> None:
        """Count a run whose page was stored, and compare some of the pages with reruns.

        Args:
            page: None if there is none after all, because the application failed.
            begin: begins a rerun; None if there was no client.
        """
        self.count(notes.view, STORED)
        if page is not None and begin is not None and notes.traces is not None and _is_comparable(request):
            notes.traces.is_comparing = True
            reduced = request.without_client(page.fields)
            self._compare(request, reduced, page, begin, self._answer_of_page(page), is_new=True)

    # Requests that would have been hits.

    def begin(self, request: Request, page: Page) -> Rehearsed | None:
        """Count a request that would have been answered with a page. Return a run whose answer is compared; None if
        this request is not among them."""
        self.count(page.view, HITS)
        chance = self._share * min(1.0, UNLIMITED_RERUNS / (self._reruns.get(page.view) or 1))
        is_chosen = random.random() < chance or request.traces is not None
        if is_chosen and request.loses_cookies:
            self.count(page.view, Kind.UNCLEAR.value, _example(_url(request), unclear("a rule removes its cookies")))
        if not is_chosen or not _is_comparable(request):
            return None
        announcement = self._options.status.forwarded("bypass", REHEARSAL)
        run = Rehearsed(request, self._options, self._site, announcement)
        if request.traces is not None:
            request.traces.is_comparing = True

        # Before the run, which may change parts of the request.
        reduced = request.without_client(page.fields)
        run.heard = lambda answer: self._compare(request, reduced, page, run.begin_rerun, answer, is_new=False)
        return run

    def _compare(
        self, request: Request, reduced: Request, page: Page, begin: Begin, answer: Answer | str, *, is_new: bool
    ) -> None:
        """Compare an answer with a page. An exception is logged: the visitor must get the answer.

        Args:
            reduced: the request for the reruns.
        """
        try:
            self._comparison(request, reduced, page, begin, is_new=is_new).begin(answer)
        except Exception:
            logger.exception("An answer was not compared with the stored page.")

    def _comparison(self, request: Request, reduced: Request, page: Page, begin: Begin, *, is_new: bool) -> Comparison:
        stored = self._answer_of_page(page)
        rules = self._options.page_rules
        rule = NO_RULE if rules is None else rules.of(request.host, request.path)
        reruns = _Reruns(self, request, reduced, page, begin, is_new=is_new)
        # A page that depends on a cookie, but is for visitors without it, is one for all of them.
        sent = cookies(reduced.cookie or b"") or {}
        is_keyed = not sent.keys() <= rule.value_cookies
        return Comparison(
            stored, is_keyed=is_keyed, is_new=is_new, rerun=reruns.begin, report=reruns.report, end=reruns.end
        )

    def _answer_of_page(self, page: Page) -> Answer:
        headers = page.headers
        if page.blanks is not None and page.blanks.random_bytes is not None:
            headers = without(headers, {b"content-encoding"})
        return answer_of(page.status, headers, page.body, ignored=frozenset(), most=self._options.max_body)

    # For the comparisons.

    def new_run(self, request: Request, view: str | None) -> Rehearsed:
        with self._lock:
            if view in self._reruns or len(self._reruns) < MOST_ROWS:
                self._reruns[view] = self._reruns.get(view, 0) + 1
        return Rehearsed(request, self._options, self._site, has_client=False)

    def start(self, begin: Begin, run: Rehearsed) -> None:
        """Begin a rerun, or as soon as others have ended."""
        with self._lock:
            if self._running >= MOST_RUNNING:
                self._waiting.append((begin, run))
                return
            self._running += 1
        begin(run)

    def rerun_ended(self) -> None:
        with self._lock:
            if not self._waiting:
                self._running -= 1
                return
            begin, run = self._waiting.popleft()
        begin(run)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function in a thread of the timers."""
        self._timers.get().set_timer(object(), function, max(seconds, TICK))

    def reserve(self, size: int) -> bool:
        """Return whether another comparison may begin, with answers of this size."""
        with self._lock:
            if self._comparisons >= MOST_COMPARISONS or self._compared + size > MOST_COMPARED:
                return False
            self._comparisons += 1
            self._compared += size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            self._comparisons -= 1
            self._compared -= size

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._reruns: dict[str | None, int] = {}
        self._comparisons = 0
        self._compared = 0
        self._running = 0
        self._waiting: deque[tuple[Begin, Rehearsed]] = deque()


class _Reruns:
    """The reruns of one comparison, and its outcome.

    Args:
        request: that of the visitor.
        reduced: the request of the reruns, each of which gets a copy.
        page: the page to compare with.
        begin: begins a run without a client.
    """

    def __init__(
        self,
        rehearsal: Rehearsal,
        request: Request,
        reduced: Request,
        page: Page,
        begin: Begin,
        *,
        is_new: bool,
    ) -> None:
        self._request, self._fields = reduced, page.fields
        self._rehearsal = rehearsal
        self._traces = request.traces
        # Now, because uWSGI uses the environ of a request again for the next one.
        self._url = _url(request)
        self._view = page.view
        self._begin = begin
        self._is_new = is_new
        self._size = 0

    def begin(self, delay: float, heard: Heard, size: int) -> None:
        rehearsal = self._rehearsal
        if not self._size and not rehearsal.reserve(size):
            heard("too many comparisons at the same time")
            return
        self._size = self._size or size
        run = rehearsal.new_run(self._request.without_client(self._fields), self._view)

        def ended(answer: Answer | str) -> None:
            rehearsal.rerun_ended()
            # To compare large answers takes up to a second, for which an event loop must not wait.
            rehearsal.call_later(0.0, partial(heard, answer))

        run.heard = ended
        if delay:
            rehearsal.call_later(delay, partial(rehearsal.start, self._begin, run))
        else:
            rehearsal.start(self._begin, run)

    def report(self, found: Difference, former: Difference | None) -> None:
        """Count the outcome, in place of a former one."""
        count = self._rehearsal.count
        if former is not None:
            count(self._view, former.kind.value, number=-1)
        if not self._is_new or found.kind is Kind.WRONG:
            count(self._view, found.kind.value, _example(self._url, found))
        if self._traces is not None:
            self._traces.is_comparing = False

    def end(self) -> None:
        if self._size:
            self._rehearsal.release(self._size)
        if self._traces is not None:
            self._traces.is_comparing = False


def _example(url: str, found: Difference) -> dict[str, Any]:
    return {"url": url, "line": found.line, "stored": found.stored, "visitor": found.visitor}


def _url(request: Request) -> str:
    path = quote(request.path.encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~")
    return (f"{path}?{request.query}" if request.query else path)[:LONGEST_URL]


def _is_comparable(request: Request) -> bool:
    """Return whether the answer to a request can be compared. That to a conditional one may have no body, and a rerun
    has neither the visitor's authorization nor the cookies that pages lose."""
    if request.method != "GET" or request.loses_cookies:
        return False
    return request.is_plain or not (is_conditional(request) or request.value(b"authorization"))


def _call(key: object, function: Callable[[], object]) -> None:
    function()
