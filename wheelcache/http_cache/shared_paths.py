"""Remembers the paths whose pages are not for one visitor, as far as their Cache-Control says.

A page that may lose cookies is made without them only on such a path: on any other one, the page could be private, and
its visitor would miss the cookies.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from wheelcache.http_cache.keys import LONGEST_KEY
from wheelcache.http_cache.request import Request
from wheelcache.runtime.shared_objects import lazy_lock

MOST_PATHS: Final = 4096
"""They take 2 MB at most."""


class SharedPaths:
    """The paths, by host."""

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._paths: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, request: Request) -> bool:
        return _place(request) in self._paths

    def note(self, request: Request, *, is_shared: bool) -> None:
        """Remember whether the last response was for all visitors."""
        place = _place(request)
        with self._lock.get():
            self._paths.pop(place, None)
            if is_shared:
                self._paths[place] = None
                if len(self._paths) > MOST_PATHS:
                    self._paths.popitem(last=False)

    def after_fork_in_child(self) -> None:
        self._lock.forget()


def _place(request: Request) -> str:
    return f"{request.host} {request.path}"[:LONGEST_KEY]
