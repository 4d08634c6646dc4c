"""The stores of the process: one for each LOCATION and OPTIONS, whatever number of backend objects look at it.

Django makes a backend object for every alias in every thread and async context, so a look-up here costs microseconds;
the options are checked once, when the store is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.isolation import Isolation, Pickle, is_number, size_of

DEFAULT_MAX_ENTRIES: Final = 10_000


class Store:
    """A cache and how values get in and out of it.

    Attributes:
        cull_frequency: None evicts one by one; 0 empties a full cache; n drops 1/n of it.
    """

    __slots__ = ("cache", "cull_frequency", "isolation", "max_entries")

    def __init__(self, cache: Cache, isolation: Isolation, max_entries: int | None, cull_frequency: int | None) -> None:
        self.cache = cache
        self.isolation = isolation
        self.max_entries = max_entries
        self.cull_frequency = cull_frequency


def _serializer(name: str, value: Any) -> Isolation:
    if value == "pickle":
        return Isolation(Pickle())
    if value == "reference":
        return Isolation(None)
    takes = "'pickle', 'reference', or the dotted path of an object with dumps() and loads()"
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    try:
        serializer = import_string(value)
    except ImportError as error:
        raise ValueError(f"{name} must be {takes}, not {value!r}: {error}") from error
    if isinstance(serializer, type):
        serializer = serializer()
    if not (callable(getattr(serializer, "dumps", None)) and callable(getattr(serializer, "loads", None))):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    return Isolation(serializer, keep=is_number)


OPTIONS: Final[Mapping[str, options.Check]] = {
    "MAX_ENTRIES": options.count_or_none,
    "CULL_FREQUENCY": options.whole,
    "MAX_BYTES": options.count_or_none,
    "JITTER": options.fraction,
    "INTERVAL": options.seconds,
    "SLOTS": options.count,
    "LOG_INTERVAL": options.seconds_or_none,
    "SERIALIZER": _serializer,
}

_stores: dict[tuple[str, frozenset[tuple[str, Any]]], Store] = {}


def store_for(location: str, given: Mapping[str, Any]) -> Store:
    """The store of ``location`` and the OPTIONS ``given``, made when first asked for.

    Raises:
        ImproperlyConfigured: an option is unknown or wrong; names it, what it got and what it takes.
    """
    if not isinstance(location, str):
        raise ImproperlyConfigured(f"LOCATION must be a string, the name of the store, not {location!r}.")
    try:
        identity = (location, frozenset(given.items()))
        store = _stores.get(identity)
    except TypeError:
        # Something in it cannot be hashed, so something is wrong: the checks below say what.
        identity, store = None, None
    if store is None:
        made = _make_store(location, given)
        if identity is None:
            raise ImproperlyConfigured(f"The OPTIONS of {location!r} must be hashable, not {given!r}.")
        # One C call, so two threads that come first together get the same one.
        store = _stores.setdefault(identity, made)
    return store


def _make_store(location: str, given: Mapping[str, Any]) -> Store:
    unknown = [option for option in given if option not in OPTIONS]
    if unknown:
        raise ImproperlyConfigured(
            f"Unknown cache option {', '.join(map(repr, unknown))}. WheelCache takes {', '.join(OPTIONS)}."
        )
    try:
        checked = {option: OPTIONS[option](option, value) for option, value in given.items()}
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"Wrong cache option: {error}.") from error
    max_entries = checked.get("MAX_ENTRIES", DEFAULT_MAX_ENTRIES)
    max_bytes = checked.get("MAX_BYTES")
    if max_bytes is not None and given.get("SERIALIZER") == "reference":
        raise ImproperlyConfigured(
            f"Wrong cache option: MAX_BYTES must be None with SERIALIZER 'reference', not {max_bytes!r}: "
            "the size of an object that is kept by reference is not known."
        )
    tuning = {
        name: checked[option]
        for option, name in (
            ("JITTER", "jitter"),
            ("INTERVAL", "interval"),
            ("SLOTS", "slots"),
            ("LOG_INTERVAL", "log_interval"),
        )
        if option in checked
    }
    make_cache = partial(Cache, location or "default", max_entries=max_entries, **tuning)
    cache = make_cache() if max_bytes is None else make_cache(max_weight=max_bytes, weigher=size_of)
    isolation = checked.get("SERIALIZER") or Isolation(Pickle())
    return Store(cache, isolation, max_entries, checked.get("CULL_FREQUENCY"))
