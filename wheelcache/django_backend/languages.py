"""The language and the time zone of the caller, for a loader that another thread runs.

Django keeps both in asgiref's ``Local``, which acquires a lock outside of ``try``: an exception that interrupts its
methods (a time limit, a signal handler) may leave the lock acquired, and other threads would wait for it forever. The
values themselves are in a context variable, which needs no lock, so they are read from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils import timezone, translation
from django.utils.translation import trans_real


def in_language(default: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls ``default`` with the caller's language and time zone active, in any thread.

    A loader runs in the caller's context, but asgiref, from 3.13 at the latest, shows the values of a context only to
    the thread that stored them.
    """
    if not settings.configured:
        return default
    thread = threading.get_ident()
    language, zone = _language(), _time_zone()

    def load() -> Any:
        if threading.get_ident() == thread:
            return default()
        with translation.override(language), timezone.override(zone):
            return default()

    return load


def _language() -> str | None:
    """``translation.get_language`` without a lock."""
    if not settings.USE_I18N:
        return translation.get_language()
    active = getattr(_unlocked(trans_real), "value", None)
    # ``to_language`` returns None after ``translation.deactivate_all``.
    name: str | None = settings.LANGUAGE_CODE if active is None else active.to_language()
    return name


def _time_zone() -> Any:
    """``timezone.get_current_timezone`` without a lock."""
    return getattr(_unlocked(timezone), "value", timezone.get_default_timezone())


def _unlocked(module: Any) -> Any:
    """Return the storage that the ``Local`` of ``module`` uses under its lock."""
    local = module._active
    return getattr(local, "_storage", local)
