"""System checks of the settings: errors, and settings that are valid but probably mistakes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, is_valid_path, reverse

from wheelcache.core import HOW_TO_CHANGE, IMPLEMENTATION, REPORT
from wheelcache.django_backend.aliases import wheel_caches
from wheelcache.django_backend.site_settings import GUARD, dashboard_guard
from wheelcache.engine.guests import module_of
from wheelcache.engine.option_table import DJANGO_TIERED
from wheelcache.engine.runtime.private_files import check_private_directory
from wheelcache.engine.stats_log import report_core
from wheelcache.errors import FileUnusable
from wheelcache.host_cache.django_host import HostCache
from wheelcache.near_cache.django_tiered import TieredCache
from wheelcache.pages.csrf_tokens import record_tokens
from wheelcache.pages.django_pages import COMPANION

READS_EVERY_SESSION: Final = "django.contrib.auth.middleware.LoginRequiredMiddleware"
L1_TIMEOUT: Final = DJANGO_TIERED["L1_TIMEOUT"].default


def check_locations(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report aliases that have one LOCATION but different OPTIONS: they look as if they shared entries, but do not."""
    stores: defaultdict[str, dict[Any, list[str]]] = defaultdict(dict)
    for alias, cache in wheel_caches():
        # The entries of a TieredCache are those of its L2. The caches of the machine share theirs by LOCATION.
        if not isinstance(cache, TieredCache | HostCache):
            stores[cache.location].setdefault(cache.store, []).append(alias)
    return [
        checks.Warning(
            f"The caches {' and '.join(repr(names[0]) for names in by_store.values())} have the same LOCATION "
            f"{location!r} but different OPTIONS, so they do not share their entries.",
            hint="Give them the same OPTIONS to share one store, or different LOCATIONs to have a store each.",
            id="wheelcache.W001",
        )
        for location, by_store in stores.items()
        if len(by_store) > 1
    ]


def check_unnamed(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report aliases without LOCATION that have the same OPTIONS: they share one store, probably by mistake."""
    stores: defaultdict[Any, list[str]] = defaultdict(list)
    for alias, cache in wheel_caches():
        if not cache.location and not isinstance(cache, TieredCache):
            stores[cache.store].append(alias)
    return [
        checks.Warning(
            f"The caches {' and '.join(map(repr, aliases))} have no LOCATION and the same OPTIONS, so they share one "
            "store: they share its limit on entries, and clear() of one empties all.",
            hint="Give each a LOCATION of its own, or give them the same one if they are meant to share.",
            id="wheelcache.W004",
        )
        for aliases in stores.values()
        if len(aliases) > 1
    ]


def check_shared_state(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report sessions, and the state of packages, in caches that the worker processes do not share."""
    shared_state = module_of("watch", "shared_state")
    return [
        checks.Warning(
            f"{use.user} the cache {use.alias!r}, which the worker processes do not share: with more than one worker, "
            f"{use.loss}.",
            hint=use.hint,
            id="wheelcache.W005",
        )
        for use in (() if shared_state is None else shared_state.uses())
        if not use.is_right()
    ]


def check_host_folders(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report folders of host caches that this user cannot use. Creates none: the command may run as another user."""
    found: list[CheckMessage] = []
    for alias, cache in wheel_caches():
        if isinstance(cache, HostCache):
            try:
                check_private_directory(cache.store.find_folder())
            except FileNotFoundError:
                continue
            except FileUnusable as error:
                found.append(
                    checks.Warning(
                        f"The cache {alias!r} is empty for this user: {error}.",
                        hint="Run all processes of the site as one user, or set another LOCATION.",
                        id="wheelcache.W011",
                    )
                )
    return found


def check_misplaced_options(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report options that are next to OPTIONS instead of in it, where they have no effect."""
    return [
        checks.Warning(
            f"CACHES[{alias!r}] has {option!r} next to its OPTIONS, where Django does not look for it.",
            hint=f"Move it: 'OPTIONS': {{{option!r}: ...}}.",
            id="wheelcache.W002",
        )
        for alias, cache in wheel_caches()
        for option in settings.CACHES[alias]
        if option in cache.store.options
    ]


def check_reports(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a TieredCache that is not notified of writes: its copies may be as old as ``L1_TIMEOUT``."""
    return [
        checks.Warning(
            f"The TieredCache {alias!r} is not notified of writes by other processes: it may return values that were "
            f"overwritten up to {settings.CACHES[alias]['OPTIONS'].get('L1_TIMEOUT', L1_TIMEOUT):g} seconds ago.",
            hint="Use a HostCache if all writers are on this machine, or Redis or Valkey without replicas as L2, or "
            "silence this check if L1_TIMEOUT is short enough.",
            id="wheelcache.W003",
        )
        for alias, cache in wheel_caches()
        if isinstance(cache, TieredCache) and not cache.store.is_notified
    ]


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


def check_core(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report that the slower core runs: an installation succeeds without a compiler, and pip does not report this."""
    if IMPLEMENTATION == "compiled":
        return []
    # Instead of the line in the log.
    report_core()
    message = f"{REPORT}: hits and writes take three to ten times as long as on the compiled core."
    return [checks.Info(message, hint=HOW_TO_CHANGE, id="wheelcache.I001")]


def check_policy(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report caches that ask for the adaptive policy, which only the compiled core has."""
    return [
        checks.Warning(
            f"The cache {alias!r} has the POLICY 'adaptive', but evicts by LRU: only the compiled core is adaptive.",
            hint=HOW_TO_CHANGE,
            id="wheelcache.W009",
        )
        for alias, cache in wheel_caches()
        if IMPLEMENTATION == "python" and settings.CACHES[alias].get("OPTIONS", {}).get("POLICY") == "adaptive"
    ]


def check_transactions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Recommend TRANSACTIONS to a site whose requests are transactions: values stay when one rolls back."""
    databases = [alias for alias, database in settings.DATABASES.items() if database.get("ATOMIC_REQUESTS")]
    if not databases:
        return []
    return [
        checks.Info(
            f"The database {databases[0]!r} has ATOMIC_REQUESTS, but the cache {alias!r} does not follow its "
            "transactions: a value that a request caches stays when the request rolls back, and other requests receive "
            "it before the data is committed.",
            hint="Set 'TRANSACTIONS': True in the OPTIONS of this cache, or False to keep this without the message.",
            id="wheelcache.I002",
        )
        for alias, cache in wheel_caches()
        if cache.store.followed is None and "TRANSACTIONS" not in settings.CACHES[alias].get("OPTIONS", {})
    ]


CHECKS: Final = (
    check_locations,
    check_host_folders,
    check_misplaced_options,
    check_reports,
    check_unnamed,
    check_dashboard_guard,
    check_login_url,
    check_companion,
    check_sessions_of_pages,
    check_csrf_tokens,
    check_core,
    check_policy,
    check_transactions,
)
"""The checks that every ``check`` runs; ``check_shared_state`` runs with ``--deploy``."""


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Run all checks of CHECKS."""
    return [message for check in CHECKS for message in check(app_configs, **kwargs)]
