"""Refuses values that can be read only once: coroutines and generators. Every way to store a value calls this check."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from functools import lru_cache
from typing import Any, Final

USUAL: Final = frozenset((str, int, bytes, bool, float, type(None), dict, list, tuple, set, frozenset))
"""Types that need no further check, which takes 0.1 us."""

_READ_ONCE: Final = (Coroutine, Generator, AsyncGenerator)


def check_reusable(value: Any) -> None:
    """Check that ``value`` can be read more than once.

    Raises:
        TypeError: if it is a coroutine or a generator. A coroutine is closed.
    """
    kind = type(value)
    if kind not in USUAL and _are_read_once(kind):  # type: ignore[arg-type]  # a class is hashable
        raise read_once(value)


@lru_cache(256)
def _are_read_once(kind: type) -> bool:
    # Without the cache, this takes 0.7 us.
    return issubclass(kind, _READ_ONCE)


def read_once(value: Any) -> TypeError:
    """Return the error for a value that can be read only once. A coroutine is closed."""
    if isinstance(value, (Generator, AsyncGenerator)):
        return TypeError(f"{value!r} can be read only once, so it is not cached: return a list or a tuple instead")
    error = TypeError(
        f"{value!r} can be awaited only once, so it is not cached: in a coroutine, await aget_or_set() or "
        "aget_or_load(), or memoize a function that is defined by 'async def'; elsewhere, return a value"
    )
    if isinstance(value, Coroutine):
        value.close()
    return error
