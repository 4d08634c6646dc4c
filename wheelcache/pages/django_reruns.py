"""Runs that repeat an earlier one save no session: it would lose the messages that no visitor has seen."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse


def save_no_session() -> None:
    """Let reruns save no session, from the first one on."""
    save = SessionMiddleware.process_response
    if hasattr(save, "is_left_out_of_reruns"):
        return

    @wraps(save)
    def process_response(self: Any, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        notes = getattr(request, "page_notes", None)
        return response if notes is not None and notes.is_rerun else save(self, request, response)

    process_response.is_left_out_of_reruns = True  # type: ignore[attr-defined]
    SessionMiddleware.process_response = process_response  # type: ignore[method-assign]
