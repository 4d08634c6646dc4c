"""Decides which responses may be stored, stores them, and answers with stored pages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urljoin

from wheelcache.engine import options as checks
from wheelcache.pages import rules
from wheelcache.pages.blanks import GZIP, HIDDEN, Blanked, Filled, content_coding, for_one_visitor, may_hide_tokens
from wheelcache.pages.bodies import shown_cookie
from wheelcache.pages.figures import Figures
from wheelcache.pages.headers import CACHE_TAG, Headers, decoded, single, values, without
from wheelcache.pages.keys import parts_of_url
from wheelcache.pages.marks import Facts
from wheelcache.pages.mode import Mode
from wheelcache.pages.notes import WRONG_TAGS, PageNotes
from wheelcache.pages.options import Options
from wheelcache.pages.page import BODILESS, Page, Reply, stored_reply
from wheelcache.pages.page_rules import NO_RULE, PageRule
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.rehearsing import Rehearsal
from wheelcache.pages.request import Request
from wheelcache.pages.rules import Response
from wheelcache.pages.site import Site
from wheelcache.pages.stored_pages import UNSAFE, StoredPages
from wheelcache.pages.variants import COOKIE, accepted_encodings, cookie_field, cookies

logger = logging.getLogger("wheelcache")

OF_ONE_VISITOR: Final = frozenset([b"private", b"no-store"])
"""Directives with which a response is not changed."""

NO_FIELDS: Final[frozenset[bytes]] = frozenset()

NO_LIFETIME: Final = refusal("no lifetime")
TRIED: Final = PageRule(ttl=60.0)
"""The rule that a rehearsal tries for a page without a lifetime."""
TOO_LONG: Final = refusal("max_body", "longer than max_body")
BY_REQUEST: Final = refusal("request", "no-store in the request", leaves_mark=False)
NO_COMPANION: Final = refusal("companion", "the application reported no dependencies")
SESSION: Final = refusal("session")
WHOLE_COOKIE: Final = refusal("csrf", "CSRF token in a page that depends on the whole Cookie header")
ENCODING: Final = refusal("encoding", "Content-Encoding that the request does not accept", leaves_mark=False)
UNUSUAL_ENCODING: Final = refusal("encoding", "unusual Accept-Encoding", leaves_mark=False)


class Storing:
    """Stores the responses of an application, as far as the rules allow it.

    Args:
        site: the site behind the cache.
        stored: the stored pages.
        mode: what the cache does with stored pages.
        rehearsal: the results of a rehearsal.

    Attributes:
        options, site, stored, mode, figures, rehearsal: as given.
        shared_pages: the pages that may lose cookies: those that are not for one visitor, as far as the Cache-Control
            of their last response says. The first visitor of any other page gets it with all cookies, since it may turn
            out to be private.
        clock, wall: return seconds: on a steady clock, and since 1970.
    """

    __slots__ = ("clock", "figures", "mode", "options", "rehearsal", "shared_pages", "site", "stored", "wall")

    def __init__(
        self, options: Options, site: Site, stored: StoredPages, mode: Mode, figures: Figures, rehearsal: Rehearsal
    ) -> None:
        self.options = options
        self.site = site
        self.stored = stored
        self.mode = mode
        self.figures = figures
        self.rehearsal = rehearsal
        self.shared_pages = Facts[bool]()
        self.clock, self.wall = site.clock, site.wall_clock

    # Replies.

    def reply(
        self, page: Page, request: Request, now: float, counted_as: str | None, status: Headers | None = None
    ) -> Reply:
        """Answer a request with a stored page.

        Args:
            counted_as: the field of ``PageStats``; None if no client receives the answer.
            status: the header Cache-Status; None for that of a hit.
        """
        answer = stored_reply(page, request, now, self.wall(), status, self._filled(page, request))
        if counted_as is not None:
            self.figures.count(counted_as, len(answer.body))
        return answer

    def _filled(self, page: Page, request: Request) -> Filled | None:
        tokens = self.site.tokens
        if page.blanks is None or tokens is None:
            return None
        secret = tokens.secret((request.cookie or b"").decode("latin-1"))
        # Requests with an ambiguous cookie bypass pages with blanks.
        return tokens.fill(page.blanks, secret or "")

    # Storing.

    def page_of(
        self, request: Request, notes: PageNotes, response: Response, reason: str, seconds: float
    ) -> Page | Refusal:
        """Return a page without a body for a response that has begun, or the reason why it must not be stored.

        Args:
            seconds: the time that the application took.
        """
        notes.settle()
        blanked = notes.blanked
        response = _without_tokens(response, blanked)
        why = self._refused(request, response)
        if why is not None:
            # A token is the reason for its cookie.
            return next(iter(notes.refusals), notes.sets_cookie or why) if why.reason == "set-cookie" else why
        freshness = self._freshness(request, response, seconds)
        if not freshness.is_useful:
            return _without_lifetime(response)
        lines = response.lines
        length = int(lines[b"content-length"][0]) if b"content-length" in lines else None
        if length is not None and length > self.options.max_body:
            return TOO_LONG
        stored = rules.storable_headers(response.headers, lines.get(b"connection", ()))
        page = self._page(
            response, reason, stored if blanked is None else for_one_visitor(stored), freshness, notes.view
        )
        page.length = length
        page.blanks = None if blanked is None else blanked.blanks
        if CACHE_TAG in lines:
            page.tags = checks.cache_tags(map(decoded, lines[CACHE_TAG]))
        return self._refusal(page, notes, request) or page

    def obstacles(
        self, request: Request, notes: PageNotes, response: Response, body: bytes | None, lost: frozenset[bytes]
    ) -> Iterator[Refusal]:
        """Iterate over all reasons for which a response is not stored, each as if the earlier ones did not exist: for a
        rehearsal.

        Args:
            body: None if it is unknown.
            lost: the cookies that the page would lose.
        """
        response = _without_tokens(response, notes.blanked)
        for why in self._refusals_by_headers(request, response):
            yield (notes.sets_cookie or why) if why.reason == "set-cookie" else why
        freshness = self._freshness(request, response, 0.0)
        if not freshness.is_useful:
            yield _without_lifetime(response)
            freshness = self._freshness(request, response, 0.0, TRIED)
        page = self._page(response, "", without(response.headers, {b"set-cookie"}), freshness, notes.view)
        page.blanks = None if notes.blanked is None else notes.blanked.blanks
        length = response.single(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.options.max_body:
            yield TOO_LONG
        yield from self._refusals(page, notes, request, lost)
        if body is None:
            return
        page.fill(body if page.blanks is None else page.blanks.body)
        if request.cookie and (shown := shown_cookie(page, request.cookie, request)) is not None:
            yield shown
        if self.site.tokens is not None:
            is_compressed = page.blanks is None and content_coding(page.headers) == GZIP
            foreign = self.site.tokens.refused(page.body, is_compressed=is_compressed)
            if foreign is not None:
                yield foreign

    def without_lost(self, request: Request, response: Response) -> Response:
        """Return a response without the cookies that the page loses, unless it is for one visitor and the application
        has seen all cookies."""
        lost = self.options.lost
        names = lost.of(request.host, request.path) if lost is not None and b"set-cookie" in response.lines else ()
        if not names:
            return response
        if not request.loses_cookies and OF_ONE_VISITOR & response.control.directives.keys():
            # A cookie that the application sets without having seen it would replace the visitor's.
            return response
        kept = [
            (name, value)
            for name, value in response.headers
            if name != b"set-cookie" or value.partition(b"=")[0].strip() not in names
        ]
        return response if len(kept) == len(response.headers) else Response(response.status, kept)

    def note_lost(self, request: Request, response: Response) -> None:
        """Note whether a page that may lose cookies is for one visitor."""
        lost = self.options.lost
        if lost is None or request.method != "GET":
            return
        if OF_ONE_VISITOR & response.control.directives.keys():
            self.shared_pages.remove(request.key)
        elif response.status == HTTPStatus.OK and lost.of(request.host, request.path):
            self.shared_pages.add(request.key, True)

    def _refused(self, request: Request, response: Response) -> Refusal | None:
        """Return the reason for which the headers of a response or of its request forbid storing it, or None."""
        return next(self._refusals_by_headers(request, response), None)

    def _refusals_by_headers(self, request: Request, response: Response) -> Iterator[Refusal]:
        authorized = not request.is_plain and request.value(b"authorization") is not None
        yield from rules.refusals(response, authorized=authorized)
        if not request.is_plain and b"no-store" in rules.request_directives(request.value(b"cache-control")):
            yield BY_REQUEST

    def _freshness(
        self, request: Request, response: Response, seconds: float, rule: PageRule | None = None
    ) -> rules.Freshness:
        options = self.options
        if rule is None:
            rule = NO_RULE if options.page_rules is None else options.page_rules.of(request.host, request.path)
        return rules.freshness(
            response,
            wall=self.wall(),
            seconds=seconds,
            rule=rule,
            grace=options.grace,
            fail_safe=options.fail_safe,
        )

    def _page(
        self, response: Response, reason: str, headers: Headers, freshness: rules.Freshness, view: str | None
    ) -> Page:
        fields = self.options.normalization.fields(response.vary) if response.vary else NO_FIELDS
        page = Page(response.status, reason, headers, freshness, fields, self.clock(), cache_status=self.options.status)
        page.view = view
        if not rules.TARGETED.isdisjoint(response.lines):
            page.targeted = rules.targeted_headers(response.headers)
        return page

    def _refusal(self, page: Page, notes: PageNotes, request: Request) -> Refusal | None:
        """Return the reason for which the application's notes or the request forbid storing the page, or None.

        The notes may change until the response ends, so this is asked at its beginning and at its end.
        """
        return next(self._refusals(page, notes, request), None)

    def _refusals(
        self, page: Page, notes: PageNotes, request: Request, lost: frozenset[bytes] = frozenset()
    ) -> Iterator[Refusal]:
        """Iterate over the reasons for ``_refusal``.

        Args:
            lost: the cookies that the page would lose by rules that do not exist yet.
        """
        yield from notes.refusals
        if self.site.has_companion and not notes.is_keyed:
            yield NO_COMPANION
        if self.site.tokens is not None and may_hide_tokens(page.headers):
            yield HIDDEN
        page.fields |= notes.fields.difference(map(cookie_field, lost)) if lost else notes.fields
        if page.blanks is not None and COOKIE in page.fields:
            yield WHOLE_COOKIE
        if request.has_session and COOKIE not in page.fields and not page.fields >= self.options.sessions.fields:
            yield SESSION
        if page.freshness.value_cookies is not None:
            yield from _of_visitor(page, request, page.freshness.value_cookies | self.site.value_cookies)
        if not request.is_safe:
            yield UNSAFE
        if b"accept-encoding" in page.fields and (why := _refused_encoding(page, request)) is not None:
            yield why

    def store(self, request: Request, page: Page, notes: PageNotes, since: int) -> Refusal | None:
        """Store a page whose body is complete.

        Args:
            since: the moment at which the run that made it began.

        Returns:
            None, or the reason if it is not stored.
        """
        notes.settle()
        why = self._refusal(page, notes, request)
        if why is None and request.cookie:
            why = shown_cookie(page, request.cookie, request)
        if why is None and (page.tags or notes.tags):
            why = _add_tags(page, notes)
        if why is not None:
            return why
        if page.blanks is not None and page.blanks.random_bytes is not None:
            # Each answer has another length.
            page.headers = without(page.headers, {b"content-length"})
        elif page.length is None and page.status not in BODILESS:
            # Servers would otherwise send the body in chunks.
            page.headers.append((b"content-length", b"%d" % page.size))
            page.length = page.size
        page.since = since
        why = self.stored.put(request, page)
        if why is None:
            self.figures.count("stored")
            if request.traces is not None:
                self.report(request, page)
        return why

    def updated(self, request: Request, stored: Page, headers: Headers, seconds: float) -> tuple[Page, Refusal | None]:
        """Return a copy of a stored page with the headers of a 304 that has validated it, and the reason why it must
        not be stored, or None. The 304 may set a cookie, for example."""
        merged = rules.updated_headers(stored.headers, headers)
        arrived = merged + rules.updated_targeted(stored.targeted, headers)
        arrived += [pair for pair in headers if pair[0] == b"age"]
        response = Response(stored.status, arrived)
        page = self._page(response, stored.reason, merged, self._freshness(request, response, seconds), stored.view)
        page.fields |= stored.fields
        page.length = stored.length
        page.fill(stored.body)
        page.tags = checks.cache_tags(map(decoded, values(headers, CACHE_TAG))) or stored.tags
        return page, self._refused(request, response)

    def refused(self, why: Refusal, request: Request, view: str) -> None:
        """Count a response that was not stored, and publish the figures even if nothing is ever stored."""
        self.figures.refused(why, request.path, view)
        self.stored.start_jobs()
        self.report(request, why)

    def report(self, request: Request, outcome: Page | Refusal) -> None:
        """Report to a developer who asks what became of a response of the application."""
        traces = request.traces
        if traces is not None:
            traces.outcome, traces.sessions = outcome, self.options.sessions.fields
            traces.figures = self.figures

    # Removing.

    def invalidate(self, request: Request, status: int, headers: Headers) -> None:
        """Remove the pages that a successful request with an unsafe method has outdated."""
        if not rules.is_invalidating(request.method, status):
            return
        outdated = {self.stored.tag_of(request.host, request.path, request.query)}
        for name in (b"location", b"content-location"):
            target = single(headers, name)
            if target is not None:
                outdated |= self._tags_of(request, target.decode("latin-1"))
        for tag in outdated:
            self.stored.purge(tag)

    def _tags_of(self, request: Request, target: str) -> set[str]:
        """Return the tag of the page that a header of the response names, if it is on the same host."""
        # A malformed URL names no page.
        with suppress(ValueError):
            host, *rest = parts_of_url(urljoin(f"//{request.host}{quote(request.path, encoding='latin-1')}", target))
            if host.lower() == request.host.lower():
                return {self.stored.tag_of(host, *rest)}
        return set()


def _without_lifetime(response: Response) -> Refusal:
    """Return why a response without a useful lifetime is not stored."""
    status = response.status
    if status in rules.SERVER_ERRORS:
        return refusal("error", f"status {status}")
    # No rule gives other statuses a lifetime.
    return NO_LIFETIME if status in rules.GIVEN_LIFETIME else refusal("status", f"status {status}")


def _without_tokens(response: Response, blanked: Blanked | None) -> Response:
    """Return a response without the headers that belong to the tokens of its visitor."""
    if blanked is None:
        return response
    return Response(response.status, [pair for pair in response.headers if not blanked.is_of_the_visitor(pair)])


def _of_visitor(page: Page, request: Request, value_cookies: frozenset[bytes]) -> Iterator[Refusal]:
    """Yield the reason if the page depends on a cookie that the visitor has, and only a rule gives it a lifetime.

    The author of such a page did not say that it may be used again: it may show the visitor's basket.

    Args:
        value_cookies: see ``Site``.
    """
    header = request.cookie
    if header is None:
        return
    # A header that frameworks may read differently is refused elsewhere, if the page depends on a single cookie.
    for name in sorted(cookies(header) or {COOKIE: b""}):
        if name not in value_cookies and (COOKIE in page.fields or cookie_field(name) in page.fields):
            depends = f"depends on the cookie {name.decode('latin-1')}, which this visitor has"
            yield refusal("visitor", f"{depends}; only a rule gives it a lifetime", cookie=name)


def _refused_encoding(page: Page, request: Request) -> Refusal | None:
    """Return why the key of a page does not show which content coding the client accepts, or None."""
    accepted = accepted_encodings(request.value(b"accept-encoding") or b"")
    if accepted is None:
        return UNUSUAL_ENCODING
    encoding = single(page.headers, b"content-encoding")
    return ENCODING if encoding is not None and encoding.lower() not in accepted else None


def _add_tags(page: Page, notes: PageNotes) -> Refusal | None:
    """Add the tags that the application noted. Return the reason if the page must not be stored with its tags."""
    try:
        page.tags = checks.tags("the tags of a page", sorted({*page.tags, *notes.tags}))
    except (TypeError, ValueError) as error:
        logger.warning("A page is not stored: %s", error)
        return WRONG_TAGS
    return None
