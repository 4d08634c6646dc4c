"""Finds uses of a cache that need a store shared by all workers: sessions, rate limits, and many packages of others.

Each process has its own entries of a ``WheelCache``. The workers of a machine share those of a ``HostCache``.

Some packages refuse ``LocMemCache``, by its class or its path, and do not know this package's caches. ``PACKAGES`` has
those that use Django's cache. Others, such as celery-once and django-cacheops, have a connection to Redis of their own.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.cache.backends.locmem import LocMemCache
from django.utils.module_loading import import_string

from wheelcache.django_backend.backend import WheelCache

logger = logging.getLogger("wheelcache")

SESSIONS: Final = "django.contrib.sessions.backends.cache"
CACHED_DB: Final = "django.contrib.sessions.backends.cached_db"
AXES_CACHE_HANDLER: Final = "axes.handlers.cache.AxesCacheHandler"

ID: Final = "wheelcache.W005"
"""The system check that reports uses of caches that the workers do not share."""

LOGGED_OUT: Final = "a visitor is logged out and loses the data of the session whenever another worker answers"
OLD_SESSIONS: Final = "a worker continues with an old session, and changes to it by other workers are lost"

SHARED: Final = "the alias of a TieredCache over Redis, Valkey or memcached, or of one of these itself"
HERE: Final = "Make this cache a HostCache, if all workers are on this machine; or"


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a cache by the site.

    Attributes:
        user: the subject and the verb of a sentence about the use.
        loss: the consequence if the workers do not share the entries.
        hint: the remedy.
    """

    user: str
    alias: str
    loss: str
    hint: str

    def is_right(self) -> bool:
        """Return whether there is nothing to report: the cache is suitable, belongs to another package, or does not
        exist, which Django reports."""
        backend = _backend(self.alias)
        l2 = settings.CACHES[self.alias].get("OPTIONS", {}).get("L2") if _is_ours(backend) else None
        if l2 is not None:
            backend = _backend(l2)
        if _is_ours(backend):
            return bool(backend.has_shared_entries)
        return not (l2 is not None and backend is not None and issubclass(backend, LocMemCache))


def _backend(alias: Any) -> Any:
    """Return the class of a cache; None if there is none. The cache is not made: it would open its files too early."""
    with suppress(ImportError, KeyError):
        return import_string(settings.CACHES[alias]["BACKEND"])
    return None


def _is_ours(backend: Any) -> bool:
    return isinstance(backend, type) and issubclass(backend, WheelCache)


@dataclass(frozen=True, slots=True)
class Package:
    """A package that needs a cache which the workers share.

    Attributes:
        apps: its names in INSTALLED_APPS.
        user, loss: as for ``Use``.
        setting: the setting that has the alias of its cache; a key follows if the setting is a dict. Empty if it always
            uses the cache "default".
        default: the alias without the setting; None if it then uses no cache.
        falls_back: whether it uses the cache "default" if the alias does not exist.
        is_used: whether its settings make it use the cache.
        needs_no_app: whether it also works if it is not in INSTALLED_APPS, so that its setting shows its use.
    """

    apps: tuple[str, ...]
    user: str
    loss: str
    setting: tuple[str, ...] = ()
    default: str | None = "default"
    falls_back: bool = False
    is_used: Callable[[], Any] = lambda: True
    needs_no_app: bool = False

    def uses(self) -> Iterator[Use]:
        is_there = self.needs_no_app and hasattr(settings, self.setting[0])
        if not ((is_there or any(map(apps.is_installed, self.apps))) and self.is_used()):
            return
        alias = _setting(*self.setting, default=self.default) if self.setting else "default"
        if self.falls_back and alias not in settings.CACHES:
            alias = "default"
        if alias is not None:
            yield Use(self.user, alias, self.loss, self._hint())

    def _hint(self) -> str:
        name = "".join([*self.setting[:1], *(f"[{key!r}]" for key in self.setting[1:])])
        change = f"{name} to {SHARED}" if name else f"the name 'default' in CACHES for {SHARED.partition(' of ')[2]}"
        return f"{HERE} {'set' if name else 'use'} {change}."


def _setting(name: str, *keys: str, default: Any = None) -> Any:
    """Return a setting, or the value of a key of it."""
    value = getattr(settings, name, {} if keys else default)
    return value.get(keys[0], default) if keys else value


def _throttles() -> Any:
    rates = _setting("REST_FRAMEWORK", "DEFAULT_THROTTLE_RATES", default={})
    return _setting("REST_FRAMEWORK", "DEFAULT_THROTTLE_CLASSES") or any(rates.values())


OLD_VALUES: Final = "after a change, the other workers return the old values"

PACKAGES: Final = (
    Package(
        ("django_ratelimit", "ratelimit"),
        "django-ratelimit counts in",
        "each worker counts separately and lets as many requests through",
        ("RATELIMIT_USE_CACHE",),
        is_used=lambda: _setting("RATELIMIT_ENABLE", default=True),
        needs_no_app=True,
    ),
    Package(
        ("axes",),
        "django-axes counts failed logins in",
        "each worker counts separately and lets as many attempts through",
        ("AXES_CACHE",),
        is_used=lambda: _setting("AXES_HANDLER") == AXES_CACHE_HANDLER,
    ),
    Package(
        ("rest_framework",),
        "Django REST framework counts requests for its throttles in",
        "each worker counts separately and lets as many requests through",
        is_used=_throttles,
    ),
    Package(
        ("allauth.account",),
        "django-allauth counts attempts for its rate limits in",
        "each worker counts separately and lets as many attempts through",
        is_used=lambda: _setting("ACCOUNT_RATE_LIMITS", default=True),
    ),
    Package(
        ("constance", "constance.backends.database"),
        "django-constance keeps its values in",
        OLD_VALUES,
        ("CONSTANCE_DATABASE_CACHE_BACKEND",),
        default=None,
        is_used=lambda: _setting("CONSTANCE_BACKEND", default="").startswith("constance.backends.database"),
    ),
    Package(
        ("waffle",),
        "django-waffle keeps its flags in",
        OLD_VALUES,
        ("WAFFLE_CACHE_NAME",),
    ),
    Package(
        ("cachalot",),
        "django-cachalot keeps the results of queries in",
        OLD_VALUES,
        ("CACHALOT_CACHE",),
        is_used=lambda: _setting("CACHALOT_ENABLED", default=True),
    ),
    Package(
        ("solo",),
        "django-solo keeps its objects in",
        OLD_VALUES,
        ("SOLO_CACHE",),
        default=None,
    ),
    Package(
        ("dynamic_preferences",),
        "django-dynamic-preferences keeps its values in",
        OLD_VALUES,
        ("DYNAMIC_PREFERENCES", "CACHE_NAME"),
        is_used=lambda: _setting("DYNAMIC_PREFERENCES", "ENABLE_CACHE", default=True),
    ),
    Package(
        ("extra_settings",),
        "django-extra-settings keeps its values in",
        OLD_VALUES,
        ("EXTRA_SETTINGS_CACHE_NAME",),
        default="extra_settings",
        falls_back=True,
    ),
    Package(
        ("sorl.thumbnail",),
        "sorl-thumbnail keeps its references in",
        "the other workers refer to thumbnails that were deleted",
        ("THUMBNAIL_CACHE",),
        falls_back=True,
        is_used=lambda: "cached_db" in _setting("THUMBNAIL_KVSTORE", default="cached_db"),
    ),
    Package(
        ("wagtailcache",),
        "wagtail-cache keeps its pages in",
        "the other workers return old pages after a purge",
        ("WAGTAIL_CACHE_BACKEND",),
        is_used=lambda: _setting("WAGTAIL_CACHE", default=True),
    ),
    Package(
        ("django_select2",),
        "django-select2 keeps its fields in",
        "a request for choices gets a 404 whenever another worker answers",
        ("SELECT2_CACHE_BACKEND",),
    ),
    Package(
        ("django_cron",),
        "django-cron keeps its locks in",
        "a job runs several times at once",
        ("DJANGO_CRON_CACHE",),
        is_used=lambda: "cache" in _setting("DJANGO_CRON_LOCK_BACKEND", default="cache"),
    ),
    Package(
        ("django_q",),
        "Django Q passes the state of its cluster and cached results through",
        "the site does not see them",
        ("Q_CLUSTER", "cache"),
    ),
    Package(
        ("django_celery_results",),
        "django-celery-results passes results through",
        "the site does not see the results of the tasks",
        ("CELERY_CACHE_BACKEND",),
        is_used=lambda: _setting("CELERY_RESULT_BACKEND") == "django-cache",
    ),
    Package(
        ("maintenance_mode",),
        "django-maintenance-mode keeps its state in",
        "the other workers do not follow a change",
        is_used=lambda: _setting("MAINTENANCE_MODE_STATE_BACKEND") == "maintenance_mode.backends.CacheBackend",
    ),
)
"""The packages of other authors that keep state in a cache of Django, and the settings that name the cache."""


def uses() -> Iterator[Use]:
    """Iterate over the uses of caches that the settings of this site show."""
    sessions = getattr(settings, "SESSION_CACHE_ALIAS", "default")
    hint = f"{HERE} set SESSION_CACHE_ALIAS to {SHARED}."
    if _are_sessions(SESSIONS):
        yield Use("Sessions are only in", sessions, LOGGED_OUT, hint)
    elif _are_sessions(CACHED_DB):
        yield Use("Sessions are read from", sessions, OLD_SESSIONS, hint)
    for package in PACKAGES:
        yield from package.uses()


def _are_sessions(engine: str) -> bool:
    """Return whether the sessions of the site are those of ``engine``, or of a subclass."""
    used = settings.SESSION_ENGINE
    if used == engine:
        return True
    with suppress(ImportError):
        return issubclass(import_string(f"{used}.SessionStore"), import_string(f"{engine}.SessionStore"))
    return False


def wrong_uses() -> Iterator[Use]:
    """Iterate over the uses of caches that the workers do not share."""
    return (use for use in uses() if not use.is_right())


def sentence(use: Use) -> str:
    return (
        f"{use.user} the cache {use.alias!r}, which the worker processes do not share: with more than one worker, "
        f"{use.loss}."
    )


def runs_development_server() -> bool:
    """Return whether this is ``runserver``, whose one process serves all requests."""
    return sys.argv[1:2] == ["runserver"]


def log_wrong_uses() -> None:
    """Log the warnings of the system check, when a server starts."""
    if not runs_development_server() and ID not in settings.SILENCED_SYSTEM_CHECKS:
        for use in wrong_uses():
            logger.warning("%s %s (%s)", sentence(use), use.hint, ID)
