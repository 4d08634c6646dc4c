"""``HTTPCache``: a shared HTTP cache (RFC 9111) in the process of the site, in front of the application."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from wheelcache.cache import Cache
from wheelcache.engine import options
from wheelcache.engine.runtime import lifecycle
from wheelcache.engine.runtime.clock import Clock, SystemClock
from wheelcache.pages import asgi as asgi_driver
from wheelcache.pages import wsgi as wsgi_driver
from wheelcache.pages.blanks import Tokens
from wheelcache.pages.cache_status import CacheStatus
from wheelcache.pages.figures import Figures
from wheelcache.pages.keys import ALL, host_tag, prefix_tag
from wheelcache.pages.marks import Marks
from wheelcache.pages.mode import ON, REHEARSE, Mode
from wheelcache.pages.page_rules import PageRule, PageRules
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.pages import Pages
from wheelcache.pages.query import QueryRules
from wheelcache.pages.reads import IgnoredReads
from wheelcache.pages.rehearsing import DEFAULT_SHARE, Rehearsal
from wheelcache.pages.request import LostCookies, Sessions
from wheelcache.pages.rules import Policy
from wheelcache.pages.settings import Settings
from wheelcache.pages.shared_pages import SharedPages
from wheelcache.pages.stored_pages import StoredPages, weigh
from wheelcache.pages.storing import Storing
from wheelcache.pages.variants import Normalization


class HTTPCache:
    """Stores whole responses of an application, and answers from them as RFC 9111 allows it.

    >>> pages = HTTPCache(max_bytes=64 * 2**20)
    >>> application = pages.wsgi(application)

    The application's header ``Cache-Control`` determines how long a response may be used. Without a lifetime, a
    response is not stored.

    Args:
        name: the name of the cache in log lines and figures.
        max_bytes: the maximum size of all pages together, in bytes.
        max_body: the maximum size of the body of one page, in bytes.
        stale_while_revalidate, stale_if_error: seconds for which a page may be used after its lifetime, while it is
            renewed in the background and when the application fails; for pages that do not specify them.
        cookies: the cookies on which pages with ``Vary: Cookie`` depend; None for the whole header.
        session_cookies: a request with one of these cookies gets only pages that depend on it, or on all cookies.
        languages: the languages of the site; other languages that a client accepts are ignored. None to ignore none.
        companion: whether a page is stored only if the application reports the cookies and headers on which it depends:
            see ``notes``.
        tokens: for companions: fills the blanks of pages that have tokens of their visitors: see ``blanks``.
        wait: the maximum seconds that a request waits while another request runs the application for the same page.
        serve_stale_after: the seconds after which a request gets a page that may be used instead of an error
            (``stale_if_error``), while the application takes longer to renew it; None to wait.
        ignore_query: the query parameters that neither the application nor the key of a page sees; ``TRACKING`` names
            those of analytics and advertising. A trailing ``*`` stands for any text.
        sort_query: whether query parameters are sorted by their names, for the application and for the key.
        rules: the site's rules for its paths: see ``page_rules``.
        rehearse: the share, above 0 and up to 1, of the requests that would have been hits whose answers are compared
            with the stored page. No page is served: see ``rehearsal``. None to serve pages.
        ignore_reads: request headers and entries of the environ that a companion does not count as dependencies.
        ignore_reads_by: dotted names of middleware and functions whose reads it does not count.
        authorized: whether responses to requests with Authorization are stored if they have ``public``, ``s-maxage`` or
            ``must-revalidate`` (RFC 9111, 3.5).
        invalidate: whether a successful POST, PUT, PATCH or DELETE removes the pages of its URL. Pass False if
            strangers can make such requests and must not empty the cache with them.
        cache_status: whether responses have a Cache-Status (RFC 9211), which gives the reason if a response is not
            stored; "short" to leave out this ``detail``.
        shared_purges: whether a purge takes effect in all processes of this machine that have an HTTP cache of this
            name.
        figures_dir: the directory in which the processes of a site publish their figures, as for ``Cache``.
        clock, wall_clock: return seconds: a steady clock, and the time since 1970.
    """

    def __init__(
        self,
        name: str = "pages",
        *,
        max_bytes: int = 64 << 20,
        max_body: int = 1 << 20,
        stale_while_revalidate: float = 0,
        stale_if_error: float = 0,
        cookies: Iterable[str] | None = None,
        session_cookies: Iterable[str] = (),
        languages: Iterable[str] | None = None,
        companion: bool = False,
        tokens: Tokens | None = None,
        wait: float = 10,
        serve_stale_after: float | None = None,
        ignore_query: Iterable[str] = (),
        sort_query: bool = False,
        rules: Iterable[tuple[str, PageRule]] = (),
        rehearse: float | None = None,
        ignore_reads: Iterable[str] = (),
        ignore_reads_by: Iterable[str] = (),
        authorized: bool = True,
        invalidate: bool = True,
        cache_status: bool | str = True,
        shared_purges: bool = False,
        figures_dir: Path | None = None,
        clock: Clock = SystemClock.steady,
        wall_clock: Clock = SystemClock.travelling_time,
    ) -> None:
        policy = Policy(
            stale_while_revalidate=options.seconds_or_zero("stale_while_revalidate", stale_while_revalidate),
            stale_if_error=options.seconds_or_zero("stale_if_error", stale_if_error),
            authorized=options.flag("authorized", authorized),
            invalidate=options.flag("invalidate", invalidate),
            max_body=options.count("max_body", max_body),
        )
        sessions = _names("session_cookies", session_cookies)
        normalization = Normalization(
            # A page that varies by cookie depends on the session, whichever of the cookies that is.
            cookies=None if cookies is None else _names("cookies", cookies) | sessions,
            languages=None if languages is None else frozenset(map(bytes.lower, _names("languages", languages))),
        )
        page_rules = PageRules(rules)
        if kept := page_rules.lost_cookies() & sessions:
            raise ValueError(
                f"without_cookies() in rules must not name the cookie of a session: {options.shown(min(kept).decode())}"
            )
        settings = Settings(
            normalization,
            page_rules,
            LostCookies(page_rules) if page_rules.lost_cookies() else None,
            Sessions(sessions),
            needs_notes=options.flag("companion", companion),
            ignored=IgnoredReads(ignore_reads, ignore_reads_by),
            mode=Mode(ON if rehearse is None else REHEARSE),
            tokens=tokens,
            cache_status=CacheStatus(_cache_status(cache_status)),
            wait=options.seconds("wait", wait),
            serve_stale_after=options.or_none(options.seconds)("serve_stale_after", serve_stale_after),
        )
        query_rules = QueryRules(ignore_query, sort=sort_query)
        self._query_rules = query_rules if ignore_query or sort_query else None
        shares_purges = options.flag("shared_purges", shared_purges)
        max_bytes = options.count("max_bytes", max_bytes)
        self.cache = Cache(
            name,
            max_weight=max_bytes,
            weigher=weigh,
            jitter=0.0,
            figures_dir=figures_dir,
            clock=clock,
        )
        share = DEFAULT_SHARE if rehearse is None else options.share("rehearse", rehearse)
        rehearsal = Rehearsal(share, settings, policy.max_body, clock)
        figures = Figures(rehearsal.counts, settings.mode.change)
        marks = Marks()
        shared = name if shares_purges else None
        stored = StoredPages(self.cache, max_bytes, marks, normalization, query_rules, figures, shared)
        turns = self.cache.engine.keep_pages(
            figures, clock, purge=stored.purge_target, before_clear=partial(stored.purge, ALL)
        )
        shared_pages = SharedPages()
        storing = Storing(stored, policy, settings, figures, rehearsal, shared_pages, clock=clock, wall=wall_clock)
        self.pages = Pages(storing, turns)
        self._renewed = (stored, marks, rehearsal, shared_pages, turns)
        lifecycle.HELD.add_weakly(self)

    def wsgi(self, app: wsgi_driver.App) -> wsgi_driver.WsgiCache:
        """Return a WSGI application that answers from stored pages, and otherwise calls ``app``."""
        return wsgi_driver.WsgiCache(app, self.pages, self._query_rules)

    def asgi(self, app: asgi_driver.App) -> asgi_driver.AsgiCache:
        """Return an ASGI application that answers from stored pages, and otherwise calls ``app``."""
        return asgi_driver.AsgiCache(app, self.pages, self._query_rules)

    def purge(self, url: str, *, soft: bool = False) -> int:
        """Remove the page at an absolute URL with all its variants, for http and https.

        Args:
            soft: make the pages stale instead: visitors get them, during the rest of their lifetime, until a renewal
                has replaced them.

        Returns:
            The number of removed or outdated pages, each variant counted, that this process has stored. With
            ``shared_purges``, other processes may have removed others.

        Raises:
            ValueError: if the URL has no host.
        """
        return self.pages.storing.stored.purge_url(url, soft=soft)

    def purge_prefix(self, url: str, *, soft: bool = False) -> int:
        """Remove the pages in a directory, such as ``"https://example.com/news/"``, and in those below it: see
        ``purge``.

        Raises:
            ValueError: if the URL has no host, does not end with a slash, or has a path with more than 8 slashes or 500
                characters.
        """
        return self.pages.storing.stored.purge(prefix_tag(url), soft=soft)

    def purge_host(self, host: str, *, soft: bool = False) -> int:
        """Remove all pages of a host, such as ``"example.com"`` or ``"localhost:8000"``: see ``purge``."""
        return self.pages.storing.stored.purge(host_tag(host), soft=soft)

    def purge_all(self) -> None:
        """Remove all pages, as ``cache.clear`` does. Runs of the application that are in progress store nothing."""
        self.cache.clear()

    def delete_tags(self, *tags: str) -> None:
        """Remove the pages with one of the tags. Runs that are in progress store no page with one of them.

        A page has the tags that its response lists in ``Cache-Tag``, separated by commas, and those that the
        application adds to ``PageNotes.tags``: in Django ``request.cache_tags``, in Flask ``g.cache_tags``. A page with
        more than 64 tags is not stored. The header is not sent to clients.

        Raises:
            TypeError, ValueError: if a tag is not a string, or is empty.
        """
        for tag in options.tags("tags", tags):
            self.pages.storing.stored.purge(tag)

    def stats(self) -> PageStats:
        """Return the figures of the pages. ``cache.stats()`` returns the figures that any cache has."""
        return self.pages.figures.stats()

    def before_fork(self) -> None:
        """Do nothing: ``after_fork`` replaces the locks in the child, so they need not be held during the fork."""

    def after_fork(self, *, in_child: bool) -> None:
        """Give the child fresh locks and figures, and forget the runs of the parent."""
        if in_child:
            for each in self._renewed:
                each.after_fork_in_child()


def _cache_status(given: bool | str) -> bool | str:
    if given == "short":
        return given
    if not isinstance(given, bool):
        raise TypeError(f'cache_status must be True, "short" or False, not {options.shown(given)}')
    return given


def _names(option: str, given: Iterable[str]) -> frozenset[bytes]:
    """Check an option that is a collection of names."""
    found = options.names(option, given, "a list or another collection of ASCII strings")
    return frozenset(name.encode() for name in found)
