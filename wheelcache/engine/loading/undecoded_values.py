"""Deletes values from a store whose client cannot decode them: it raises one of ``codec.NOT_DECODED``.

The stored bytes are not known here, so the delete is unconditional. ``TieredCache`` reads the value again before:
another process that could not decode it either may have replaced it, and would compute the new value again. A client
may raise the same exceptions for an invalid key; then the delete raises them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.runtime.steps import Call, Outcome, StepsTo, result


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
