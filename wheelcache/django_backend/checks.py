"""System checks of the settings: errors, and settings that are valid but probably mistakes.

The module ``django_checks`` of each guest has more of them, in ``CHECKS``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage

from wheelcache.core import HOW_TO_CHANGE, IMPLEMENTATION, REPORT
from wheelcache.django_backend.backend import wheel_caches
from wheelcache.engine.guests import modules_named
from wheelcache.engine.stats_log import report_core


def check_locations(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report aliases that have one LOCATION but different OPTIONS: they look as if they shared entries, but do not."""
    stores: defaultdict[str, dict[Any, list[str]]] = defaultdict(dict)
    for alias, cache in wheel_caches():
        # With a store behind, the entries are its own. The caches of the machine share theirs by LOCATION.
        if not (cache.has_store or cache.store.cache.has_shared_entries):
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
        if not (cache.location or cache.has_store):
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


CHECKS: Final = (check_locations, check_unnamed, check_misplaced_options, check_core, check_policy)


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Run the checks of CHECKS, here and in the guests."""
    of_guests = [check for module in modules_named("django_checks") for check in getattr(module, "CHECKS", ())]
    return [message for check in (*CHECKS, *of_guests) for message in check(app_configs, **kwargs)]
