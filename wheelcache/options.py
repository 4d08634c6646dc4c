"""Checks the values of options, for the engine and, under their own spelling, for the backends.

Every check receives the name as the user wrote it and the given value. It returns the value to use, or raises a
TypeError or ValueError with the name, the accepted values and the given one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from math import inf, isfinite, isnan
from numbers import Real
from pathlib import Path
from sys import float_info
from typing import Any, Final, TypeVar

T = TypeVar("T")

Check = Callable[[str, Any], Any]


def _checked(name: str, value: Any, takes: str, kind: Any, holds: Callable[[Any], bool]) -> Any:
    # A bool is an int to Python, but True is not meant as one interval.
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    try:
        holding = holds(value)
    except OverflowError:
        # An int that no float can hold.
        holding = False
    if not holding:
        raise ValueError(f"{name} must be {takes}, not {value!r}")
    return value


def unknown(given: Iterable[Any], known: Iterable[str], cache: str) -> str | None:
    """Return the message about options that a cache does not know, with the nearest known one, or all. Return None if
    it knows them all.

    Args:
        cache: the cache in words, as in "the cache 'default'".
    """
    by_case = {name.casefold(): name for name in known}
    said = []
    for option in given:
        if not (isinstance(option, str) and by_case.get(option.casefold()) == option):
            near = get_close_matches(str(option).casefold(), by_case, n=1, cutoff=SIMILARITY)
            hint = f"did you mean {by_case[near[0]]}?" if near else f"it takes {', '.join(by_case.values())}"
            said.append(f"unknown option {option!r} of {cache}; {hint}")
    return "\n".join(said) or None


SIMILARITY: Final = 0.75
"""The similarity of a misspelled option to the right one. At 0.6, difflib's own value, max_entries would pass for
max_bytes."""


def _is_duration(value: float) -> bool:
    return value > 0 and isfinite(value)


def _number(
    takes: str, kind: Any, holds: Callable[[Any], bool], convert: Callable[[Any], T]
) -> Callable[[str, Any], T]:
    return lambda name, value: convert(_checked(name, value, takes, kind, holds))


def _or_none(
    takes: str, kind: Any, holds: Callable[[Any], bool], convert: Callable[[Any], T]
) -> Callable[[str, Any], T | None]:
    return lambda name, value: None if value is None else convert(_checked(name, value, takes, kind, holds))


def _is_interval(value: float) -> bool:
    return isfinite(value) and value >= 1e-6


_seconds: Final = _number("a number of seconds > 0", Real, _is_duration, float)


def seconds(name: str, value: Any) -> float:
    """Check a finite time > 0."""
    # The shortcut saves 0.5 us, for every timer.
    return value if type(value) is float and 0.0 < value < inf else _seconds(name, value)


seconds_or_none: Final = _or_none("a number of seconds > 0, or None", Real, _is_duration, float)

seconds_or_zero: Final = _number("a number of seconds >= 0", Real, lambda given: given >= 0 and isfinite(given), float)

interval: Final = _number("a number of seconds > 0, at least 0.000001", Real, _is_interval, float)
"""A finite time of at least a microsecond: below, a float cannot count the ticks of a year."""

interval_or_none: Final = _or_none("a number of seconds > 0, or None (at least 0.000001)", Real, _is_interval, float)

count: Final = _number("a whole number >= 1", int, lambda given: given >= 1, int)

count_or_none: Final = _or_none("a whole number >= 1, or None for no bound", int, lambda given: given >= 1, int)

slots: Final = _number("a whole number from 1 to 16,384", int, lambda given: 1 <= given <= 16_384, int)
"""Finding the next timer may require a look at each slot, which takes a millisecond."""

whole: Final = _number("a whole number >= 0", int, lambda given: given >= 0, int)

fraction: Final = _number("a fraction, 0 <= fraction < 1", Real, lambda given: 0 <= given < 1, float)

share_or_none: Final = _or_none("a fraction, 0 < fraction < 1, or None", Real, lambda given: 0 < given < 1, float)


def ttl(name: str, value: Any) -> float | None:
    """Check a time to live > 0, or None. An infinite one is the same as None."""
    takes = "a number of seconds > 0, or None for no expiry"
    if value is None or _checked(name, value, takes, Real, lambda given: given > 0) == inf:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def timeout(name: str, value: Any) -> float:
    """Check a timeout in seconds, a number or a timedelta. 0 means never, and less means over immediately."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not isnan(value):
        return value
    # No clock can count an int that no float can hold.
    if isinstance(value, int) and not isinstance(value, bool) and value <= float_info.max:
        return value
    raise TypeError(f"{name} must be a number of seconds (0 for never) or a timedelta, not {value!r}")


def django_timeout(name: str, value: Any) -> Any:
    """Return a timeout of a Django cache: seconds, where 0 or less means over immediately, or None for no expiry.

    Always a TypeError if it is neither, as ``timeout`` raises, also for NaN.
    """
    # A comparison with NaN is false.
    if value is None or (isinstance(value, Real) and not isinstance(value, bool) and value == value):
        return value
    raise TypeError(
        f"{name} must be a number of seconds (0 or less: over immediately) or None for no expiry, not {value!r}"
    )


def timeout_or_none(name: str, value: Any) -> float | None:
    """Check a timeout as ``timeout`` does, or None."""
    return None if value is None else timeout(name, value)


def as_django_reads(check: Check) -> Check:
    """Return ``check`` for values that Django's own backends convert by ``int``, such as "500" and 1e6.

    A fraction is refused, not cut off.
    """

    def read(name: str, value: Any) -> Any:
        if isinstance(value, str) or (isinstance(value, float) and value.is_integer()):
            with suppress(TypeError, ValueError):
                return check(name, int(value))
        return check(name, value)

    return read


def zero_for(default: int, check: Check) -> Check:
    """Return ``check`` with 0 in the meaning of ``default``."""
    return lambda name, value: check(name, value) or default


def flag(name: str, value: Any) -> bool:
    """Check a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def waits(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    """Check seconds for every key, or a dict of key prefixes to seconds; 0 for none.

    Returns:
        Pairs of prefix and seconds, the longest prefix first.
    """
    takes = "a number of seconds >= 0, or a dict of key prefixes (strings) to such numbers"
    given = value if isinstance(value, Mapping) else {"": value}
    for prefix, each in given.items():
        if not isinstance(prefix, str):
            raise TypeError(f"{name} must be {takes}, not {value!r}")
        _checked(name, each, takes, Real, lambda seconds: seconds >= 0 and isfinite(seconds))
    # Prefixes of equal length are in a fixed order, too, so that equal dicts give the same pairs.
    longest_first = sorted(given, key=lambda prefix: (-len(prefix), prefix))
    return tuple((prefix, float(given[prefix])) for prefix in longest_first) if any(given.values()) else ()


def coherence(name: str, value: Any) -> str | None:
    """Check \"host\", or None."""
    if value is not None and value != "host":
        raise ValueError(f"{name} must be 'host', or None, not {value!r}")
    return None if value is None else "host"


def one_of(*takes: str) -> Check:
    """Return a check for one of these strings."""

    def check(name: str, value: Any) -> str:
        if value not in takes:
            raise ValueError(f"{name} must be {' or '.join(map(repr, takes))}, not {value!r}")
        return str(value)

    return check


SERIALIZER_TAKES: Final = "'pickle', 'reference', or the dotted path of an object with dumps() and loads()"


def serializer_name(name: str, value: Any) -> str:
    """Check a string. Its path is imported when the cache is made."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {SERIALIZER_TAKES}, not {value!r}")
    return value


def path_or_none(name: str, value: Any) -> Path | None:
    """Check an absolute path, given as a string or ``pathlib.Path``, or None."""
    takes = "an absolute path, or None"
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    path = encodable_path(name, value)
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError(f"{name} must be {takes}, not {value!r}")
    return path


def encodable_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Check a path that the file system can encode. A lone surrogate is valid only if ``os.fsdecode`` produces it."""
    path = Path(value)
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        reason = f"{error.encoding} cannot encode the character {error.object[error.start]!a}"
        raise ValueError(f"{name} must be a path that the file system can encode, not {value!r}: {reason}") from None
    return path


def secret_or_none(name: str, value: Any) -> bytes | None:
    """Check a string that can be encoded in UTF-8, or bytes, not empty, or None."""
    if value is None:
        return None
    if not isinstance(value, str | bytes) or not value:
        # Do not include the value: it may be a secret.
        raise TypeError(f"{name} must be a string or bytes, not empty, or None, not a {type(value).__qualname__}")
    try:
        return value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        # Without the cause: its message would show the secret.
        raise ValueError(f"{name} must be a string without lone surrogates, or bytes") from None


def stamps_or_none(name: str, value: Any) -> Any:
    """Check stamps, or None."""
    # By their attributes: there are two kinds, and tests have others.
    if value is not None and not (callable(getattr(value, "slot", None)) and hasattr(value, "table")):
        raise TypeError(f"{name} must be a wheelcache.coherence.shared_stamps.SharedStamps, or None, not {value!r}")
    return value


def function(name: str, value: Any) -> Any:
    """Check a callable."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {value!r}")
    return value


def function_or_none(name: str, value: Any) -> Any:
    """Check a callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, or None, not {value!r}")
    return value


def unchecked(name: str, value: Any) -> Any:
    """Accept any value: only the framework can check it, where it is used."""
    return value


def text(name: str, value: Any) -> str:
    """Check a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    return value
