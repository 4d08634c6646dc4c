"""The system checks of the dashboard, and of uses of caches that the workers do not share."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, is_valid_path, reverse

from wheelcache.watch import shared_state
from wheelcache.watch.django_guard import GUARD, dashboard_guard


def check_dashboard_guard(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a guard of the dashboard that cannot be called."""
    try:
        dashboard_guard()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="wheelcache.E002")]
    return []


def check_login_url(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a LOGIN_URL that is no page of the site, although the dashboard redirects visitors to it."""
    if getattr(settings, GUARD, None) is not None or not _has_dashboard() or _is_page(settings.LOGIN_URL):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {settings.LOGIN_URL!r}, which is no page of this site, but the dashboard redirects visitors "
            "without a login to it.",
            hint="Set it to the name or the address of the login page, such as 'admin:login'.",
            id="wheelcache.W007",
        )
    ]


def _has_dashboard() -> bool:
    if getattr(settings, "ROOT_URLCONF", None) is None:
        return False
    try:
        return bool(reverse("wheelcache:dashboard"))
    except NoReverseMatch:
        return False


def _is_page(to: Any) -> bool:
    """Return whether a view of the site has this name or path. The pages of other sites are not checked."""
    try:
        host, path = urlsplit(resolve_url(to))[1:3]
        return bool(host) or any(is_valid_path(each) for each in (path, f"{path}/"))
    except NoReverseMatch:
        return False


def check_shared_state(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report sessions, and the state of packages, in caches that the worker processes do not share. With DEBUG, the
    development server does not report them: it has one process."""
    if settings.DEBUG and shared_state.runs_development_server():
        return []
    return [
        checks.Warning(shared_state.sentence(use), hint=use.hint, id="wheelcache.W005")
        for use in shared_state.wrong_uses()
    ]


CHECKS: Final = (check_dashboard_guard, check_login_url, check_shared_state)
