"""Deletes values from a store whose client cannot decode them: it raises one of ``codec.NOT_DECODED``.

The stored bytes are not known here, so the delete is unconditional. The value is read twice before: another process
that could not decode it either may have replaced it, and would compute the new value again. A client may raise the same
exceptions for an invalid key; then the delete raises them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wheelcache.codec import NOT_DECODED
from wheelcache.core.contract import MISSING
from wheelcache.loading.steps import Call, Outcome, StepsTo, result

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
        outcome = yield Call(read)
        if isinstance(outcome[1], NOT_DECODED):
            result((yield Call(delete)))
            note(outcome[1])
            return MISSING
    return result(outcome)


def read_many_or_delete(
    keys: Iterable[str], read: Callable[[], Any], read_one: Callable[[str], StepsTo[Any]]
) -> StepsTo[Any]:
    """Return the result of ``read()``, a dict. If one of the values cannot be decoded, read each by ``read_one``."""
    outcome: Outcome = yield Call(read)
    if not isinstance(outcome[1], NOT_DECODED):
        return result(outcome)
    found = {}
    for key in keys:
        value = yield from read_one(key)
        if value is not MISSING:
            found[key] = value
    return found
