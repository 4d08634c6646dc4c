"""The settings of the site that the backends need, beyond the OPTIONS of a cache."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

from wheelcache.engine import observer
from wheelcache.engine.guests import is_missing, module_of
from wheelcache.engine.options import shown

logger = logging.getLogger("wheelcache")

APP: Final = "wheelcache.django_backend"
DIRECT_ACCESS: Final = "WHEELCACHE_DIRECT_ACCESS"
RELEASE: Final = "WHEELCACHE_RELEASE"


def site_name() -> str:
    """Return the name of the settings module, or "settings" if there is none."""
    return str(getattr(settings, "SETTINGS_MODULE", None) or "settings")


def figures_directory() -> Path | None:
    """Return the directory for figures without FIGURES_DIR, which is the same for all processes of the site.

    It is derived from the settings module, the SECRET_KEY (if there is one) and the base directory. Two installations
    of a project on one host may differ only in the last. After a deploy into another base directory, the site has
    another directory for figures.
    """
    return observer.figures_directory(site_identity("figures"))


def site_identity(purpose: str) -> str:
    """Return a text that is the same for all processes of the site, and for no other site."""
    site = f"{site_name()} {_base_directory()}"
    try:
        return salted_hmac(f"wheelcache.{purpose}", site, algorithm="sha256").hexdigest()
    except ImproperlyConfigured:
        return f"django {site}"


def _base_directory() -> Path:
    """Return BASE_DIR, the directory of the settings module or the working directory, with all links resolved."""
    base = getattr(settings, "BASE_DIR", None)
    if isinstance(base, str | os.PathLike):
        return Path(base).resolve()
    file = getattr(sys.modules.get(site_name()), "__file__", None)
    return Path.cwd() if file is None else Path(file).resolve().parent


def cache_in_words(location: Any, params: Mapping[str, Any]) -> str:
    """Return the name of a cache for an error message, such as "the cache 'default'".

    Django does not pass the alias, so the result names all aliases with these settings, or the LOCATION if there are
    none.

    Args:
        params: the arguments of a backend: its entry of ``CACHES`` without BACKEND and LOCATION.
    """
    named = aliases_of(location, params)
    if not named:
        return f"the cache with the LOCATION {location!r}"
    return f"the cache{'s' if len(named) > 1 else ''} {' and '.join(map(repr, named))}"


def aliases_of(location: Any, params: Mapping[str, Any]) -> list[str]:
    """Return the aliases of the caches with these settings. The arguments are those of ``cache_in_words``."""
    entries = settings.CACHES if settings.configured else {}
    return [alias for alias, entry in entries.items() if _has_settings(entry, location, params)]


def _has_settings(entry: Mapping[str, Any], location: Any, params: Mapping[str, Any]) -> bool:
    others = {name: value for name, value in entry.items() if name not in ("BACKEND", "LOCATION")}
    is_foreign = str(entry.get("BACKEND")).startswith("django.")
    return not is_foreign and entry.get("LOCATION", "") == location and others == dict(params)


def use_release() -> None:
    """Name the release of this process as ``WHEELCACHE_RELEASE`` of the settings says, unless the environment does.

    Raises:
        ImproperlyConfigured: if the setting is not a string, or if nothing here shows releases.
    """
    given = getattr(settings, RELEASE, "") if settings.configured else ""
    if given == "":
        return
    releases = module_of("watch", "releases")
    if releases is None:
        raise ImproperlyConfigured(is_missing("watch", RELEASE))
    most = releases.MOST_CHARACTERS
    if not isinstance(given, str) or len(given) > most:
        raise ImproperlyConfigured(f"{RELEASE} must be a string of at most {most} characters, not {shown(given)}")
    releases.name_release(given)


def direct_access() -> bool:
    """Return ``WHEELCACHE_DIRECT_ACCESS``: whether Django's ``caches`` and ``cache`` keep the backends of this package.

    Raises:
        ImproperlyConfigured: if the setting is neither True nor False.
    """
    given = getattr(settings, DIRECT_ACCESS, True) if settings.configured else True
    if type(given) is not bool:
        raise ImproperlyConfigured(f"{DIRECT_ACCESS} must be True or False, not {given!r}")
    return given


_UNREPORTED: Final = iter((APP,))
"""An iterator with one item, so that only one thread receives it."""


def report_missing_app() -> None:
    """Log, once, that the site has not installed the app. The caches work without it."""
    if apps.ready and not apps.is_installed(APP) and next(_UNREPORTED, None):
        logger.warning(
            "%r is not in INSTALLED_APPS: without it, there is no manage.py wheelcache, no {%% load wheelcache %%}, "
            "and no system check of the caches.",
            APP,
        )
