"""Keeps the results of a look-up for the running thread and context. The compiled twin is ``context_memo.pxi``.

It is in this package to be compiled, and independent of the core.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import get_ident
from typing import Any, Final

NOTHING_KEPT: Final[tuple[int, dict[str, Any]]] = (0, {})


class ContextMemo:
    """Keeps the results of a look-up by name that depends on the thread and the context.

    A context that is copied into another thread, or inherited by it, does not find the objects there, as in asgiref's
    ``Local``. A dict of objects is never changed, since copied contexts share it.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self.forget_everywhere()

    def find(self, name: Any) -> Any:
        """Return the object that this thread and context keeps by ``name``; None if there is none."""
        thread, objects = self._kept.get()
        return objects.get(name) if thread == get_ident() and type(name) is str else None

    def look_up(self, name: Any, look_up: Callable[[Any], Any], kinds: tuple[type, ...]) -> Any:
        """Return ``look_up(name)``, and keep the result if it is an instance of one of ``kinds``."""
        # Read first: if everything is forgotten during the look-up, nobody finds its result.
        kept = self._kept
        found = look_up(name)
        if isinstance(found, kinds) and type(name) is str:
            thread, objects = kept.get()
            others = objects if thread == get_ident() else {}
            kept.set((get_ident(), {**others, name: found}))
        return found

    def forget(self) -> None:
        """Forget the objects of this context."""
        self._kept.set(NOTHING_KEPT)

    def forget_everywhere(self) -> None:
        """Forget the objects of all threads and contexts."""
        self._kept: ContextVar[tuple[int, dict[str, Any]]] = ContextVar("kept", default=NOTHING_KEPT)


class KeptAttribute:
    """A descriptor that reads an attribute of a kept object.

    If no object is kept, it raises an AttributeError, and Python calls the ``__getattr__`` of the class.
    """

    __slots__ = ("_attribute", "_memo", "_name")

    def __init__(self, memo: ContextMemo, name: str, attribute: str) -> None:
        self._memo = memo
        self._name = name
        self._attribute = attribute

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        found = self._memo.find(self._name)
        if found is None:
            raise AttributeError(self._attribute)
        return getattr(found, self._attribute)
