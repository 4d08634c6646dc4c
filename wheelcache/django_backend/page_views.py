"""The views of the pages of ``cache_page`` and of Django's cache middleware, for the figures.

A hit needs no view: the entry remembers it. After a miss, the backend must learn which request it serves, and Django
passes no request to a cache: its cache middleware has it in a local variable, a few frames above the backend. The
middleware of a whole site looks up a page before Django finds the view, so the URL is resolved here as well.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from django.http import HttpRequest
from django.urls import resolve

from wheelcache.core.contract import VIEW

MOST_FRAMES: Final = 10
"""The calls between the cache middleware and the backend. Subclasses and wrappers may add some to Django's three."""


class PageViews:
    """Finds the views of pages.

    Attributes:
        are_used: whether a page was missed. Until then, a ``set`` need not look for a view.
    """

    def __init__(self) -> None:
        self.are_used = False

    def find(self) -> None:
        """Set ``VIEW`` to the name of the view of the running request, after a miss of its page, and when the page is
        stored: a view may have asked for other pages in between. Only pages are counted for ``VIEW``, so it stays set
        until the next page."""
        self.are_used = True
        request = _running_request()
        VIEW.set(None if request is None else _view_of(request))


page_views: Final = PageViews()


def _view_of(request: HttpRequest) -> str | None:
    match = getattr(request, "resolver_match", None)
    if match is None:
        try:
            match = resolve(request.path_info, getattr(request, "urlconf", None))
        except Exception:
            # No view has this URL, or a converter fails, which Django will report.
            return None
    return match.view_name


def _running_request() -> HttpRequest | None:
    """Return the request that the cache middleware above the caller serves."""
    frame: Any = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        frame = frame.f_back
        if frame is None:
            return None
        code = frame.f_code
        if "request" in code.co_varnames or "request" in code.co_cellvars:
            found: Any = frame.f_locals.get("request")
            if type(found).__module__.startswith("rest_framework."):
                # An object of Django REST framework's own around the request.
                found = found._request
            # Not isinstance: a proxy for a request would be asked for its class, and may fail.
            if issubclass(type(found), HttpRequest):
                return found  # type: ignore[no-any-return]
    return None
