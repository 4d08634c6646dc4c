"""The options of caches in front of another cache."""

from __future__ import annotations

from math import isinf
from typing import Any, Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option, Options, Spelling


def finite_timeout(name: str, value: Any) -> float:
    """Check a timeout as ``options.timeout`` does, but not an infinite one: the caches of cachelib cannot read it."""
    if isinstance(value, float) and isinf(value):
        raise ValueError(f"{name} must be a number of seconds (0 for never) or a timedelta, not {options.shown(value)}")
    return options.timeout(name, value)


OWN: Final = (
    Option("l2", options.unchecked, None, "the other cache", django=Spelling(check=options.text)),
    Option(
        *("l2_options", options.unchecked, None, "the `CACHE_OPTIONS` of the other cache"),
        django=None,
    ),
    Option("l1_timeout", options.seconds, 60.0, "the maximum lifetime of a copy in seconds"),
    Option("l2_timeout", options.seconds, 1.0, "the timeout of the other cache's sockets in seconds"),
    Option(
        "fail_safe",
        options.flag,
        False,
        "whether copies are returned while the other cache fails, for `GRACE` seconds after their expiry",
    ),
    Option("grace", options.seconds, 300.0, "seconds after the expiry of a copy for which `FAIL_SAFE` returns it"),
    Option(
        "writes_without_l2",
        options.one_of("drop", "refuse"),
        "drop",
        "with `FAIL_SAFE`, whether a write that fails is dropped or raises the exception",
    ),
    Option(
        *("default_timeout", options.or_none(finite_timeout), None, "the default timeout of the other cache"),
        django=None,
    ),
)
WITHOUT: Final = ("cull_frequency", "key_prefix", "fill_grace", "background_context")

DJANGO_TIERED: Final = Options.of_backend("django", OWN, WITHOUT)
FLASK_TIERED: Final = Options.of_backend("flask", OWN, WITHOUT)

BACKENDS: Final = {"TieredCache": {"django": DJANGO_TIERED, "flask": FLASK_TIERED}}
"""The options of the backend, by framework, for messages about an option of another backend."""
