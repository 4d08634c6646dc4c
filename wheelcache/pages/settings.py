"""The options of an HTTP cache."""

from __future__ import annotations

from dataclasses import dataclass

from wheelcache.pages.blanks import Tokens
from wheelcache.pages.cache_status import CacheStatus
from wheelcache.pages.mode import Mode
from wheelcache.pages.page_rules import PageRules
from wheelcache.pages.reads import IgnoredReads
from wheelcache.pages.request import LostCookies, Sessions
from wheelcache.pages.variants import Normalization


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of an HTTP cache besides its ``Policy``.

    Attributes:
        normalization: turns values of headers into parts of keys.
        page_rules: the site's rules for its paths.
        lost_cookies: the cookies that some pages lose; None if no page loses any.
        sessions: a request with one of these cookies stores only pages that depend on it or on all cookies.
        needs_notes: whether a page is stored only if the application called ``PageNotes.vary_on``.
        ignored: the reads that do not change a page.
        mode: what the cache does with stored pages.
        tokens: fills the blanks of pages; None if pages with tokens are not stored.
        cache_status: writes the header Cache-Status.
        wait: the maximum seconds that a request waits for another one.
        serve_stale_after: the seconds after which a request gets a stale page while its renewal runs; None to wait.
    """

    normalization: Normalization
    page_rules: PageRules
    lost_cookies: LostCookies | None
    sessions: Sessions
    needs_notes: bool
    ignored: IgnoredReads
    mode: Mode
    tokens: Tokens | None
    cache_status: CacheStatus
    wait: float
    serve_stale_after: float | None
