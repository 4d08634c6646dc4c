"""The part of an HTTP cache that rehearses: it chooses the answers to compare, and counts the outcomes by view."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from wheelcache.pages.comparison import Comparison, Heard
from wheelcache.pages.headers import without
from wheelcache.pages.keys import digest
from wheelcache.pages.marks import Facts
from wheelcache.pages.needs import IGNORE_QUERY, WITHOUT_COOKIES, Need, Obstacles
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.options import Options
from wheelcache.pages.page import Page
from wheelcache.pages.page_rules import NO_RULE
from wheelcache.pages.patterns import pattern_of
from wheelcache.pages.query import TRACKING, QueryRules
from wheelcache.pages.reads import OF_THE_SERVER, Reads
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.rehearsal import Answer, Difference, Kind, answer_of, unclear
from wheelcache.pages.rehearsed import Begin, Rehearsed
from wheelcache.pages.request import Request, is_conditional
from wheelcache.pages.rules import Response
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
MOST_ROWS_OF_A_VIEW: Final = 200
"""Outcomes, of all views and of each. A view may set cookies whose names have no end."""

MOST_LOST: Final = 32
"""Cookies that the pages of a view may lose."""

LONGEST_URL: Final = 200

TICK: Final = 0.05
"""Seconds."""

REHEARSAL: Final = refusal("rehearsal", "rehearsal: a hit otherwise")

NO_VIEW: Final = "-"

_tracking: Final = QueryRules(TRACKING)

HITS, STORED, NOT_STORED = "hits", "stored", "not stored"
"""The kinds of counts, in addition to those of ``rehearsal.Kind``: requests that would have been hits, those whose page
was stored, and those whose page was not, with a reason. Together, they are the visits."""

NEEDS, GAINS, PROVED, REFUTED = "needs", "gains", "proved", "refuted"
"""The kinds of counts with a row of ``needs.Obstacles``: visits with these obstacles, those that would have been hits
without them, and comparisons in which the answer was equal to those to nobody, or was not."""

OPTIONS: Final = "options"
"""The kind of the row with the rules and options of the cache, which has no view."""

LIFETIME: Final = 60.0
"""The seconds for which a page would have been stored, as rules of rehearsals say."""


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


class Tried(NamedTuple):
    """A run whose reads were recorded.

    Attributes:
        found: the obstacles of its page.
        body: None if it is unknown.
    """

    request: Request
    notes: PageNotes
    found: Obstacles
    response: Response
    body: bytes | None


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
        key = NO_VIEW if view is None else view, kind
        with self._lock:
            if not self._counts:
                self._counts["", OPTIONS] = Count(1, self._options.for_rehearsals())
            found = self._counts.get(key)
            if found is None:
                if len(self._counts) >= MOST_ROWS or self._rows[key[0]] >= MOST_ROWS_OF_A_VIEW:
                    return
                self._rows[key[0]] += 1
                found = Count(0, {})
            self._counts[key] = Count(found.number + number, found.example if example is None else example)

    def not_stored(
        self, view: str | None, request: Request, why: Refusal, place: str = "", found: Obstacles | None = None
    ) -> None:
        """Count a request whose page was not stored.

        Args:
            place: the code that causes this.
            found: the obstacles of the page; None if the reads of the run were not recorded.
        """
        example = None
        if found is not None:
            self._obstacles.add(request.key, found)
            example = {"url": _url(request), "reason": why.reason, "detail": why.detail, "where": place or None}
            if found.row:
                example["row"] = found.row
        self.count(view, f"{NOT_STORED}: {why.reason}", example)
        found = found or self._obstacles.find(request.key)
        if found is not None:
            self._count_needs(view, request, found)

    def _count_needs(self, view: str | None, request: Request, found: Obstacles) -> None:
        """Count a visit that a page with some rules would have answered, or would not."""
        self.count(view, f"{NEEDS}: {found.row}", {"url": _url(request)})
        if found.stuck is None and self._would_hit(request, found):
            self.count(view, f"{GAINS}: {found.row}")

    def _would_hit(self, request: Request, found: Obstacles) -> bool:
        """Return whether an earlier visit would have stored the page, with the rules that it needs."""
        names = {field.partition(b" ")[0] for field in found.fields}
        values = self._options.normalization.values(sorted(found.fields), {name: request.value(name) for name in names})
        if values is None:
            return False
        key = request.key
        if Need(IGNORE_QUERY) in found.needs:
            key = key.replace(request.query, _tracking.normalized(request.query), 1)
        # The values may be long, and secrets.
        key = digest(f"{key} {values}")
        now, until = self._site.clock(), self._would_be_stored.find(key)
        if until is not None and now < until:
            return True
        self._would_be_stored.add(key, now + LIFETIME)
        return False

    def lost_by(self, view: str | None) -> frozenset[bytes]:
        """Return the cookies that pages of a view set, and may lose."""
        return self._lost.get(view, frozenset())

    def looks_again(self, request: Request) -> bool:
        """Return whether the application runs for a request as if its page had not been refused before, for some of
        them, whose reads are recorded."""
        if request.traces is None:
            request.traces = self.traces()
        return request.traces is not None

    def tried(self, run: Tried, begin: Begin | None, *, is_refused: bool) -> None:
        """Compare an answer with those to nobody, if the page would have been stored with some rules.

        Args:
            begin: begins a rerun; None if there was no client.
        """
        request, notes, found, response, body = run
        view = notes.view
        if names := [each.value.encode("latin-1") for each in found.needs if each.kind == WITHOUT_COOKIES]:
            with self._lock:
                if view in self._lost or len(self._lost) < MOST_ROWS:
                    self._lost[view] = frozenset([*self._lost.get(view, ()), *names][:MOST_LOST])
        if found.stuck is not None or not found.needs:
            return
        if not is_refused:
            self._count_needs(view, request, found)
        if (different := self._of_another_server(run)) is not None:
            self.count(view, f"{REFUTED}: {found.row}", _example(_url(request), different))
        chance = UNLIMITED_RERUNS / (self._reruns.get(view) or 1)
        if begin is None or body is None or random.random() >= chance or not _is_comparable(request):
            return
        most = self._options.max_body
        ignored = found.lost | notes.token_cookies
        answer = answer_of(response.status, response.headers, body, ignored=ignored, most=most, tokens=notes.tokens)
        again = request.repeated()
        compared = Compared(
            view, found.fields, is_keyed=False, is_new=True, lost=found.lost, row=found.row, repeated=again
        )
        self._compare(request, request.without_client(found.fields), answer, begin, answer, compared)

    def _of_another_server(self, run: Tried) -> Difference | None:
        """Return the difference if the page depends on the address of the server, and not all visits have the same."""
        traces = run.notes.traces
        for each in () if traces is None else traces.found:
            if each.what in OF_THE_SERVER:
                value = run.request.of_the_server(each.what)
                first = self._server.setdefault(each.what, value)
                if value != first:
                    return Difference(Kind.WRONG, 0, first, value, header=each.what)
        return None

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
        if notes.route is not None and len(self._patterns) < MOST_ROWS:
            self._patterns[notes.view] = pattern_of(notes.route, request.root, request.path)
        if page is not None and begin is not None and notes.traces is not None and _is_comparable(request):
            notes.traces.is_comparing = True
            reduced, answer = request.without_client(page.fields), self._answer_of_page(page)
            self._compare(request, reduced, answer, begin, answer, self._subject(page, request, reduced, is_new=True))

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
        stored, compared = self._answer_of_page(page), self._subject(page, request, reduced, is_new=False)
        run.heard = lambda answer: self._compare(request, reduced, stored, run.begin_rerun, answer, compared)
        return run

    def _subject(self, page: Page, request: Request, reduced: Request, *, is_new: bool) -> Compared:
        rules = self._options.page_rules
        rule = NO_RULE if rules is None else rules.of(request.host, request.path)
        # A page that depends on a cookie, but is for visitors without it, is one for all of them.
        sent = cookies(reduced.cookie or b"") or {}
        is_keyed = not sent.keys() <= rule.value_cookies | self._site.value_cookies
        return Compared(page.view, page.fields, is_keyed=is_keyed, is_new=is_new, pattern=self._patterns.get(page.view))

    def _compare(
        self, request: Request, reduced: Request, stored: Answer, begin: Begin, answer: Answer | str, compared: Compared
    ) -> None:
        """Compare an answer with a page. An exception is logged: the visitor must get the answer.

        Args:
            reduced: the request for the reruns.
            stored: the page.
        """
        try:
            reruns = _Reruns(self, request, reduced, begin, compared)
            Comparison(
                stored,
                is_keyed=compared.is_keyed,
                is_new=compared.is_new,
                rerun=reruns.begin,
                repeat=None if compared.repeated is None else reruns.repeat,
                report=reruns.report,
                end=reruns.end,
            ).begin(answer)
        except Exception:
            logger.exception("An answer was not compared with the stored page.")

    def _answer_of_page(self, page: Page) -> Answer:
        headers = page.headers
        if page.blanks is not None and page.blanks.random_bytes is not None:
            headers = without(headers, {b"content-encoding"})
        return answer_of(page.status, headers, page.body, ignored=frozenset(), most=self._options.max_body)

    # For the comparisons.

    def new_run(self, request: Request, view: str | None, lost: frozenset[bytes]) -> Rehearsed:
        with self._lock:
            if view in self._reruns or len(self._reruns) < MOST_ROWS:
                self._reruns[view] = self._reruns.get(view, 0) + 1
        return Rehearsed(request, self._options, self._site, has_client=False, lost=lost)

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
        # By view.
        self._rows: Counter[str] = Counter()
        self._reruns: dict[str | None, int] = {}
        self._obstacles = Facts[Obstacles]()
        self._would_be_stored = Facts[float]()
        # By view: the patterns of rules, and the cookies that pages set and may lose.
        self._patterns: dict[str | None, str] = {}
        self._lost: dict[str | None, frozenset[bytes]] = {}
        self._server: dict[str, str] = {}
        self._comparisons = 0
        self._compared = 0
        self._running = 0
        self._waiting: deque[tuple[Begin, Rehearsed]] = deque()


class Compared(NamedTuple):
    """A page that is compared.

    Attributes:
        view: the view that made it.
        fields: the request headers and cookies on which it depends.
        is_keyed, is_new: see ``Comparison``.
        pattern: the pattern of a rule for its view; None if it is unknown.
        lost: the cookies that it would lose with the rules that it needs.
        row: the row of its obstacles; "" if it was stored.
        repeated: the request of the visitor; None if it is not repeated.
    """

    view: str | None
    fields: frozenset[bytes]
    is_keyed: bool
    is_new: bool
    pattern: str | None = None
    lost: frozenset[bytes] = frozenset()
    row: str = ""
    repeated: Request | None = None


class _Reruns:
    """The reruns of one comparison, and its outcome.

    Args:
        request: that of the visitor.
        reduced: the request of the reruns, each of which gets a copy.
        begin: begins a run without a client.
        compared: the page to compare with.
    """

    def __init__(
        self, rehearsal: Rehearsal, request: Request, reduced: Request, begin: Begin, compared: Compared
    ) -> None:
        self._request, self._compared = reduced, compared
        self._rehearsal = rehearsal
        self._traces = request.traces
        # Now, because uWSGI uses the environ of a request again for the next one.
        self._url = _url(request)
        self._begin = begin
        self._size = 0

    def begin(self, delay: float, heard: Heard, size: int) -> None:
        rehearsal = self._rehearsal
        if not self._size and not rehearsal.reserve(size):
            heard("too many comparisons at the same time")
            return
        self._size = self._size or size
        self._begin_run(self._request.without_client(self._compared.fields), delay, heard)

    def repeat(self, delay: float, heard: Heard, size: int) -> None:
        """Begin a run with the request of the visitor."""
        if self._compared.repeated is not None:
            self._begin_run(self._compared.repeated, delay, heard)

    def _begin_run(self, request: Request, delay: float, heard: Heard) -> None:
        rehearsal = self._rehearsal
        run = rehearsal.new_run(request, self._compared.view, self._compared.lost)

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
        count, view, row = self._rehearsal.count, self._compared.view, self._compared.row
        if row:
            if former is not None:
                count(view, f"{REFUTED}: {row}", number=-1)
            if kind := VERDICTS.get(found.kind):
                count(view, f"{kind}: {row}", _example(self._url, found))
            return
        if former is not None:
            count(view, former.kind.value, number=-1)
        if not self._compared.is_new or found.kind is Kind.WRONG:
            pattern = {} if self._compared.pattern is None else {"pattern": self._compared.pattern}
            count(view, found.kind.value, _example(self._url, found) | pattern)
        if self._traces is not None:
            self._traces.is_comparing = False

    def end(self) -> None:
        if self._size:
            self._rehearsal.release(self._size)
        if self._traces is not None:
            self._traces.is_comparing = False


VERDICTS: Final = {Kind.EQUAL: PROVED, Kind.NOISE: PROVED, Kind.OUTDATED: PROVED, Kind.WRONG: REFUTED}
"""The kinds of counts for the outcomes of comparisons with a ``row``."""


def _example(url: str, found: Difference) -> dict[str, Any]:
    header = {"header": found.header} if found.header else {}
    return {"url": url, "line": found.line, "stored": found.stored, "visitor": found.visitor, **header}


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
