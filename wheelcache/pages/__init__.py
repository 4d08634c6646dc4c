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
- ``django_pages``, ``flask_pages``: what each framework adds.

To add an option: a field of ``Options`` in ``options``, with its line in the docstring there. Every part has the same
``Options``. To add a reason for which a page is not stored: a ``Refusal`` in ``reasons``. To add a figure: a field of
``PageStats`` in ``page_stats``.
"""

from wheelcache.pages.http_cache import HTTPCache
from wheelcache.pages.notes import NOTES_KEY, PageNotes
from wheelcache.pages.page_rules import bypass, grace, ttl, without_cookies
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.query import TRACKING

__all__ = ["NOTES_KEY", "TRACKING", "HTTPCache", "PageNotes", "PageStats", "bypass", "grace", "ttl", "without_cookies"]
