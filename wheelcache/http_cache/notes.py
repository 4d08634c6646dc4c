"""The seam between the cache and the application: notes of the application about the page that it makes.

The drivers put a ``PageNotes`` into ``environ["wheelcache.page"]`` or ``scope["wheelcache.page"]`` of each run whose
response may be stored. There is none on a hit, as the application does not run, and none for a request that bypasses
the cache.

>>> notes = environ.get("wheelcache.page")
>>> if notes is not None:
...     notes.vary_on(headers=["X-Forwarded-Proto"], cookies=["theme"])

An application that takes responsibility for its keys calls ``vary_on`` on every run, if only without arguments. With
``HTTPCache(companion=True)``, pages of runs without such a call are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wheelcache.http_cache.variants import SOME_COOKIE, cookie_field

SEAM: Final = "wheelcache.page"
"""The key of the notes in the environ and in the scope."""


class PageNotes:
    """Notes of the application about the page that it makes, until its response ends.

    Attributes:
        fields: request headers and cookies on which the page depends, in addition to those that its Vary names.
        refused: the reason why the page must not be stored; None if it may be.
        is_keyed: the application called ``vary_on``.
        tags: the tags of the page, to which the application may add: see ``HTTPCache.delete_tags``.
    """

    # Attributes of the class until they are set: most runs set none, and a run should cost little.
    fields: frozenset[bytes] = frozenset()
    refused: str | None = None
    is_keyed = False

    def __init__(self) -> None:
        self.tags: set[str] = set()

    def vary_on(self, *, headers: Iterable[str] = (), cookies: Iterable[str] = ()) -> None:
        """Say that the page depends on these request headers and cookies.

        A page is stored once for each combination of their values, where an absent one differs from an empty one.
        """
        self.is_keyed = True
        self.fields |= {name.lower().encode("latin-1") for name in headers}
        self.fields |= {cookie_field(name.encode("latin-1")) for name in cookies}

    def vary_on_presence_of_cookies(self) -> None:
        """Say that the page depends on whether the request has any cookie."""
        self.fields |= {SOME_COOKIE}

    def refuse(self, reason: str) -> None:
        """Say that the page must not be stored. The reasons are counted: use few different ones."""
        self.refused = reason
