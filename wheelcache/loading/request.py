"""What a caller asks to have loaded."""

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
        key: as it is stored.
        caller_key: as the caller wrote it.
        loader: called without arguments; what it returns is awaited in a coroutine, if it can be.
        ttl: seconds that the value is fresh; None for ever.
        fresh_until: of the entry that is to be loaded anew.
        is_counted: the look-up has ended, as a hit or a miss.
        is_hit: which of them: the value was found when its key was claimed, or is stale.
        given_up: the caller's timeout passed.
    """

    key: Any
    caller_key: Hashable
    loader: Callable[[], Any]
    ttl: float | None
    policy: LoadPolicy = PLAIN
    fresh_until: float = inf
    is_counted: bool = False
    is_hit: bool = False
    given_up: bool = False
