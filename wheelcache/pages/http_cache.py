"""``HTTPCache``: a shared HTTP cache (RFC 9111) in the process of the site, in front of the application."""

from __future__ import annotations

from functools import partial
from typing import Any

from wheelcache.cache import Cache
from wheelcache.engine import options as checks
from wheelcache.pages import asgi as asgi_driver
from wheelcache.pages import wsgi as wsgi_driver
from wheelcache.pages.figures import Figures
from wheelcache.pages.keys import ALL, host_tag, prefix_tag
from wheelcache.pages.mode import ON, REHEARSE, Mode
from wheelcache.pages.options import Options, checked_options, options_of_init
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.pages import Pages
from wheelcache.pages.rehearsing import Rehearsal
from wheelcache.pages.site import Site
from wheelcache.pages.stored_pages import StoredPages, weigh
from wheelcache.pages.storing import Storing
from wheelcache.runtime import lifecycle


class PageCache:
    """Stores whole responses of an application, and answers from them as RFC 9111 allows it.

    The application's header ``Cache-Control`` determines how long a response may be used. Without a lifetime, a
    response is not stored.

    Args:
        options: the checked options.
        site: the site behind the cache.
    """

    def __init__(self, options: Options, site: Site) -> None:
        self.options = options
        clock, mode = site.clock, Mode(ON if options.rehearse is None else REHEARSE)
        self.cache = Cache(
            options.name,
            max_weight=options.max_bytes,
            weigher=weigh,
            jitter=0.0,
            figures_dir=options.figures_dir,
            clock=clock,
        )
        rehearsal = Rehearsal(options, site)
        figures = Figures(rehearsal.counts, mode.change)
        stored = StoredPages(self.cache, options, figures)
        turns = self.cache.engine.keep_pages(
            figures, clock, purge=stored.purge_target, before_clear=partial(stored.purge, ALL)
        )
        storing = Storing(options, site, stored, mode, figures, rehearsal)
        self.pages = Pages(storing, turns)
        self._renewed = (stored, storing.shared_pages, rehearsal, turns)
        lifecycle.HELD.add_weakly(self)

    def wsgi(self, app: wsgi_driver.App) -> wsgi_driver.WsgiCache:
        """Return a WSGI application that answers from stored pages, and otherwise calls ``app``."""
        return wsgi_driver.WsgiCache(app, self.pages)

    def asgi(self, app: asgi_driver.App) -> asgi_driver.AsgiCache:
        """Return an ASGI application that answers from stored pages, and otherwise calls ``app``."""
        return asgi_driver.AsgiCache(app, self.pages)

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
        for tag in checks.tags("tags", tags):
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


class HTTPCache(PageCache):
    """The HTTP cache of an application without a framework: see ``PageCache``.

    >>> pages = HTTPCache(max_bytes=64 * 2**20)
    >>> application = pages.wsgi(application)

    Args:
        options: see ``Options``.

    Raises:
        TypeError, ValueError: if an option is unknown or invalid.
    """

    @options_of_init(Options)
    def __init__(self, name: str = "pages", **options: Any) -> None:
        super().__init__(checked_options(Options, name, options), Site())
