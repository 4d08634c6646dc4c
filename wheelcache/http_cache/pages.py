"""Decides about each request: answer it with a stored page, run the application for it, or let it bypass the cache."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.http_cache import rules
from wheelcache.http_cache.figures import Figures
from wheelcache.http_cache.flights import Flights
from wheelcache.http_cache.headers import (
    CACHE_TAG,
    Directives,
    Headers,
    cache_tags,
    decoded,
    directives,
    single,
    values,
)
from wheelcache.http_cache.host_purges import HostPurges
from wheelcache.http_cache.keys import SEPARATOR, host_of
from wheelcache.http_cache.marks import SESSION, Marks
from wheelcache.http_cache.notes import PageNotes
from wheelcache.http_cache.page import BODILESS, Page
from wheelcache.http_cache.replies import Reply, not_cached, not_modified, stored_reply
from wheelcache.http_cache.request import Request, bypasses, keyed_headers
from wheelcache.http_cache.rules import Policy, Use
from wheelcache.http_cache.run import Run
from wheelcache.http_cache.stored_pages import Moment, StoredPages
from wheelcache.http_cache.variants import COOKIE, Normalization, Variants, accepted_encodings, cookie_field, cookies
from wheelcache.runtime.clock import Clock

logger = logging.getLogger("wheelcache")

TAG_BYTES: Final = 100
"""Bytes that a tag of a page takes, besides its text."""

NEVER: Final = b"(?!)"
"""The regular expression that matches nothing."""


class Wait(NamedTuple):
    """The decision that a request waits for the run with this key to end."""

    key: str


class _Miss(NamedTuple):
    """The key of the page that a request selects, and the stale page if there is one."""

    key: str
    page: Page | None


class Pages:
    """The pages of an HTTP cache, and the rules about them.

    Args:
        cache: contains the pages and the variants, with the weigher ``weigh``.
        policy: see ``rules.Policy``.
        normalization: see ``variants.Normalization``.
        session_cookies: a request with one of these cookies gets only pages that depend on it or on all cookies.
        needs_notes: whether a page is stored only if the application called ``PageNotes.vary_on``.
        shows_status: whether responses have a Cache-Status.
        host_purges: the purges by all processes of the machine; None if each process purges only its own pages.
        clock: returns seconds, on a steady clock.
        wall: returns seconds since 1970.

    Attributes:
        stored: the stored pages.
        find: see ``StoredPages``.
    """

    def __init__(
        self,
        cache: Cache,
        policy: Policy,
        normalization: Normalization,
        *,
        session_cookies: frozenset[bytes],
        needs_notes: bool,
        shows_status: bool,
        host_purges: HostPurges | None,
        clock: Clock,
        wall: Clock,
    ) -> None:
        self.cache = cache
        self.policy = policy
        self.clock = clock
        self.shows_status = shows_status
        self.figures = Figures()
        cache.parts.observer.observe_pages(self.figures)
        self.flights = Flights()
        cache.parts.idle_checker.is_computing = lambda: self.flights.are_in_progress
        self.marks = Marks()
        self.stored = StoredPages(cache, self.marks, normalization, host_purges)
        self.find = self.stored.find
        self.session_cookies = session_cookies
        # Finds nothing in the cookies of requests that surely have no session.
        self.session_pattern = b"|".join(map(re.escape, session_cookies)) or NEVER
        self._normalization = normalization
        self._needs_notes = needs_notes
        self._wall = wall

    # Decisions.

    def decide(self, request: Request) -> Reply | Run | Wait | None:
        """Decide about a GET or a HEAD. Return None if it bypasses the cache."""
        answer = self._answer(request)
        if not isinstance(answer, _Miss):
            return answer
        key, page = answer
        return self._run(request, key, page, leads=True) if self.flights.lead(key) else Wait(key)

    def decide_after_wait(self, request: Request, key: str, *, leads: bool) -> Reply | Run | None:
        """Decide about a request that waited for the run of another one. It does not wait again.

        Args:
            key: the key of that run.
            leads: whether that run was cancelled, so that this request must run the application.
        """
        if leads:
            _, page = self._select(request)
            return self._run(request, key, page, leads=True)
        answer = self._answer(request)
        if isinstance(answer, _Miss):
            key, page = answer
            return self._run(request, key, page, leads=self.flights.lead(key))
        if isinstance(answer, Reply):
            self.figures.count("collapsed")
        return answer

    def _run(self, request: Request, key: str, page: Page | None, *, leads: bool) -> Run:
        if page is None:
            # Unlike ``find``, this counts the miss.
            self.cache.get(key)
            # From now on, requests of operators outdate the page.
            self.cache.parts.jobs.cache_is_used()
        return Run(self, request, key, page, leads=leads, is_marked=False)

    def _answer(self, request: Request) -> Reply | Run | _Miss | None:
        """Answer a request, or return a run if no other request can wait for its page, or a miss.

        Return None if the request bypasses the cache.
        """
        if bypasses(request):
            return None
        authorized = not request.is_plain and request.value(b"authorization") is not None
        if authorized and not self.policy.authorized:
            return None
        key, page = self._select(request)
        if key is None:
            return None
        if authorized and page is not None and not self._serves_authorized(page):
            return None
        now = self.clock()
        control = {} if request.is_plain else self._request_directives(request)
        if page is not None:
            use = page.freshness.use(page.age(now), control if self.policy.request_directives else None)
            if use is Use.FRESH:
                return self.reply(page, request, now, "fresh")
            if use is Use.WHILE_REVALIDATING:
                renewal = self._renewal(request, key, page)
                return self.reply(page, request, now, "stale", b"; detail=stale", renewal)
        if b"only-if-cached" in control:
            return not_cached()
        if request.method == "HEAD" or (page is None and request.value(b"range") is not None):
            return None
        if authorized or self.marks.get(key, now) is not None:
            return Run(self, request, key, page, leads=False, is_marked=True)
        if not request.is_safe():
            return None
        return _Miss(key, page)

    def _select(self, request: Request) -> tuple[str | None, Page | None]:
        """Return the key and the page that a request selects. The key is None if the request bypasses the cache."""
        key: str | None = request.key
        found = self.find(request.key)
        if type(found) is Variants:
            key = found.find(request.raw(found.headers))
            found = None if key is None else self.find(key)
        if found is not None and not self._may_use(found, request):
            found = None
        return key, found

    def _may_use(self, page: Page, request: Request) -> bool:
        """Return whether a page depends on all headers on which the answer to this request may depend."""
        return keyed_headers(request) <= page.fields and self._fits_session(page.fields, request)

    def is_keyed_by(self, page: Page | Variants, headers: Iterable[bytes], has_session: bool) -> bool:
        """Return whether the key of a page contains these headers, and the session if the request may have one.

        This is faster than ``_may_use``, and returns False for some requests that may use the page.
        """
        fields = page.fields
        return fields.issuperset(headers) and (
            not has_session or COOKIE in fields or fields.issuperset(map(cookie_field, self.session_cookies))
        )

    def _fits_session(self, fields: frozenset[bytes], request: Request) -> bool:
        """Return whether a page that depends on ``fields`` may answer a request that may have a session."""
        if not self.session_cookies or COOKIE in fields:
            return True
        session = self.session_cookies & cookies(request.value(b"cookie") or b"").keys()
        return all(cookie_field(name) in fields for name in session)

    def _serves_authorized(self, page: Page) -> bool:
        return bool(rules.response_directives(page.headers).keys() & rules.ALLOW_AUTHORIZED)

    def _request_directives(self, request: Request) -> Directives:
        control = request.value(b"cache-control")
        return {} if control is None else directives([control])

    def _renewal(self, request: Request, key: str, page: Page) -> Run | None:
        if not self.flights.lead(key):
            return None
        run = self._run(request, key, page, leads=True)
        run.has_client = False
        return run

    def reply(
        self,
        page: Page,
        request: Request,
        now: float,
        counted_as: str | None,
        detail: bytes = b"",
        renewal: Run | None = None,
    ) -> Reply:
        """Answer a request with a stored page.

        Args:
            counted_as: the field of ``PageStats``; None if no client receives the answer.
            detail: additional parameters of Cache-Status.
            renewal: a run that the driver starts in the background.
        """
        answer = stored_reply(page, request, now, self._wall(), detail)
        if counted_as is not None:
            self.figures.count(counted_as, len(answer.body))
        return answer if renewal is None else replace(answer, renewal=renewal)

    def unchanged(self, page: Page, request: Request) -> Reply | None:
        """Return a 304 if the client has the page already, otherwise None."""
        return not_modified(page, request, self._wall())

    # Storing.

    def page_of(
        self, request: Request, notes: PageNotes, status: int, reason: str, headers: Headers, seconds: float
    ) -> Page | str:
        """Return a page without a body for a response that has begun, or the reason why it must not be stored."""
        control = rules.response_directives(headers)
        authorized = request.value(b"authorization") is not None
        why = rules.refusal(status, headers, control, self.policy, authorized=authorized)
        freshness = rules.freshness(status, headers, control, self.policy, wall=self._wall(), seconds=seconds)
        fields = self._normalization.fields(rules.vary_fields(headers))
        length = single(headers, b"content-length")
        if why is None:
            why = self._other_refusal(freshness, length, fields, notes, request)
        if why is not None:
            return why
        stored = rules.storable_headers(headers)
        page = Page(status, reason, stored, freshness, fields, self.clock(), shows_status=self.shows_status)
        page.tags = cache_tags(map(decoded, values(headers, CACHE_TAG)))
        return page

    def _other_refusal(
        self,
        freshness: rules.Freshness,
        length: bytes | None,
        fields: frozenset[bytes],
        notes: PageNotes,
        request: Request,
    ) -> str | None:
        if not freshness.is_useful:
            return "no lifetime"
        if length is not None and (not length.isdigit() or int(length) > self.policy.max_body):
            return "max_body"
        if b"no-store" in self._request_directives(request):
            return "request"
        return self._refusal_by_notes(notes, fields, request)

    def _refusal_by_notes(self, notes: PageNotes, fields: frozenset[bytes], request: Request) -> str | None:
        """Return the reason for which the application's notes or the request forbid storing the page, or None."""
        if notes.refused is not None:
            return notes.refused
        if self._needs_notes and not notes.is_keyed:
            return "companion"
        if not self._fits_session(fields | notes.fields, request):
            return SESSION
        return None if request.is_safe() else "unsafe request"

    def _has_unwanted_encoding(self, request: Request, page: Page) -> bool:
        """Return whether the application chose a content coding that the key of the page does not show as accepted."""
        encoding = single(page.headers, b"content-encoding")
        if encoding is None or b"accept-encoding" not in page.fields:
            return False
        return encoding.lower() not in accepted_encodings(request.value(b"accept-encoding") or b"")

    def store(self, request: Request, page: Page, notes: PageNotes, began: Moment) -> str | None:
        """Store a page whose body is complete. Return the reason if it is not stored."""
        page.fields = fields = page.fields | notes.fields | keyed_headers(request)
        why = self._refusal_by_notes(notes, fields, request)
        if why is None and self._has_unwanted_encoding(request, page):
            why = "encoding"
        if why is None:
            why = _add_tags(page, notes)
        if why is None:
            _complete(page)
            why = self.stored.put(request, page, began)
        if why is None:
            self.figures.count("stored")
        return why

    def updated(self, stored: Page, headers: Headers, seconds: float) -> Page:
        """Return a copy of a stored page with the headers of a 304 that has validated it."""
        merged = rules.updated_headers(stored.headers, headers)
        control = rules.response_directives(merged)
        age = [pair for pair in headers if pair[0] == b"age"]
        freshness = rules.freshness(
            stored.status, merged + age, control, self.policy, wall=self._wall(), seconds=seconds
        )
        fields = stored.fields | self._normalization.fields(rules.vary_fields(merged))
        page = Page(
            stored.status, stored.reason, merged, freshness, fields, self.clock(), shows_status=self.shows_status
        )
        page.fill(stored.body)
        page.tags = cache_tags(map(decoded, values(headers, CACHE_TAG))) or stored.tags
        return page

    # Pages that could not be stored.

    def reconsider(self, request: Request, key: str, status: int, headers: Headers, notes: PageNotes) -> None:
        """Check another response of a marked page. If it could be stored, remove the mark, so that the next request
        stores its response."""
        page = self.page_of(request, notes, status, "", headers, 0.0)
        if isinstance(page, str):
            self.refused(page)
        else:
            self.marks.remove(key)
            self.refused("could not be stored before")

    def refused(self, reason: str) -> None:
        """Count a response that was not stored, and publish the figures even if nothing is ever stored."""
        self.figures.refused(reason)
        self.cache.parts.jobs.cache_is_used()

    # Removing.

    def forget(self, key: str) -> None:
        """Remove a page or a variant that the application no longer sends."""
        self.cache.delete(key)

    def invalidate(self, request: Request, status: int, headers: Headers) -> None:
        """Remove the pages that a successful request with an unsafe method has outdated."""
        if not (self.policy.invalidate and rules.is_invalidating(request.method, status)):
            return
        self.stored.purge_keys([request.key])
        for name in (b"location", b"content-location"):
            target = single(headers, name)
            if target is not None:
                self._purge_target(request.key, target.decode("latin-1"))

    def _purge_target(self, key: str, target: str) -> None:
        """Remove the page that a header of the response to the request for ``key`` names, on the same host only."""
        host = host_of(key)
        # A malformed URL names no page.
        with suppress(ValueError):
            url = urljoin(f"//{host}{quote(key.rpartition(SEPARATOR)[2], encoding='latin-1')}", target)
            if urlsplit(url).netloc.lower() == host:
                self.stored.purge_url(url)

    def after_fork_in_child(self) -> None:
        self.stored.after_fork_in_child()
        self.flights.after_fork_in_child()
        self.marks.after_fork_in_child()
        self.figures.after_fork_in_child()


def _add_tags(page: Page, notes: PageNotes) -> str | None:
    """Add the tags that the application noted. Return the reason if the page must not be stored with its tags."""
    try:
        page.tags = options.tags("the tags of a page", sorted({*page.tags, *notes.tags}))
    except (TypeError, ValueError) as error:
        logger.warning("A page is not stored: %s", error)
        return "tags"
    page.weight += sum(TAG_BYTES + len(tag) for tag in page.tags)
    return None


def _complete(page: Page) -> None:
    """Add the length of the body to the headers, which servers would otherwise send in chunks."""
    if page.status not in BODILESS and single(page.headers, b"content-length") is None:
        page.headers.append((b"content-length", b"%d" % page.size))
