"""The language and the time zone of the caller, for a loader that another thread runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils import timezone, translation


def in_language(default: Callable[[], Any]) -> Callable[[], Any]:
    """``default``, with what is active here also active wherever it runs.

    The context goes along with a loader, but Django keeps these in asgiref's ``Local``, which, in asgiref 3.13 if not
    before, shows what a context carries only to the thread that stored it.
    """
    if not settings.configured:
        return default
    thread = threading.get_ident()
    language, zone = translation.get_language(), timezone.get_current_timezone()

    def load() -> Any:
        if threading.get_ident() == thread:
            return default()
        with translation.override(language), timezone.override(zone):
            return default()

    return load
