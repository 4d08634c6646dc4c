"""The alias of a backend object, for error messages: Django does not tell a backend which alias it is made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings


def in_words(location: Any, params: Mapping[str, Any]) -> str:
    """As in "the cache 'default'": the aliases with these settings, or the LOCATION if there are none.

    Args:
        params: what Django gives a backend, which is the entry of ``CACHES`` without BACKEND and LOCATION.
    """
    entries = settings.CACHES if settings.configured else {}
    named = [alias for alias, entry in entries.items() if _is_of(entry, location, params)]
    if not named:
        return f"the cache with the LOCATION {location!r}"
    return f"the cache{'s' if len(named) > 1 else ''} {' and '.join(map(repr, named))}"


def _is_of(entry: Mapping[str, Any], location: Any, params: Mapping[str, Any]) -> bool:
    others = {name: value for name, value in entry.items() if name not in ("BACKEND", "LOCATION")}
    return entry.get("LOCATION", "") == location and others == dict(params)
