"""The keys under which Django's cache middleware and ``cache_page`` keep a page, which are two.

Under one is the list of the request headers that the page depends on, under the other the page for certain values of
them. On a miss of the first the second cannot be known. So the lease on the first stands for the page: the backend
holds the list back until the page is there, or the waiters for the list would get it, miss the page, and make it
again.
"""

from __future__ import annotations

import re
from typing import Any, Final

PREFIX: Final = "views.decorators.cache."
HEADERS: Final = f"{PREFIX}cache_header."

_PAGE: Final = re.compile(r"views\.decorators\.cache\.cache_page\.(.*)\.[A-Z]+\.([0-9a-f]{32})\.[0-9a-f]{32}(\..*)?")
"""Key prefix, method, hash of the URL, hash of the headers, language and time zone."""


def is_of_page(key: Any) -> bool:
    """Whether a page, or a list of headers, is kept under ``key``."""
    return type(key) is str and key.startswith(PREFIX)


def is_headers(key: str) -> bool:
    """Whether a list of headers is kept under ``key``."""
    return key.startswith(HEADERS)


def headers_of(key: str) -> str | None:
    """The key of the list of headers that goes with the page under ``key``; None if there is no page."""
    match = _PAGE.fullmatch(key)
    return match and f"{HEADERS}{match[1]}.{match[2]}{match[3] or ''}"
