"""The setting ``WHEELCACHE_DASHBOARD_GUARD``, for sites whose users have no permissions of Django's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

Guard = Callable[[HttpRequest], Any]

SETTING: Final = "WHEELCACHE_DASHBOARD_GUARD"


def configured_guard() -> Guard | None:
    """Return the function of ``WHEELCACHE_DASHBOARD_GUARD``; None if the permissions of Django's users decide.

    Raises:
        ImproperlyConfigured: the setting is neither a function nor the dotted path of one.
    """
    given = getattr(settings, SETTING, None)
    if given is None:
        return None
    guard = given
    if isinstance(given, str):
        try:
            guard = import_string(given)
        except ImportError as error:
            raise ImproperlyConfigured(f"{SETTING} is {given!r}, which cannot be imported: {error}") from error
    if not callable(guard):
        raise ImproperlyConfigured(
            f"{SETTING} must be a function that receives the request, the dotted path of one, or None, not {given!r}"
        )
    return guard  # type: ignore[no-any-return]
