"""The system check of host caches."""

from __future__ import annotations

from typing import Any, Final

from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.django_backend.backend import wheel_caches
from wheelcache.errors import FileUnusable
from wheelcache.host_cache.django_host import HostCache
from wheelcache.runtime.private_files import check_private_directory


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


CHECKS: Final = (check_host_folders,)
