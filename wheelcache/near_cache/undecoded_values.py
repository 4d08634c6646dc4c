"""Reads from a store whose client may be unable to decode a value.

``TieredCache`` reads such a value again before it deletes it: another process that could not decode it either may have
replaced it, and would compute the new value again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.runtime.steps import StepsTo, drive_async

NoteUndecoded = Callable[[str, Exception], object]
"""Receives the key of a value that cannot be decoded, and the exception."""


def read_each(keys: Iterable[str], read: Callable[[str], StepsTo[Any]]) -> StepsTo[dict[str, Any]]:
    """Read many keys by ``read``. Return a dict of the values that were found."""
    found = {}
    for key in keys:
        value = yield from read(key)
        if value is not MISSING:
            found[key] = value
    return found


async def awaited(found: Awaitable[Any], again: StepsTo[Any]) -> Any:
    """Return the value of ``found``. If it cannot be decoded, return the result of the steps ``again``."""
    try:
        return await found
    except NOT_DECODED:
        return await drive_async(again)
