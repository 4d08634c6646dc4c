"""A caller's request to load a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

from wheelcache.loading.policy import PLAIN, LoadPolicy


@dataclass(slots=True, eq=False)
class LoadRequest:
    """One look-up that missed, or one refresh.

    Attributes:
        key: the key in the core.
        caller_key: the key as the caller wrote it.
        watched: the key in the core whose writes outdate the value; usually ``key``.
        loader: is called without arguments. In a coroutine, an awaitable result is awaited.
        ttl: the seconds for which the value is fresh; None for forever.
        fresh_until: the end of the freshness of the entry that is refreshed.
        is_counted: the look-up has ended, as a hit or a miss.
        is_hit: the look-up was a hit: the value was found after its key was claimed, or a stale value is served.
        given_up: the caller's timeout passed.
    """

    key: Any
    caller_key: Hashable
    watched: Any
    loader: Callable[[], Any]
    ttl: float | None
    policy: LoadPolicy = PLAIN
    fresh_until: float = inf
    is_counted: bool = False
    is_hit: bool = False
    given_up: bool = False
