"""A shared HTTP cache in the process of the site. See ``pages.http_cache.HTTPCache``."""

from wheelcache.pages.http_cache import HTTPCache
from wheelcache.pages.notes import NOTES_KEY, PageNotes
from wheelcache.pages.page_rules import bypass, grace, ttl, without_cookies
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.query import TRACKING

__all__ = ["NOTES_KEY", "TRACKING", "HTTPCache", "PageNotes", "PageStats", "bypass", "grace", "ttl", "without_cookies"]
