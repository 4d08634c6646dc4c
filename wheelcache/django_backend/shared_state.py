"""What a site keeps in a cache that all its workers have to see: sessions, rate limits, failed logins.

A ``WheelCache`` is a store of each process. ``COHERENCE`` tells the processes of a machine that an entry has changed,
and not what it is by now: that is enough where the truth is elsewhere, as the sessions of ``cached_db`` are in the
database. A counter or a session that is in the cache alone needs a store that all workers share.
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

SHARED: Final = "a TieredCache over Redis, Valkey or memcached, or one of these itself"


@dataclass(frozen=True, slots=True)
class Use:
    """What uses a cache.

    Attributes:
        user: as the subject of a sentence, with its verb.
        loss: what happens if each worker has its own.
        hint: what to do.
        coherence_is_enough: whether the truth is elsewhere.
    """

    user: str
    alias: str
    loss: str
    hint: str
    coherence_is_enough: bool = False

    def is_right(self) -> bool:
        """Whether this cache will do, or is none of ours, or there is none of this name, which Django says itself."""
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
    """What this site keeps in caches, as far as its settings tell."""
    sessions = getattr(settings, "SESSION_CACHE_ALIAS", "default")
    if settings.SESSION_ENGINE == SESSIONS:
        yield Use(
            "Sessions are only in",
            sessions,
            "a visitor is logged out, and loses what the session has, whenever another worker answers",
            f"Set SESSION_ENGINE to {CACHED_DB!r} and 'COHERENCE': 'host' in the OPTIONS of this cache, if all workers "
            f"are on this machine; or have SESSION_CACHE_ALIAS name {SHARED}.",
        )
    elif settings.SESSION_ENGINE == CACHED_DB:
        yield Use(
            "Sessions are read from",
            sessions,
            "a worker goes on with an old session, and what other workers put into it is lost",
            "Set 'COHERENCE': 'host' in the OPTIONS of this cache, if all workers are on this machine; or have "
            f"SESSION_CACHE_ALIAS name {SHARED}.",
            coherence_is_enough=True,
        )
    if _uses_ratelimit():
        yield Use(
            "django-ratelimit counts in",
            getattr(settings, "RATELIMIT_USE_CACHE", "default"),
            "each worker has counts of its own, and lets as many requests through",
            f"Have RATELIMIT_USE_CACHE name {SHARED}.",
        )
    if apps.is_installed("axes") and getattr(settings, "AXES_HANDLER", None) == AXES_CACHE_HANDLER:
        yield Use(
            "django-axes counts failed logins in",
            getattr(settings, "AXES_CACHE", "default"),
            "each worker has counts of its own, and lets as many attempts through",
            f"Have AXES_CACHE name {SHARED}; or use axes' database handler, which is its default.",
        )


def _uses_ratelimit() -> bool:
    is_there = any(map(apps.is_installed, ("django_ratelimit", "ratelimit"))) or hasattr(
        settings, "RATELIMIT_USE_CACHE"
    )
    return is_there and getattr(settings, "RATELIMIT_ENABLE", True)
