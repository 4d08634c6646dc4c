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
    Option(
        "fail_safe",
        options.seconds_or_zero,
        0.0,
        "seconds after its expiry for which a copy is returned while the other cache fails; with it, writes that fail "
        "are dropped",
    ),
    Option(
        *("default_timeout", options.or_none(finite_timeout), None, "the default timeout of the other cache"),
        django=None,
    ),
)
WITHOUT: Final = ("cull_frequency", "key_prefix", "grace")

DJANGO_TIERED: Final = Options.of_backend("django", OWN, WITHOUT)
FLASK_TIERED: Final = Options.of_backend("flask", OWN, WITHOUT)
