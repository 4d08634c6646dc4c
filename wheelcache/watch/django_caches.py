"""The caches of a Django site, as its operators see them."""

from __future__ import annotations

from wheelcache.cache import Cache
from wheelcache.django_backend.backend import WheelCache, wheel_caches
from wheelcache.engine.observed import SharedState
from wheelcache.engine.option_table import Setting
from wheelcache.watch import shared_state
from wheelcache.watch.observers import page_caches


def settings_of(name: str) -> list[Setting]:
    """Return the settings of the cache ``name``. If a setting differs between its aliases, return each value."""
    aliases = {alias: cache for alias, cache in wheel_caches() if cache.store.cache.name == name}
    found: dict[str, dict[Setting, list[str]]] = {}
    for alias, cache in aliases.items():
        for setting in (*_of_alias(cache), *cache.store.settings):
            found.setdefault(setting.name, {}).setdefault(setting, []).append(alias)
    return [
        setting if len(has_it) == len(aliases) else setting._replace(name=f"{setting.name} of {', '.join(has_it)}")
        for alike in found.values()
        for setting, has_it in alike.items()
    ]


def _of_alias(cache: WheelCache) -> list[Setting]:
    """Return the settings that every backend of Django has."""
    timeout, prefix, version = cache.default_timeout, cache.key_prefix, cache.version
    return [
        Setting("TIMEOUT", repr(timeout), timeout == 300),
        Setting("KEY_PREFIX", prefix or "''", not prefix),
        Setting("VERSION", repr(version), version == 1),
    ]


def name_of(given: str | None) -> str | None:
    """Return the name of the cache whose alias is given. If there is a cache of that name, return the name."""
    names = {alias: cache.store.cache.name for alias, cache in wheel_caches()}
    return given if given is None or given in names.values() else names.get(given, given)


def caches_of_site() -> list[Cache]:
    """Return the caches of ``CACHES``, and those of the pages in this process."""
    return [*engines(), *page_caches()]


def engines() -> list[Cache]:
    """Return the caches, each of them once, since aliases may share a store. Note the state that workers must share."""
    found = dict.fromkeys(cache.store.cache for _, cache in wheel_caches())
    for each in found:
        each.engine.observed.shared_state = []
    uses = [*shared_state.wrong_uses()]
    for alias, cache in wheel_caches():
        observed = cache.store.cache.engine.observed
        observed.setting = f"BACKEND of CACHES[{alias!r}]"
        observed.shared_state += [SharedState(use.user, use.loss) for use in uses if use.alias == alias]
    return list(found)
