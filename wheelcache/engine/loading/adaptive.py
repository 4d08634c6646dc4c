"""Loaders that receive the previous value, and lifetimes that depend on the loaded value.

A loader with a parameter named ``previous`` receives the value that it replaces, by keyword. It may return KEEP to
renew that value, for example after a conditional request that was answered by 304. The ideas are FusionCache's
conditional refresh and adaptive caching.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from inspect import Parameter, signature
from typing import Any, Final

from wheelcache.core.contract import Record
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.loading.policy import LoadPolicy

PREVIOUS: Final = "previous"


class _Kept(Enum):
    KEEP = "the previous value"

    def __repr__(self) -> str:
        return "wheelcache.KEEP"


KEEP: Final = _Kept.KEEP
"""The result of a loader that renews the previous value."""


def takes_previous(loader: Callable[..., Any]) -> bool:
    """Return whether ``loader`` has a parameter named ``previous`` that can be passed by keyword and is not bound."""
    while isinstance(loader, partial):
        if PREVIOUS in loader.keywords:
            return False
        loader = loader.func
    code = getattr(loader, "__code__", None)
    if code is not None and not hasattr(loader, "__wrapped__"):
        # At most 0.2 us instead of 10, at every miss.
        if not (code.co_argcount or code.co_kwonlyargcount):
            return False
        return PREVIOUS in code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    try:
        parameter = signature(loader).parameters.get(PREVIOUS)
    except (TypeError, ValueError):
        # Some builtins have no signature.
        return False
    return parameter is not None and parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def no_previous(key: Hashable) -> ValueError:
    return ValueError(f"the loader of {key!r} returned KEEP, and there is no previous value that it received")


def seconds_for(ttl: Any, value: Any) -> Any:
    """Return the TTL of ``value``: ``ttl``, or its result if it is a function.

    None means that the value never expires, 0.0 that it is not kept.

    Raises:
        ValueError: if ``value`` is KEEP: the cache that stores it passes no previous value.
    """
    if value is KEEP:
        raise ValueError("a loader returned KEEP, but this cache does not pass the previous value to loaders")
    return options.lifetime(f"the result of {ttl!r}", ttl(value)) if callable(ttl) else ttl


def check_has_no_refresh_ahead(ttl: Callable[..., Any], policy: LoadPolicy) -> None:
    """Raise a TypeError if ``policy`` needs to know the TTL before the value is loaded."""
    if policy.refresh_ahead is not None:
        raise TypeError(f"refresh_ahead is a fraction of a number of seconds, not of the function {ttl!r}")


class WithPrevious:
    """A loader without parameters, which passes the previous value to ``loader``.

    Args:
        key: the key of the value.
        previous: returns the entry with the value that the loader replaces.
        decode: returns the value of an entry.
    """

    __slots__ = ("_decode", "_key", "_loader", "_previous", "_record")

    def __init__(
        self,
        key: Hashable,
        loader: Callable[..., Any],
        previous: Callable[[Any], Record | None],
        decode: Callable[[Any], Any],
    ) -> None:
        self._key = key
        self._loader = loader
        self._previous = previous
        self._decode = decode
        self._record: Record | None = None

    def __call__(self) -> Any:
        self._record = record = self._previous(self._key)
        previous = None
        try:
            previous = None if record is None else self._decode(record.value)
        except NOT_DECODED:
            # The loaded value replaces it.
            self._record = None
        return self._loader(previous=previous)

    def pass_nothing(self) -> None:
        """Let the loader receive None: its value replaces none."""
        self._previous = lambda key: None

    def renewed(self) -> Any:
        """Return the previous value, which the last call has passed on, for the result KEEP."""
        if self._record is None:
            raise no_previous(self._key)
        # Again, since the loader may have changed the object that it received.
        return self._decode(self._record.value)
