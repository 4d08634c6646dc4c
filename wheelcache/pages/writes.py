"""Records which code writes the session of a visitor and sets cookies, for developers who ask why a page is not stored.

Frameworks keep no record of this, and a response shows only the names of its cookies. So the methods of the classes of
sessions and responses are wrapped at the first request whose reads are recorded; other requests only check a context
variable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextvars import ContextVar
from functools import partial, wraps
from types import CodeType
from typing import Any, Final

from wheelcache.pages.reads import Reads

WRITES: Final = (
    *("__setitem__", "__delitem__", "pop", "popitem", "setdefault", "update", "clear", "set_expiry", "cycle_key"),
    *("flush", "aset", "apop", "asetdefault", "aupdate", "aset_expiry", "acycle_key", "aflush"),
)
"""The methods that change a session."""

_traces: Final[ContextVar[Reads | None]] = ContextVar("traces", default=None)
_recorded: Final[set[type]] = set()

stop_recording: Final[Callable[[], object]] = partial(_traces.set, None)


def record_writes(traces: Reads, session_class: type | None, response_class: type, ends: Collection[CodeType]) -> None:
    """Record the writes of this request from now on.

    Args:
        session_class: the class of its session; None if it is unknown.
        ends: the code that calls the next layer.
    """
    for each, names, what in ((session_class, WRITES, "session"), (response_class, ("set_cookie",), "cookie")):
        if each is not None and each not in _recorded:
            _recorded.add(each)
            for name in names:
                if hasattr(each, name):
                    setattr(each, name, _recording(getattr(each, name), what, ends))
    _traces.set(traces)


def _recording(method: Callable[..., Any], what: str, ends: Collection[CodeType]) -> Callable[..., Any]:
    @wraps(method)
    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        traces = _traces.get()
        if traces is not None:
            # The key; none of a method that changes the whole session.
            key = next((each for each in (*args, kwargs.get("key")) if isinstance(each, str)), None)
            traces.add_write(what if key is None else f"{what} {key}", sys._getframe(1), ends)
        return method(self, *args, **kwargs)

    return recording
