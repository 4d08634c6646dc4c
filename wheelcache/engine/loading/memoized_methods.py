"""Memoized functions in the body of a class: they bind their ``cache_delete`` as well, and warn of useless keys."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, update_wrapper
from inspect import Signature, signature
from types import MethodType
from typing import Any, Final

logger = logging.getLogger("wheelcache")

MANY: Final = 10
"""Instances of one method after which ``Instances`` warns. Services of which there are only a few share no values
either, but each of them finds its own."""

IDENTITY: Final[object] = object.__hash__


def is_in_class(function: Any) -> bool:
    """Return whether a function was defined in the body of a class."""
    place = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(place) and not place.endswith("<locals>")


class MemoizedMethod(partial[Any]):
    """A memoized function in the body of a class.

    It is a ``partial``, since a hit through ``__call__`` of a class in Python takes longer, and ``inspect`` looks for
    coroutine functions in a ``partial``.
    """

    @classmethod
    def of(cls, memoized: Callable[..., Any]) -> MemoizedMethod:
        method = cls(memoized)
        update_wrapper(method, memoized)
        return method

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if instance is owner:
            # From a ``classmethod``, which makes the same object itself from Python 3.13 on.
            return MethodType(self, instance)
        return BoundMethod(self, instance)

    def __reduce__(self) -> Any:
        # Pickled by its name, as a function is.
        return vars(self)["__qualname__"]


class BoundMethod(partial[Any]):
    # A memoized method of an instance, with the attributes of other bound methods. These two are the function's, and a
    # class has them itself, so ``__getattr__`` is not called. Storing them in each object would take longer.
    __doc__ = property(lambda self: self.func.__doc__)
    __module__ = property(lambda self: self.func.__module__)

    @property
    def __self__(self) -> Any:
        return self.args[0]

    @property
    def __func__(self) -> Any:
        return self.func

    @property
    def __signature__(self) -> Signature:
        return signature(MethodType(self.__func__, self.__self__))

    def cache_delete(self, *args: Any, **kwargs: Any) -> bool:
        """Forget the value for these arguments. Return whether there was one."""
        return self.__func__.cache_delete(self.__self__, *args, **kwargs)  # type: ignore[no-any-return]

    @property
    def uncached(self) -> Callable[..., Any]:
        """The function itself, bound to the instance."""
        return MethodType(self.__func__.uncached, self.__self__)

    def __get__(self, instance: object, owner: type | None = None) -> BoundMethod:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)

    def __repr__(self) -> str:
        return repr(MethodType(self.__func__, self.__self__))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundMethod) and self.func is other.func and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((self.__func__, id(self.__self__)))

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)


class Instances:
    """Warns once if a memoized function keeps values for many objects that are compared by identity.

    Only a call with the same object finds such a value, and the value keeps the object in memory.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids: set[int] | None = set()

    def missed(self, args: tuple[Any, ...]) -> None:
        """Look at the first argument of a call that found no value."""
        ids, kind = self._ids, type(args[0]) if args else str
        if ids is None or kind.__hash__ is not IDENTITY or issubclass(kind, type):
            return
        ids.add(id(args[0]))
        if len(ids) >= MANY:
            self._ids = None
            logger.warning(
                "The results of %s are kept for each of many objects of the class %s, which are compared by identity: "
                "no other object finds them, and they keep the objects in memory. Give memoize a key=, such as "
                "key=lambda self, *args: args, or give the class __eq__ and __hash__.",
                self._name,
                kind.__qualname__,
            )
