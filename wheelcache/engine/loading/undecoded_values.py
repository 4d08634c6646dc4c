"""Deletes values from a store whose client cannot decode them: it raises one of ``codec.NOT_DECODED``.

The stored bytes are not known here, so the delete is unconditional. ``TieredCache`` reads the value again before:
another process that could not decode it either may have replaced it, and would compute the new value again. A client
may raise the same exceptions for an invalid key; then the delete raises them, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.runtime.steps import Call, Outcome, StepsTo, drive_async, result

NoteUndecoded = Callable[[str, Exception], object]
"""Receives the key of a value that cannot be decoded, and the exception."""


def read_or_delete(
    read: Callable[[], Any], delete: Callable[[], Any], note: Callable[[Exception], object]
) -> StepsTo[Any]:
    """Return the result of ``read()``; MISSING if the value was deleted, since it cannot be decoded.

    Args:
        note: receives the exception.
    """
    outcome: Outcome = yield Call(read)
    if isinstance(outcome[1], NOT_DECODED):
        result((yield Call(delete)))
        note(outcome[1])
        return MISSING
    return result(outcome)


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
