"""What is stored for a value, so that no caller changes a cached value by changing the object that it got or gave.

Immutable values are stored as they are: sharing them is safe and costs nothing. Everything else is serialized when it
is set and deserialized each time it is got, outside every lock, since pickling runs whatever code the object brings.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from sys import getsizeof
from typing import Any, Final, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from wheelcache.core.access import Serialized

ATOMS: Final = frozenset(
    (str, int, bytes, bool, float, type(None), complex, Decimal, UUID, date, timedelta),
)
"""Immutable by themselves. Exactly these: a subclass may carry attributes."""

_ZONES: Final = (type(None), timezone, ZoneInfo)


class Serializer(Protocol):
    """As in Django's Redis backend and in cachelib."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, data: bytes, /) -> Any: ...


class Pickle:
    """The default serializer."""

    def __init__(self) -> None:
        # Not a method: the call would be a tenth of what loading a small dict takes.
        self.loads = pickle.loads

    def dumps(self, value: Any, /) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def is_immutable(value: Any) -> bool:
    """Whether nothing reachable from ``value`` can change."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_is_immutable_leaf, chain.from_iterable(_containers(value))))
    return _is_immutable_leaf(value)


def _is_immutable_leaf(value: Any) -> bool:
    """Whether ``value`` cannot change, if what it contains is looked at elsewhere."""
    kind = type(value)
    if kind in ATOMS or kind is tuple or kind is frozenset:
        return True
    return (kind is datetime or kind is time) and type(value.tzinfo) in _ZONES


def _containers(outermost: Any) -> Iterator[Any]:
    """A tuple or frozenset and those in it, each once: ``(t, t)``, nested, would be walked 2 ** depth times."""
    seen = {id(outermost)}
    todo = [outermost]
    while todo:
        container = todo.pop()
        yield container
        for item in container:
            if (type(item) is tuple or type(item) is frozenset) and id(item) not in seen:
                seen.add(id(item))
                todo.append(item)


class Codec:
    """Turns values into what is stored, and back.

    Args:
        serializer: has ``dumps(value) -> bytes`` and ``loads(bytes)``; None stores references to everything.
        keep: which values are stored as they are.
    """

    __slots__ = ("_dumps", "_keep", "loads")

    loads: Callable[[bytes], Any]

    def __init__(self, serializer: Serializer | None, keep: Callable[[Any], bool] = is_immutable) -> None:
        if serializer is None:
            self._keep: Callable[[Any], bool] = _anything
            serializer = Pickle()
        else:
            self._keep = keep
        self._dumps = serializer.dumps
        self.loads = serializer.loads

    def encode(self, value: Any) -> Any:
        """What to store for ``value``.

        Raises:
            TypeError: the serializer returns something else than bytes. Whatever the serializer raises.
        """
        if self._keep(value):
            return value
        data = self._dumps(value)
        if not isinstance(data, bytes):
            raise TypeError(f"the serializer's dumps() must return bytes, not {data!r}")
        return Serialized(data)

    def decode(self, stored: Any) -> Any:
        """The value for what was stored."""
        return self.loads(stored) if type(stored) is Serialized else stored


def is_bare(value: Any) -> bool:
    """Whether a serializer of the user's own leaves ``value`` alone: an int, for counters, or None, for what is not."""
    return type(value) is int or value is None


def size_of(key: Any, stored: Any, *, entry_bytes: int = 0) -> int:
    """The bytes that a key, what ``Codec`` stores, and beside them their entry take: a weigher."""
    return entry_bytes + _size(key) + _size(stored)


def _size(value: Any) -> int:
    if type(value) is not tuple and type(value) is not frozenset:
        return getsizeof(value)
    size = 0
    for container in _containers(value):
        size += getsizeof(container)
        size += sum(getsizeof(item) for item in container if type(item) is not tuple and type(item) is not frozenset)
    return size


def _anything(value: Any) -> bool:
    return True
