"""The options of backends whose callers of ``get`` wait for the caller that computes the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from numbers import Real
from types import MappingProxyType
from typing import Any, Final

from wheelcache.engine import options
from wheelcache.engine.option_table import Option, Spelling

ACCEPTED: Final = (
    "a number of seconds >= 0, or a dict of 'pages', 'fragments' and key prefixes (strings) to such numbers"
)

DJANGO: Final = MappingProxyType({"pages": "views.decorators.cache.", "fragments": "template.cache."})
FLASK: Final = MappingProxyType({"pages": "view/", "fragments": "_template_fragment_cache_"})
"""The beginnings of the keys of pages and of template fragments, by their names in the options."""

_seconds: Final = options.number(ACCEPTED, Real, lambda given: given >= 0 and isfinite(given), float)


def _by_prefix(prefixes: Mapping[str, str], name: str, value: Any) -> tuple[tuple[str, float], ...]:
    """Check a number of seconds for every key, or a dict from key prefixes to seconds. 0 means no wait.

    Args:
        prefixes: the key prefixes that have names.

    Returns:
        Pairs of prefix and seconds, the longest prefix first.
    """
    given = value if isinstance(value, Mapping) else {"": value}
    for prefix in given:
        if not isinstance(prefix, str):
            raise TypeError(f"{name} must be {ACCEPTED}, not {options.shown(value)}")
    checked = {prefixes.get(prefix, prefix): _seconds(name, each) for prefix, each in given.items()}
    # Prefixes of equal length are sorted as well, so that equal dicts give the same pairs.
    longest_first = sorted(checked, key=lambda prefix: (-len(prefix), prefix))
    return tuple((prefix, checked[prefix]) for prefix in longest_first) if any(checked.values()) else ()


def _grace_needs_waits(checked: Mapping[str, Any], spelled: Callable[[str], str]) -> None:
    waits = [prefix for prefix, wait in checked["fill_wait"] if wait]
    for prefix, grace in checked["grace"]:
        if grace and not any(prefix.startswith(each) or each.startswith(prefix) for each in waits):
            name, needed = spelled("grace"), spelled("fill_wait")
            keys = f" of keys that begin with {prefix!r}" if prefix else ""
            raise ValueError(f"{name}{keys} needs {needed}: without it, no `get` waits for another caller")


def _spelling(prefixes: Mapping[str, str], default: Mapping[str, float]) -> Spelling:
    check = partial(_by_prefix, prefixes)
    return Spelling(check=check, default=check("", default))


WAITS: Final = MappingProxyType({"pages": 5, "fragments": 5})

OPTIONS: Final = (
    Option(
        "fill_wait",
        options.unchecked,
        (),
        "seconds for which a `get` waits, after a miss, for another caller to compute the value; a number, or a dict: "
        "`pages`, `fragments` or a key prefix to seconds",
        django=_spelling(DJANGO, WAITS),
        flask=_spelling(FLASK, WAITS),
    ),
    Option(
        "grace",
        options.unchecked,
        (),
        "seconds after its timeout for which the old value is returned while another caller computes the new one, in "
        "the same form; applies to keys with a wait",
        django=_spelling(DJANGO, {}),
        flask=_spelling(FLASK, {}),
        needs=_grace_needs_waits,
    ),
)
