"""A shared HTTP cache in the process of the site. See ``http_cache.HTTPCache``."""

from wheelcache.http_cache.http_cache import HTTPCache
from wheelcache.http_cache.notes import NOTES_KEY, PageNotes
from wheelcache.http_cache.page_rules import bypass, grace, ttl, without_cookies
from wheelcache.http_cache.query import TRACKING
from wheelcache.stats import PageStats

__all__ = ["NOTES_KEY", "TRACKING", "HTTPCache", "PageNotes", "PageStats", "bypass", "grace", "ttl", "without_cookies"]
