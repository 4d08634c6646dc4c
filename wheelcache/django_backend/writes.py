"""Watches the writes of sessions and cookies.

For developers who ask why a page is not stored, it records which code writes the session of a visitor and sets cookies.
Django keeps no record of this, and the response shows only the names of its cookies. So the methods of the session and
of the response are wrapped, at the first request whose reads are recorded; other requests pay a look at a variable.

Runs that repeat an earlier one save no session: it would lose the messages that no visitor has seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from wheelcache.http_cache.notes import NOTES_KEY
from wheelcache.http_cache.reads import Reads

WRITES: Final = (
    *("__setitem__", "__delitem__", "pop", "setdefault", "update", "set_expiry", "cycle_key", "flush", "clear"),
)
"""The methods that change a session."""

_traces: Final[ContextVar[Reads | None]] = ContextVar("traces", default=None)


def record_writes(traces: Reads | None) -> None:
    """Record the writes of this request from now on; with None, no longer."""
    if traces is not None and not hasattr(HttpResponseBase.set_cookie, "is_recorded"):
        for name in WRITES:
            setattr(SessionBase, name, _recorded(getattr(SessionBase, name), "session"))
        HttpResponseBase.set_cookie = _recorded(HttpResponseBase.set_cookie, "cookie")  # type: ignore[method-assign]
    _traces.set(traces)


def save_no_session() -> None:
    """Let reruns save no session, from the first one on."""
    save = SessionMiddleware.process_response
    if hasattr(save, "is_left_out_of_reruns"):
        return

    @wraps(save)
    def process_response(self: Any, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        scope = getattr(request, "scope", None)
        # Not by their own methods, which note reads.
        notes = dict.get(request.META if scope is None else scope, NOTES_KEY)
        return response if notes is not None and notes.is_rerun else save(self, request, response)

    process_response.is_left_out_of_reruns = True  # type: ignore[attr-defined]
    SessionMiddleware.process_response = process_response  # type: ignore[method-assign]


def _recorded(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        traces = _traces.get()
        if traces is not None:
            # The key; none of a method that changes the whole session.
            key = next((each for each in (*args, kwargs.get("key")) if isinstance(each, str)), None)
            traces.add_write(what if key is None else f"{what} {key}", sys._getframe(1))
        return method(self, *args, **kwargs)

    recorded.is_recorded = True  # type: ignore[attr-defined]
    return recorded
