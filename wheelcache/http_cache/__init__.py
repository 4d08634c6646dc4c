"""A shared HTTP cache in the process of the site. See ``http_cache.HTTPCache``."""

from wheelcache.http_cache.http_cache import HTTPCache
from wheelcache.http_cache.notes import SEAM, PageNotes
from wheelcache.stats import PageStats

__all__ = ["SEAM", "HTTPCache", "PageNotes", "PageStats"]
