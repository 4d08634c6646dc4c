"""How a value is loaded and reloaded: what ``take``, ``memoize`` and their kin take beside a loader and a TTL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wheelcache import options


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """Checked options of a load.

    Attributes:
        grace: seconds past its TTL for which a value may still be served while it is loaded anew; 0.0 for none.
        refresh_ahead: the fraction of the TTL after which a hit has the value loaded anew; None for never.
        fail_safe: a value within its grace is served if loading it anew fails.
        timeout: seconds that a caller waits for a load; None for as long as it takes.
        keep: seconds past its TTL for which a value stays, to be had by ``get_stale`` only.
        negative_ttl: seconds that a None is kept; None for as long as any other value.
    """

    grace: float = 0.0
    refresh_ahead: float | None = None
    fail_safe: bool = False
    timeout: float | None = None
    negative_ttl: float | None = None
    keep: float = 0.0


PLAIN: Final = LoadPolicy()


def load_policy(
    grace: float | None,
    refresh_ahead: float | None,
    fail_safe: bool,
    timeout: float | None,
    negative_ttl: float | None,
    *,
    timeout_name: str = "timeout",
) -> LoadPolicy:
    """The policy of these options.

    Args:
        timeout_name: what the user calls ``timeout``.

    Raises:
        TypeError, ValueError: naming the option, what it takes and what it got.
    """
    if grace is refresh_ahead is timeout is negative_ttl is None and fail_safe is False:
        return PLAIN
    given = (grace, refresh_ahead, fail_safe, timeout, negative_ttl, timeout_name)
    try:
        # Backends check what they get on every call, hits included: 0.3 us instead of 3.
        return _remembered(*given)
    except TypeError:
        # Or something that cannot be hashed, which is wrong, too: then this says what.
        return _checked(*given)


def _checked(
    grace: float | None,
    refresh_ahead: float | None,
    fail_safe: bool,
    timeout: float | None,
    negative_ttl: float | None,
    timeout_name: str,
) -> LoadPolicy:
    if options.flag("fail_safe", fail_safe) and grace is None:
        raise TypeError("fail_safe needs grace: what may be served if a load fails, and for how long")
    return LoadPolicy(
        options.seconds_or_none("grace", grace) or 0.0,
        options.share_or_none("refresh_ahead", refresh_ahead),
        fail_safe,
        options.seconds_or_none(timeout_name, timeout),
        options.seconds_or_none("negative_ttl", negative_ttl),
    )


_remembered: Final = lru_cache(maxsize=128, typed=True)(_checked)
