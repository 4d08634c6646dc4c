"""``HTTPCache``: a shared HTTP cache (RFC 9111) in the process of the site, in front of the application."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.http_cache import asgi as asgi_driver
from wheelcache.http_cache import wsgi as wsgi_driver
from wheelcache.http_cache.host_purges import HostPurges
from wheelcache.http_cache.pages import Pages
from wheelcache.http_cache.rules import Policy
from wheelcache.http_cache.stored_pages import weigh
from wheelcache.http_cache.variants import Normalization
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.stats import PageStats


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
        wait: the maximum seconds that a request waits while another request runs the application for the same page.
        heuristic_freshness: whether pages with Last-Modified and without a lifetime are fresh for a tenth of their age.
        request_directives: whether requests may demand fresher pages, or accept staler ones, with Cache-Control.
        store_errors: whether responses with a status of 500 or more are stored if they specify a lifetime.
        authorized: whether responses to requests with Authorization are stored if they have ``public``, ``s-maxage`` or
            ``must-revalidate`` (RFC 9111, 3.5).
        invalidate: whether a successful POST, PUT, PATCH or DELETE removes the pages of its URL. Pass False if
            strangers can make such requests and must not empty the cache with them.
        cache_status: whether responses have a Cache-Status (RFC 9211).
        coherence: with "host", a purge takes effect in all processes of this machine that have an HTTP cache of this
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
        wait: float = 10,
        heuristic_freshness: bool = False,
        request_directives: bool = False,
        store_errors: bool = True,
        authorized: bool = True,
        invalidate: bool = True,
        cache_status: bool = True,
        coherence: str | None = None,
        figures_dir: Path | None = None,
        clock: Clock = SystemClock.monotonic,
        wall_clock: Clock = SystemClock.travelling_time,
    ) -> None:
        policy = Policy(
            stale_while_revalidate=options.seconds_or_zero("stale_while_revalidate", stale_while_revalidate),
            stale_if_error=options.seconds_or_zero("stale_if_error", stale_if_error),
            heuristic_freshness=options.flag("heuristic_freshness", heuristic_freshness),
            request_directives=options.flag("request_directives", request_directives),
            store_errors=options.flag("store_errors", store_errors),
            authorized=options.flag("authorized", authorized),
            invalidate=options.flag("invalidate", invalidate),
            max_body=options.count("max_body", max_body),
        )
        normalization = Normalization(
            cookies=None if cookies is None else _names("cookies", cookies),
            languages=None if languages is None else frozenset(map(bytes.lower, _names("languages", languages))),
        )
        self._wait = options.seconds("wait", wait)
        self.cache = Cache(
            name,
            max_weight=options.count("max_bytes", max_bytes),
            weigher=weigh,
            jitter=0.0,
            figures_dir=figures_dir,
            clock=clock,
        )
        self.pages = Pages(
            self.cache,
            policy,
            normalization,
            session_cookies=_names("session_cookies", session_cookies),
            needs_notes=options.flag("companion", companion),
            shows_status=options.flag("cache_status", cache_status),
            host_purges=None if options.coherence("coherence", coherence) is None else HostPurges(name, clock),
            clock=clock,
            wall=wall_clock,
        )
        lifecycle.HELD.add_weakly(self)

    def wsgi(self, app: wsgi_driver.App) -> wsgi_driver.WsgiCache:
        """Return a WSGI application that answers from stored pages, and otherwise calls ``app``."""
        return wsgi_driver.WsgiCache(app, self.pages, self._wait)

    def asgi(self, app: asgi_driver.App) -> asgi_driver.AsgiCache:
        """Return an ASGI application that answers from stored pages, and otherwise calls ``app``."""
        return asgi_driver.AsgiCache(app, self.pages, self._wait)

    def purge(self, url: str) -> int:
        """Remove the page at an absolute URL with all its variants, for http and https.

        Return the number of removed pages.

        Raises:
            ValueError: if the URL has no host.
        """
        if not urlsplit(url).netloc:
            raise ValueError(f"url must be an absolute URL, such as https://example.com/news/, not {url!r}")
        return self.pages.stored.purge_url(url)

    def purge_host(self, host: str) -> int:
        """Remove all pages of a host, such as ``"example.com"`` or ``"localhost:8000"``. Return their number."""
        return self.pages.stored.purge_host(host)

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
        self.pages.stored.delete_tags(tags)

    def stats(self) -> PageStats:
        """Return the figures of the pages. ``cache.stats()`` returns the figures that any cache has."""
        return self.pages.figures.stats()

    def before_fork(self) -> None:
        """Do nothing: ``after_fork`` replaces the locks in the child, so they need not be held during the fork."""

    def after_fork(self, *, in_child: bool) -> None:
        """Give the child fresh locks and figures, and forget the runs of the parent."""
        if in_child:
            self.pages.after_fork_in_child()


def _names(option: str, given: Iterable[str]) -> frozenset[bytes]:
    """Check an option that is a collection of names."""
    takes = "a list or another collection of strings"
    if isinstance(given, str):
        raise TypeError(f"{option} must be {takes}, not {given!r}")
    names = list(given)
    if not all(isinstance(name, str) and name.isascii() for name in names):
        raise TypeError(f"{option} must be {takes}, not {given!r}")
    return frozenset(name.encode() for name in names)
