"""A shared HTTP cache (RFC 9111) in the process of the site, in front of the application: ``HTTPCache``.

The path of a request:

- ``wsgi``, ``asgi``: the two drivers, which alone do I/O. ``keys`` makes the key of the page.
- ``pages``: decides: a stored page, a run of the application, or a wait for the run of another request.
- ``run``: one run of the application. ``storing`` decides whether its response is stored: ``rules`` are those of HTTP,
  ``page_rules`` those of the site, and ``reasons`` has each reason for a refusal.
- ``stored_pages``, ``variants``: the pages in the cache, with their variants and tags.
- ``watched``, ``reads``, ``notes``: which parts of the request the application has read.
- ``blanks``, ``csrf_tokens``: places of a page that are different for each visitor.
- ``rehearsing``, ``rehearsal``, ``comparison``: stores pages and compares them, but serves none of them.
- ``django_pages``, ``flask_pages``: the additions of each framework. ``site`` passes some of them to all parts.

To add an option: a field of ``Options`` in ``options``, with its line in the docstring there. Every part has the same
``Options``. To add a reason for which a page is not stored: a ``Refusal`` in ``reasons``. To add a figure: a field of
``PageStats`` in ``page_stats``.

The names are imported at the first access: a thread that imports a part of this package, such as the URLconf of the
dashboard, must not wait for another thread that imports the package, which would wait for that part.
"""

from typing import TYPE_CHECKING

from wheelcache.engine.guests import lazy_names

if TYPE_CHECKING:
    from wheelcache.pages.http_cache import HTTPCache
    from wheelcache.pages.notes import NOTES_KEY, PageNotes
    from wheelcache.pages.page_rules import bypass, fail_safe, grace, ttl, without_cookies
    from wheelcache.pages.page_stats import PageStats
    from wheelcache.pages.query import TRACKING

__all__ = [
    "NOTES_KEY",
    "TRACKING",
    "HTTPCache",
    "PageNotes",
    "PageStats",
    "bypass",
    "fail_safe",
    "grace",
    "ttl",
    "without_cookies",
]

__getattr__ = lazy_names(
    __name__,
    {
        "HTTPCache": "wheelcache.pages.http_cache",
        "NOTES_KEY": "wheelcache.pages.notes",
        "PageNotes": "wheelcache.pages.notes",
        "PageStats": "wheelcache.pages.page_stats",
        "TRACKING": "wheelcache.pages.query",
        "bypass": "wheelcache.pages.page_rules",
        "fail_safe": "wheelcache.pages.page_rules",
        "grace": "wheelcache.pages.page_rules",
        "ttl": "wheelcache.pages.page_rules",
        "without_cookies": "wheelcache.pages.page_rules",
    },
)
