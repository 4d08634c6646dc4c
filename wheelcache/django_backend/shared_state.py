"""Finds uses of a cache that need a store shared by all workers: sessions, rate limits, failed logins.

Each process has its own entries of a ``WheelCache``. ``COHERENCE`` notifies the processes of a machine that an entry
has changed, but does not pass on the new value. That is enough if the value is also stored elsewhere, as the sessions
of ``cached_db`` are in the database. A counter or a session that is stored in the cache alone needs a store that all
workers share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from django.apps import apps
from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache

from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.tiered import TieredCache

SESSIONS: Final = "django.contrib.sessions.backends.cache"
CACHED_DB: Final = "django.contrib.sessions.backends.cached_db"
AXES_CACHE_HANDLER: Final = "axes.handlers.cache.AxesCacheHandler"

SHARED: Final = "the alias of a TieredCache over Redis, Valkey or memcached, or of one of these itself"


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a cache by the site.

    Attributes:
        user: the subject and the verb of a sentence about the use.
        loss: the consequence if the workers do not share the entries.
        hint: the remedy.
        coherence_is_enough: whether the values are also stored elsewhere.
    """

    user: str
    alias: str
    loss: str
    hint: str
    coherence_is_enough: bool = False

    def is_right(self) -> bool:
        """Return whether there is nothing to report: the cache is suitable, belongs to another package, or does not
        exist, which Django reports."""
        if self.alias not in settings.CACHES:
            return True
        cache = caches[self.alias]
        if not isinstance(cache, WheelCache):
            return True
        if isinstance(cache, TieredCache):
            second_level = caches[settings.CACHES[self.alias]["OPTIONS"]["L2"]]
            return not isinstance(second_level, WheelCache | LocMemCache)
        return self.coherence_is_enough and cache.store.cache.parts.stamps.are_there


def uses() -> Iterator[Use]:
    """Iterate over the uses of caches that the settings of this site show."""
    sessions = getattr(settings, "SESSION_CACHE_ALIAS", "default")
    if settings.SESSION_ENGINE == SESSIONS:
        yield Use(
            "Sessions are only in",
            sessions,
            "a visitor is logged out and loses the data of the session whenever another worker answers",
            f"Set SESSION_ENGINE to {CACHED_DB!r} and 'COHERENCE': 'host' in the OPTIONS of this cache, if all workers "
            f"are on this machine; or set SESSION_CACHE_ALIAS to {SHARED}.",
        )
    elif settings.SESSION_ENGINE == CACHED_DB:
        yield Use(
            "Sessions are read from",
            sessions,
            "a worker continues with an old session, and changes to it by other workers are lost",
            "Set 'COHERENCE': 'host' in the OPTIONS of this cache, if all workers are on this machine; or set "
            f"SESSION_CACHE_ALIAS to {SHARED}.",
            coherence_is_enough=True,
        )
    if _uses_ratelimit():
        yield Use(
            "django-ratelimit counts in",
            getattr(settings, "RATELIMIT_USE_CACHE", "default"),
            "each worker counts separately and lets as many requests through",
            f"Set RATELIMIT_USE_CACHE to {SHARED}.",
        )
    if apps.is_installed("axes") and getattr(settings, "AXES_HANDLER", None) == AXES_CACHE_HANDLER:
        yield Use(
            "django-axes counts failed logins in",
            getattr(settings, "AXES_CACHE", "default"),
            "each worker counts separately and lets as many attempts through",
            f"Set AXES_CACHE to {SHARED}; or use axes' database handler, which is its default.",
        )


def _uses_ratelimit() -> bool:
    is_there = any(map(apps.is_installed, ("django_ratelimit", "ratelimit"))) or hasattr(
        settings, "RATELIMIT_USE_CACHE"
    )
    return is_there and getattr(settings, "RATELIMIT_ENABLE", True)
