"""The options of backends whose callers of ``get`` wait for the caller that computes the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Real
from typing import Any, Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option

ACCEPTED: Final = "a number of seconds >= 0, or a dict of key prefixes (strings) to such numbers"

_seconds: Final = options.number(ACCEPTED, Real, lambda given: given >= 0 and isfinite(given), float)


def waits(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    """Check a number of seconds for every key, or a dict from key prefixes to seconds. 0 means no wait.

    Returns:
        Pairs of prefix and seconds, the longest prefix first.
    """
    given = value if isinstance(value, Mapping) else {"": value}
    for prefix in given:
        if not isinstance(prefix, str):
            raise TypeError(f"{name} must be {ACCEPTED}, not {options.shown(value)}")
    checked = {prefix: _seconds(name, each) for prefix, each in given.items()}
    # Prefixes of equal length are sorted as well, so that equal dicts give the same pairs.
    longest_first = sorted(checked, key=lambda prefix: (-len(prefix), prefix))
    return tuple((prefix, checked[prefix]) for prefix in longest_first) if any(checked.values()) else ()


def _grace_needs_waits(checked: Mapping[str, Any], spelled: Callable[[str], str]) -> None:
    waits = [prefix for prefix, wait in checked.get("fill_wait", ()) if wait]
    for prefix, grace in checked["fill_grace"]:
        if grace and not any(prefix.startswith(each) or each.startswith(prefix) for each in waits):
            name, needed = spelled("fill_grace"), spelled("fill_wait")
            keys = f" of keys that begin with {prefix!r}" if prefix else ""
            raise ValueError(f"{name}{keys} needs {needed}: without it, no `get` waits for another caller")


OPTIONS: Final = (
    Option(
        "fill_wait",
        waits,
        (),
        "seconds for which a `get` waits, after a miss, for another caller to compute the value",
    ),
    Option(
        "fill_grace",
        waits,
        (),
        "seconds after its timeout for which the old value is returned while another caller computes the new one",
        needs=_grace_needs_waits,
    ),
)
