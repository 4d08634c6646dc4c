"""The system checks of sites with the HTTP cache."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.pages.csrf_tokens import record_tokens
from wheelcache.pages.django_pages import COMPANION

READS_EVERY_SESSION: Final = "django.contrib.auth.middleware.LoginRequiredMiddleware"


def check_companion(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a ``PageMiddleware`` that is not first: reads by earlier middleware would not be noticed."""
    if COMPANION not in settings.MIDDLEWARE[1:]:
        return []
    message = f"{COMPANION} must be the first of MIDDLEWARE: {settings.MIDDLEWARE[0]!r} is in front of it."
    return [checks.Error(message, hint="Move it to the beginning of MIDDLEWARE.", id="wheelcache.E003")]


def check_sessions_of_pages(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report settings by which every page depends on the visitor's session, so that visitors share no pages."""
    if COMPANION not in settings.MIDDLEWARE:
        return []
    cause = None
    if settings.SESSION_SAVE_EVERY_REQUEST:
        cause = "SESSION_SAVE_EVERY_REQUEST is True, so pages that use the session have a Set-Cookie"
    elif READS_EVERY_SESSION in settings.MIDDLEWARE:
        cause = f"{READS_EVERY_SESSION} reads the session for every page"
    if cause is None:
        return []
    return [
        checks.Warning(
            f"{cause}: the HTTP cache stores no page for several visitors.",
            hint="Change the setting, or remove the HTTP cache and its middleware.",
            id="wheelcache.W006",
        )
    ]


def check_csrf_tokens(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a version of Django that makes CSRF tokens in another way, so that pages with tokens are not stored."""
    if COMPANION not in settings.MIDDLEWARE or settings.CSRF_USE_SESSIONS or record_tokens():
        return []
    message = (
        "The HTTP cache stores no pages with CSRF tokens, since this version of Django makes tokens in another way."
    )
    return [checks.Warning(message, hint="Upgrade wheelcache.", id="wheelcache.W010")]


CHECKS: Final = (
    check_companion,
    check_sessions_of_pages,
    check_csrf_tokens,
)
