"""The function by which a Django site decides who may use the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from wheelcache.engine.options import shown

GUARD: Final = "WHEELCACHE_DASHBOARD_GUARD"


def dashboard_guard() -> Callable[[HttpRequest], Any] | None:
    """Return the function of ``WHEELCACHE_DASHBOARD_GUARD``, for sites whose users have no Django permissions.

    Without the setting, return None: the permissions of Django's users decide.

    Raises:
        ImproperlyConfigured: if the setting is neither a function nor the dotted path of one.
    """
    given = guard = getattr(settings, GUARD, None)
    if isinstance(given, str):
        try:
            guard = import_string(given)
        except ImportError as error:
            raise ImproperlyConfigured(f"{GUARD} is {shown(given)}, which cannot be imported: {error}") from error
    if guard is not None and not callable(guard):
        raise ImproperlyConfigured(
            f"{GUARD} must be a function that receives the request, the dotted path of one, or None, not {shown(given)}"
        )
    return guard
