"""Decides about each request: answer it with a stored page, run the application for it, or let it bypass the cache.

It does no I/O, so both drivers share it. A driver may skip the decision for a fresh page that it finds under the key of
a request with none of the ``SPECIAL_HEADERS``: ``decide`` would answer with that page.

Of the requests for one page, one has the turn to run the application, and the others wait for its page: see ``turns``.
If the leading request is cancelled, its turn ends with AGAIN: one of the waiting requests leads, and the others wait
again. At any other end, the waiting requests look the page up, and run the application if it is not there (EACH). A run
that takes too long is forgotten, so that no later request waits for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from wheelcache.engine.keys import NO_VIEW
from wheelcache.engine.turns import End, Is, Turn, Turns
from wheelcache.pages.blanks import AMBIGUOUS
from wheelcache.pages.keys import LONGEST_URL
from wheelcache.pages.marks import new_mark
from wheelcache.pages.mode import OFF, REHEARSE
from wheelcache.pages.page import Page, Renewal, Reply, not_cached
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.rehearsed import Rehearsed
from wheelcache.pages.rehearsing import REHEARSAL, STORED
from wheelcache.pages.request import BYPASSING, Request, is_conditional
from wheelcache.pages.rules import Use, request_directives
from wheelcache.pages.run import Forward, Run
from wheelcache.pages.stored_pages import UNSAFE, UNUSUAL_COOKIES
from wheelcache.pages.storing import Storing
from wheelcache.pages.tried import TriedRun
from wheelcache.pages.variants import Variants, are_usual
from wheelcache.runtime.alarm import Alarm

logger = logging.getLogger("wheelcache")

WARNING_INTERVAL: Final = 60.0

MOST_RUNS: Final = 10_000
"""Beyond this number, requests run the application without waiting for each other."""

METHOD: Final = refusal("method")
AUTHORIZATION: Final = refusal("authorization")
CONDITION: Final = refusal("request", "condition in the request")
HEAD: Final = refusal("HEAD")
RANGE: Final = refusal("range")
OVERDUE: Final = refusal("overdue", "the application took too long")
SWITCHED_OFF: Final = refusal("switched off")
KEEPS_COOKIES: Final = refusal("bypass", "keeps the cookies that a rule removes")
KEEPS_SESSION: Final = refusal("session", "has a session, so it keeps the cookies that a rule removes")
BY_RULE: Final = "rule of the site"


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision that a request waits for a run.

    Attributes:
        turn: the turn of this request, for which the driver calls ``leave`` after the wait.
        awaited: the turn that the request waits for: that of another request, or its own one if there is a ``run``.
        seconds: the maximum duration of the wait.
        until: the time at which this request waits no longer, for this run or for another.
        is_overdue: whether the run is overdue when the wait is over.
        stale: a stale page that the request gets when the wait is over, or None.
        run: the run, if the driver must start it in the background; None if another request has started it.
    """

    turn: Turn
    awaited: Turn
    seconds: float
    until: float
    is_overdue: bool
    stale: Page | None = None
    run: Run | None = None

    @property
    def alarm(self) -> Alarm:
        return self.awaited.alarm


class Selected(NamedTuple):
    """The result of the look-up for a request.

    Attributes:
        key: the key of the page or its variant; None if the request bypasses the cache.
        page: the page; None if there is none.
        has_variants: whether the page has variants.
    """

    key: str | None
    page: Page | None
    has_variants: bool

    @property
    def why(self) -> str:
        """The parameter ``fwd`` of Cache-Status, if the page is not fresh."""
        if self.page is not None:
            return "stale"
        return "vary-miss" if self.has_variants else "miss"


class _Miss(NamedTuple):
    """The key of the page that a request selects, why there is no fresh page, and the stale page if there is one."""

    key: str
    why: str
    page: Page | None


class _Hit(NamedTuple):
    """A page that answers a request, and its key; a stale page must be renewed."""

    key: str
    page: Page
    is_stale: bool


Decision = Reply | Run | Rehearsed | Forward | Wait
_Answer = Reply | Run | Forward | _Hit | _Miss


class Pages:
    """The decisions of an HTTP cache.

    Args:
        storing: stores pages.
        turns: the turns of the requests that run the application.

    Attributes:
        options: the options of the cache.
        mode: what is done with stored pages.
    """

    def __init__(self, storing: Storing, turns: Turns) -> None:
        self.storing = storing
        self.turns = turns
        self.find = storing.stored.find
        self.clock = storing.clock
        self.figures = storing.figures
        self.options = storing.options
        self.mode = storing.mode
        self._marks = storing.stored.marks
        self.rehearsal = storing.rehearsal
        self._next_warning = -inf

    def decide(self, request: Request, selected: Selected | None) -> Decision:
        """Decide about a request.

        Args:
            selected: the result of the look-up, if the driver has done it already: each look-up counts.
        """
        if not self.mode.serves:
            return self._without_serving(request, selected)
        is_unmarked = False
        if selected is not None and selected.page is None:
            # The usual request for a page that cannot be stored. No other check refuses a request that has a mark.
            marked = self._marked(request, selected, self.clock())
            if marked is not None:
                return marked
            is_unmarked = True
        return self._with_turn(request, self._answer(request, selected, is_unmarked=is_unmarked), inf)

    def _without_serving(self, request: Request, selected: Selected | None) -> Decision:
        """Decide about a request that no stored page may answer: it runs the application, as without the cache."""
        if self.mode.name == OFF and request.method in ("GET", "HEAD"):
            # Other methods may outdate stored pages.
            return self._forward(request, "bypass", SWITCHED_OFF)
        answer = self._answer(request, selected)
        if isinstance(answer, _Hit):
            return self.rehearsal.begin(request, answer.page) or self._forward(request, "bypass", REHEARSAL)
        if isinstance(answer, Reply):
            # There is no page for a request that accepts only a stored one.
            return self._forward(request, "bypass", REHEARSAL)
        if isinstance(answer, _Miss):
            if request.loses_cookies:
                # The application gets these cookies now, so its page is not that of all visitors.
                self.rehearsal.count(None, STORED)
                return self._forward(request, "bypass", REHEARSAL)
            return self._run(request, answer, None)
        return answer

    def decide_after_wait(self, request: Request, wait: Wait) -> Decision:
        """Decide about a request that has waited. It may wait again if the run was cancelled, or for another page than
        before, because its variant was not known then."""
        ended = wait.awaited.ended
        if not self.mode.serves:
            return self._without_serving(request, None)
        answer = self._answer(request, None)
        if not isinstance(answer, _Miss):
            return self._with_turn(request, answer, inf, has_waited=True)
        now = self.clock()
        is_cancelled = ended is End.AGAIN
        if wait.stale is not None and (ended is None or is_cancelled):
            # It may not even have begun: all threads may be busy with other pages.
            return self._slow(wait.stale, request, now)
        if ended is None and wait.is_overdue:
            self._forget(wait.awaited, now)
        if now < wait.until and (is_cancelled or answer.key != wait.turn.key):
            return self._with_turn(request, answer, wait.until, has_waited=True)
        return self._run(request, answer, self._begin(request, answer.key, now, may_wait=False))

    def queue_renewal(self, key: str) -> Turn | None:
        """Return a turn for ``begin_renewal``. Return None if the page is being renewed already."""
        turn = Turn(self.turns, key)
        turn.is_queued = True
        return turn if self.turns.claim(turn) else None

    def begin_renewal(self, renewal: Renewal, turn: Turn) -> Run | None:
        """Begin a run without a client. Return None if another request leads instead, or has renewed the page."""
        # First, so that the turn ends even if an exception arrives before there is a run.
        turn.until = self.clock() + self.options.wait
        if not self.turns.starts(turn):
            return None
        if self.storing.stored.is_replaced(renewal.key, renewal.page):
            # Another run has ended between the look-up and the claim.
            turn.end(End.AGAIN)
            return None
        run = Run(self.storing, renewal.request, renewal.key, "stale", renewal.page, turn)
        run.has_client = False
        return run

    def renewals_are_late(self) -> None:
        """Log, at most once a minute, that a renewal could not be queued."""
        now = self.clock()
        if now >= self._next_warning:
            self._next_warning = now + WARNING_INTERVAL
            logger.warning(
                "Pages are not renewed: too many renewals run or wait, which take too long. Visitors wait for pages "
                "that have expired."
            )

    def _with_turn(self, request: Request, answer: _Answer, until: float, *, has_waited: bool = False) -> Decision:
        """Return an answer, or for a miss, whether the request leads a run or waits for one until a time.

        Args:
            has_waited: whether it has waited for the run of another request: a hit is then collapsed.
        """
        if isinstance(answer, _Hit):
            if has_waited:
                self.figures.count("collapsed")
            return self._reply(request, answer)
        if not isinstance(answer, _Miss):
            return answer
        miss, now = answer, self.clock()
        page = None if miss.page is None else self._instead_of_waiting(miss.page, now)
        overdue = self.turns.open.get(miss.key)
        if overdue is not None and overdue.until <= now:
            self._forget(overdue, now)
            return self._run(request, miss, None) if page is None else self._slow(page, request, now)
        turn = self._begin(request, miss.key, now)
        leads = turn is not None and turn.state is Is.LEADS
        if turn is not None and leads and self.find(miss.key) not in (None, miss.page):
            # Another run has ended between the look-up and the claim.
            turn.end(End.AGAIN)
            return self._with_turn(request, self._answer(request, None), until, has_waited=has_waited)
        if turn is None or (leads and page is None):
            return self._run(request, miss, turn)
        awaited = turn.waits_on or turn
        patience = inf if page is None else self.options.serve_stale_after or 0.0
        until = min(until, now + self.options.wait)
        ends = min(awaited.until, until, now + patience)
        run = self._run(request, miss, turn) if leads else None
        if run is not None:
            run.has_client = False
        return Wait(turn, awaited, ends - now, until, ends == awaited.until, page, run)

    def _begin(self, request: Request, key: str, now: float, *, may_wait: bool = True) -> Turn | None:
        """Return a turn that leads or waits. Return None if the request runs the application for itself."""
        turns = self.turns
        if len(turns.open) >= MOST_RUNS and key not in turns.open:
            return None
        turn = Turn(turns, key, until=now + self.options.wait)
        state = turns.begin(turn, blocking=request.blocks, may_wait=may_wait)
        return None if state is Is.ALONE else turn

    def _forget(self, turn: Turn, now: float) -> None:
        """Let no request wait for a run that takes too long, or for other runs of its page."""
        self._marks.add(str(turn.key), new_mark(OVERDUE, now, is_lasting=False))
        turn.end(End.EACH)

    def _instead_of_waiting(self, page: Page, now: float) -> Page | None:
        """Return a stale page that a request gets if the application is slow, or None."""
        if self.options.serve_stale_after is None or not self.mode.serves:
            return None
        return page if page.freshness.may_replace_an_error(page.age(now)) else None

    def _slow(self, page: Page, request: Request, now: float) -> Reply:
        """Answer with a stale page because the application is slow."""
        return self.storing.reply(page, request, now, "stale", page.hit_status(now, "slow"))

    def _run(self, request: Request, miss: _Miss, turn: Turn | None) -> Run:
        run = self._new_run(request, miss.key, miss.why, miss.page, turn)
        if miss.page is None:
            # Unlike ``find``, this counts the miss, as soon as the view is known.
            run.cause = self.storing.stored.miss_cause(miss.key)
        return run

    def _new_run(self, request: Request, key: str, why: str, stored: Page | None, turn: Turn | None) -> Run:
        kind = TriedRun if self.mode.name == REHEARSE else Run
        return kind(self.storing, request, key, why, stored, turn)

    def _reply(self, request: Request, hit: _Hit) -> Reply:
        page, now = hit.page, self.clock()
        if not hit.is_stale:
            return self.storing.reply(page, request, now, "fresh")
        reply = self.storing.reply(page, request, now, "stale", page.hit_status(now, "stale"))
        return replace(reply, renewal=Renewal(request, hit.key, page))

    def _answer(self, request: Request, selected: Selected | None, *, is_unmarked: bool = False) -> _Answer:
        """Answer a request, or return a run if no other request can wait for its page, or a miss.

        Args:
            is_unmarked: whether the selected page has no mark.
        """
        storing = self.storing
        options, is_plain = self.options, request.is_plain
        bypassing = _why_bypassing(request)
        if bypassing is None and request.method not in ("GET", "HEAD"):
            return self._forward(request, "method", METHOD)
        if bypassing is None and not is_plain:
            bypassing = _header_that_bypasses(request)
        if bypassing is None and options.page_rules is not None:
            bypassing = BY_RULE if options.page_rules.of(request.host, request.path).bypasses else None
        if bypassing is not None:
            return self._forward(request, "bypass", refusal("bypass", bypassing))
        authorized = not is_plain and request.value(b"authorization") is not None
        selected = selected or self._select(request)
        key, page, _ = selected
        if key is None:
            return self._forward(request, "bypass", UNSAFE)
        if authorized and page is not None and not page.freshness.serves_authorized:
            return self._forward(request, "request", AUTHORIZATION)
        now = self.clock()
        hit = None if page is None else self._hit(key, page, now)
        if hit is not None and hit.page.blanks is None:
            return hit
        tokens, cookie, has_odd_secret = storing.site.tokens, request.cookie, False
        if tokens is not None and cookie is not None:
            secret = tokens.secret(cookie.decode("latin-1"))
            if secret is None and (page is None or page.blanks is not None):
                return self._forward(request, "bypass", AMBIGUOUS)
            # The framework makes a new secret, so that the response cannot be stored.
            has_odd_secret = secret == "" and tokens.cookie in cookie
        if hit is not None:
            return hit
        if page is not None and not self.mode.serves:
            # The run renews it. Neither an error nor a 304 of the application may bring it to the client.
            page, selected = None, selected._replace(page=None)
        asked = {} if is_plain else request_directives(request.value(b"cache-control"))
        if b"only-if-cached" in asked:
            return not_cached(options.status)
        is_alone = authorized or b"no-store" in asked or has_odd_secret
        if request.loses_cookies and (
            is_alone or request.has_session or (page is None and storing.shared_pages.find(request.key) is None)
        ):
            # Its page may be for one visitor, who needs all cookies.
            why = KEEPS_SESSION if request.has_session else KEEPS_COOKIES
            if self.mode.name == REHEARSE:
                self.rehearsal.not_stored(None, request, why)
            return self._forward(request, selected.why, why)
        if request.method == "HEAD":
            # Developers ask with HEAD why a page is not stored.
            mark = self._marks.find(key)
            return self._forward(request, selected.why, mark.refusal if mark is not None and now < mark.until else HEAD)
        if page is None and not is_plain and request.value(b"range") is not None:
            return self._forward(request, selected.why, RANGE)
        marked = None if is_unmarked else self._marked(request, selected, now)
        if marked is not None:
            return marked
        if authorized and page is None and is_conditional(request):
            return self._forward(request, selected.why, CONDITION)
        if is_alone:
            # Its response may not be storable, although that of the next request is: nobody should wait for it.
            return self._new_run(request, key, selected.why, page, None)
        if not request.is_safe:
            return self._forward(request, "bypass", UNSAFE)
        if storing.site.has_companion and cookie and not are_usual(cookie):
            return self._forward(request, "bypass", UNUSUAL_COOKIES)
        return _Miss(key, selected.why, page)

    def _marked(self, request: Request, selected: Selected, now: float) -> Run | Forward | Reply | None:
        """Answer a request for a page that could not be stored before. Return None if it is like any other miss."""
        key = selected.key
        mark = None if key is None else self._marks.find(key)
        if key is None or mark is None or now >= mark.until or not mark.concerns(request.cookie):
            return None
        # The order of these conditions matters: a conditional request must not use up the turn of another one.
        is_due = (request.is_plain or not is_conditional(request)) and mark.is_due(now)
        if self.mode.name == REHEARSE and not is_due and (request.is_plain or not is_conditional(request)):
            is_due = self.rehearsal.looks_again(request)
        if request.loses_cookies:
            # A page that is not stored gets all cookies of the visitor.
            is_due = False
        if mark.refusal is OVERDUE and selected.page is not None:
            page = self._instead_of_waiting(selected.page, now)
            if page is not None:
                return None if is_due else self._slow(page, request, now)
        if is_due:
            return self._new_run(request, key, selected.why, selected.page, None)
        self.figures.refused(mark.refusal, request.path, mark.view or NO_VIEW)
        if self.mode.name == REHEARSE:
            self.rehearsal.not_stored(mark.view, request, mark.refusal)
        return self._forward(request, selected.why, mark.refusal)

    def _forward(self, request: Request, why: str, why_not: Refusal) -> Forward:
        return Forward(self.storing, request, why, why_not)

    def _select(self, request: Request) -> Selected:
        key: str | None = request.key
        found = self.find(request.key)
        if type(found) is not Variants:
            return Selected(key, found, has_variants=False)
        key = found.find(request.raw(found.headers))
        return Selected(key, None if key is None else self.find(key), has_variants=True)

    def _hit(self, key: str, page: Page, now: float) -> _Hit | None:
        """Return the hit of a page that may be used as it is; None if it may not."""
        use = page.freshness.use(page.age(now))
        if use is Use.FRESH and now >= page.sent_until:
            page.prepare(now)
            self.figures.fold_if_many()
        is_stale = use is Use.WHILE_REVALIDATING or page.is_outdated
        if use is Use.VALIDATED or (is_stale and not self.mode.serves):
            return None
        return _Hit(key, page, is_stale)


def _why_bypassing(request: Request) -> str | None:
    """Return why a request bypasses the cache, whatever its method; None if it does not."""
    if not request.host or "," in request.host:
        return "no valid Host"
    if not request.method.isupper():
        return "method in lower case"
    return "long URL" if len(request.path) + len(request.query) > LONGEST_URL else None


def _header_that_bypasses(request: Request) -> str | None:
    """Return the header with which a GET or a HEAD bypasses the cache, or None.

    Applications read parameters from a body, and no key contains a body.
    """
    for name in BYPASSING:
        if request.value(name) is not None:
            return name.decode()
    if request.value(b"content-length") not in (None, b"", b"0") or request.value(b"transfer-encoding") is not None:
        return "request with a body"
    return None
