"""The system checks of host caches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.django_backend.backend import wheel_caches
from wheelcache.errors import FileUnusable
from wheelcache.host_cache.django_host import HostCache
from wheelcache.runtime.private_files import check_private


def check_host_locations(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report aliases that have one LOCATION but different OPTIONS: they share entries, so only one has its limits."""
    aliases: defaultdict[str, list[str]] = defaultdict(list)
    stores: defaultdict[str, set[Any]] = defaultdict(set)
    for alias, cache in wheel_caches():
        if isinstance(cache, HostCache) and cache.location:
            aliases[cache.location].append(alias)
            stores[cache.location].add(cache.store)
    return [
        checks.Warning(
            f"The caches {_listed(aliases[location])} have the same LOCATION {location!r} but different OPTIONS: they "
            "share their entries, and the limits of one of them apply to all.",
            hint="Give each cache its own LOCATION, or give all of them the same OPTIONS to share the entries.",
            id="wheelcache.W001",
        )
        for location, found in stores.items()
        if len(found) > 1
    ]


def _listed(aliases: list[str]) -> str:
    *others, last = map(repr, aliases)
    return f"{', '.join(others)} and {last}"


def check_host_folders(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report folders of host caches that this user cannot use. Creates none: the command may run as another user."""
    found: list[CheckMessage] = []
    for alias, cache in wheel_caches():
        if isinstance(cache, HostCache):
            try:
                check_private(cache.store.find_folder(), is_directory=True)
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


CHECKS: Final = (check_host_locations, check_host_folders)
