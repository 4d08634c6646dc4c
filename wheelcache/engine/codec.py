"""Encodes values, so that changing an object after storing or reading it does not change the cached value.

Immutable values are stored as they are: sharing them is safe and costs nothing. All other values are serialized when
they are set and deserialized at each read. Both happen without a lock, since pickling runs the code of their classes.
"""

from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from math import inf
from sys import getsizeof
from typing import Any, Final, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from wheelcache.core.access import Serialized
from wheelcache.core.contract import MISSING
from wheelcache.engine.options import shown
from wheelcache.runtime.reusable import check_reusable
from wheelcache.runtime.steps import Call, Outcome, StepsTo, result

logger = logging.getLogger("wheelcache")

ATOMS: Final = frozenset(
    (str, int, bytes, bool, float, type(None), complex, Decimal, UUID, date, timedelta),
)
"""The immutable types. Subclasses are not included, since they may have attributes."""

_ZONES: Final = (type(None), timezone, ZoneInfo)

NOT_DECODED: Final = (
    *(pickle.PickleError, EOFError, ImportError, AttributeError),
    *(TypeError, ValueError, LookupError, ArithmeticError),
    # Of a damaged file of Django's FileBasedCache, or of values that an earlier serializer did not compress.
    zlib.error,
)
"""The exceptions of a deserializer which mean that a stored value cannot be decoded, for example because a deploy has
moved or changed its class. The value is then deleted, and the look-up is a miss.

All other exceptions pass through, and the value stays. A signal handler may raise its exception, such as Celery's
SoftTimeLimitExceeded, in the middle of a decoding, and a MemoryError or RecursionError depends on the caller. The
traceback was rejected as a criterion: a signal handler runs on top of the frames that it interrupts."""

WARNING_INTERVAL: Final = 60.0
"""Seconds."""


class Serializer(Protocol):
    """A serializer with the interface of Django's Redis backend and of cachelib."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, data: bytes, /) -> Any: ...


class Pickle:
    """The default serializer."""

    def __init__(self) -> None:
        # An attribute instead of a method: a Python call would add a tenth to the time of loading a small dict.
        self.loads = pickle.loads

    def dumps(self, value: Any, /) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def is_immutable(value: Any) -> bool:
    """Return whether ``value``, and everything that is reachable from it, is immutable."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_is_immutable_leaf, chain.from_iterable(_containers(value))))
    return _is_immutable_leaf(value)


def _is_immutable_leaf(value: Any) -> bool:
    """Return whether ``value`` cannot change, apart from its items, which the caller examines."""
    kind = type(value)
    if kind in ATOMS or kind is tuple or kind is frozenset:
        return True
    return (kind is datetime or kind is time) and type(value.tzinfo) in _ZONES


def _containers(outermost: Any) -> Iterator[Any]:
    """Iterate over a tuple or frozenset and all tuples and frozensets inside it.

    Each object is visited once; otherwise a nested ``(t, t)`` would be visited 2 ** depth times.
    """
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
    """Encodes values for storage, and decodes them.

    Args:
        serializer: an object with ``dumps(value) -> bytes`` and ``loads(bytes)``. None stores every value by reference.
        keep: returns whether a value is stored as it is.
    """

    __slots__ = ("_atoms", "_dumps", "_keep", "loads")

    loads: Callable[[bytes], Any]

    def __init__(self, serializer: Serializer | None, keep: Callable[[Any], bool] = is_immutable) -> None:
        if serializer is None:
            self._keep: Callable[[Any], bool] = _anything
            serializer = Pickle()
        else:
            self._keep = keep
        # Known to be immutable without a call.
        self._atoms = ATOMS if keep is is_immutable else frozenset()
        self._dumps = serializer.dumps
        self.loads = serializer.loads

    def encode(self, value: Any) -> Any:
        """Return the object to store for ``value``.

        Raises:
            TypeError: if the value can be read only once, or the serializer does not return bytes. Errors of the
                serializer pass through.
        """
        if type(value) in self._atoms or self._keep(value):
            return value
        check_reusable(value)
        data = self._dumps(value)
        if not isinstance(data, bytes):
            raise TypeError(f"the serializer's dumps() must return bytes, not {shown(data)}")
        return Serialized(data)

    def decode(self, stored: Any) -> Any:
        """Return the value of a stored object."""
        return self.loads(stored) if type(stored) is Serialized else stored


class UndecodedLog:
    """Logs values that cannot be decoded, at most once a minute: after a deploy, many values of a cache may be such.

    Args:
        cache: the name of their cache.
        clock: returns seconds.
    """

    __slots__ = ("_cache", "_clock", "_next")

    def __init__(self, cache: str, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock
        self._next = -inf

    def note(self, key: Any, error: BaseException) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + WARNING_INTERVAL
            logger.warning(
                "The value of %.200r in the cache %r cannot be decoded (%.200r); it is deleted and counts as a miss. "
                "For a minute, no other such value of this cache is logged.",
                *(key, self._cache, error),
            )


def is_bare(value: Any) -> bool:
    """Return whether a user's own serializer is bypassed for ``value``: an int, which may be a counter, or None."""
    return type(value) is int or value is None


def size_of(key: Any, stored: Any, *, entry_bytes: int = 0) -> int:
    """Return the size of a key, of a stored object and of their entry, in bytes. This is a weigher."""
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
    check_reusable(value)
    return True


def read_or_delete(
    read: Callable[[], Any], delete: Callable[[], Any], note: Callable[[Exception], object]
) -> StepsTo[Any]:
    """Return the result of ``read()``; MISSING if the value was deleted, since the client of its store
    cannot decode it: it raises one of NOT_DECODED.

    The stored bytes are not known here, so the delete is unconditional. A client may raise the same exceptions for an
    invalid key; then the delete raises them, too.

    Args:
        note: receives the exception.
    """
    outcome: Outcome = yield Call(read)
    if isinstance(outcome[1], NOT_DECODED):
        result((yield Call(delete)))
        note(outcome[1])
        return MISSING
    return result(outcome)
