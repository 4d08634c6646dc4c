"""The context of work that runs on its own: a refresh is part of no load and of no request, though one started it.

Parts keep in context variables what the running code belongs to. A part that does so adds what resets its variables.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Final

resetters: Final[list[Callable[[], object]]] = []
"""Called in each new context."""


def own_context() -> Context:
    """A copy of the caller's context for work that goes on without the caller."""
    context = copy_context()
    for reset in resetters:
        context.run(reset)
    return context
