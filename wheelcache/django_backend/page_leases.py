"""The two entries in which Django's cache middleware and ``cache_page`` keep a page, stored in the right order.

One is the list of the request headers that the page depends on, the other the page for certain values of them. On a
miss of the first, the key of the second cannot be known. So the lease on the first stands for the page: the list is
held back until the page is there. Otherwise the waiters for the list would get it, miss the page, and make it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.runtime.request_scope import current_scope

PREFIX: Final = "views.decorators.cache."
HEADERS: Final = f"{PREFIX}cache_header."

_PAGE: Final = re.compile(r"views\.decorators\.cache\.cache_page\.(.*)\.[A-Z]+\.([0-9a-f]{32})\.[0-9a-f]{32}(\..*)?")
"""Key prefix, method, hash of the URL, hash of the headers, language and time zone."""


def is_of_page(key: Any) -> bool:
    """Return whether ``key`` is that of a page or of a list of headers."""
    return type(key) is str and key.startswith(PREFIX)


def is_held_back(cache: Cache, key: Any, cache_key: Any, store: Callable[[], object]) -> bool:
    """Return whether ``key`` is that of a list of headers on which the running code has a lease. Then ``store()`` is
    called when the page is stored, or when the request ends."""
    if type(key) is not str or not key.startswith(HEADERS) or not cache.parts.is_leased(cache_key):
        return False
    current_scope().held_back[cache, cache_key] = store
    return True


def store_headers(cache: Cache, page: Any, key_of: Callable[[str], Any]) -> None:
    """Store the list of headers that was held back until ``page`` was stored, if that is the key of a page.

    Args:
        key_of: returns the key of the cache for a key of the caller.
    """
    match = _PAGE.fullmatch(page) if type(page) is str else None
    if match is not None:
        headers = f"{HEADERS}{match[1]}.{match[2]}{match[3] or ''}"
        current_scope().store_held_back((cache, key_of(headers)))
