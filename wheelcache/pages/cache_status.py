"""The header Cache-Status (RFC 9211), which says what the cache did with a request, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple

from wheelcache.pages.headers import Headers, as_text
from wheelcache.pages.reasons import Refusal

_TOKEN: Final = re.compile(r"[A-Za-z*][!#$%&'*+\-.^_`|~:/0-9A-Za-z]*")
_ESCAPED: Final = re.compile(r'[\\"]')
_WITH_BACKSLASH: Final = r"\\\g<0>"
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


class Announcement(NamedTuple):
    """Headers that the cache adds to a response of the application, for ASGI and for WSGI."""

    headers: Headers
    text: list[tuple[str, str]]


NO_ANNOUNCEMENT: Final = Announcement([], [])


class CacheStatus:
    """Writes the header.

    Args:
        shown: whether responses have it; "short" to leave out ``detail``.

    Attributes:
        forwarded: a function that returns the header of a request that was forwarded to the application: see
            ``_announcement``.
    """

    __slots__ = ("_shown", "forwarded")

    def __init__(self, shown: bool | str) -> None:
        self._shown = shown
        self.forwarded: Callable[..., Announcement] = partial(_announcement, shown)

    def hit(self, ttl: int, detail: str | None = None) -> Headers:
        """Return the header of a response that the cache sends."""
        return _header(self._shown, f"hit; ttl={ttl}", detail)

    def refused(self, detail: str) -> Headers:
        """Return the header of an error with which the cache itself answers."""
        return _header(self._shown, "", detail)


@lru_cache(256)
def _announcement(
    shown: bool | str, why: str, refusal: Refusal | None = None, status: int | None = None
) -> Announcement:
    """Return the header of a request that was forwarded to the application.

    Args:
        why: the parameter ``fwd``.
        refusal: why the response is not stored; None if it is.
        status: the status of the application's response, if the cache sends another one.
    """
    parameters = [f"fwd={why}"]
    if status is not None:
        parameters.append(f"fwd-status={status}")
    if refusal is None:
        parameters.append("stored")
    headers = _header(shown, "; ".join(parameters), None if refusal is None else refusal.detail)
    return Announcement(headers, as_text(headers))


def _header(shown: bool | str, parameters: str, detail: str | None) -> Headers:
    if not shown:
        return []
    parts = ["wheelcache", parameters] if parameters else ["wheelcache"]
    if detail is not None and shown != "short":
        text = _UNPRINTABLE.sub("?", detail)
        # A token as it is, and anything else as a string (RFC 8941).
        parts.append(f"detail={text}" if _TOKEN.fullmatch(text) else f'detail="{_ESCAPED.sub(_WITH_BACKSLASH, text)}"')
    return [(b"cache-status", "; ".join(parts).encode())]
