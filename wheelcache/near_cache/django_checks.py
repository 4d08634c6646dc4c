"""The system check of tiered caches."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.django_backend.backend import wheel_caches
from wheelcache.near_cache.django_tiered import TieredCache
from wheelcache.near_cache.options import DJANGO_TIERED

L1_TIMEOUT: Final = DJANGO_TIERED["L1_TIMEOUT"].default


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


CHECKS: Final = (check_reports,)
