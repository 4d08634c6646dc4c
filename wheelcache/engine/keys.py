"""Adapts keys so that hashing and comparing them runs no Python code, and may be done under a lock.

Most keys are strings, numbers or tuples of them: C code hashes and compares them in nanoseconds. A key of a class with
its own ``__eq__`` or ``__hash__`` may be slow, may raise, and may call back into the cache. Without holding a lock,
such a key is replaced by a proxy, which stands for all keys that are equal to it and is hashed by identity.

Such keys are compared only with each other: a key that claims to equal a string is not the same key as the string.
``Decimal`` is one of these classes, since its comparison runs the Python code of ``numbers``: ``Decimal(1)`` and ``1``
are two keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from datetime import date, timedelta
from typing import Any, Final
from weakref import ref

_C_HASHED: Final[set[tuple[Any, Any]]] = {
    (kind.__hash__, kind.__eq__)
    for kind in (object, str, bytes, int, float, complex, type(None), type(...), range, date, timedelta)
}
_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))

_TUPLES: Final[Any] = (tuple.__hash__, tuple.__eq__)
"""Named tuples have the same methods."""

_FROZENSETS: Final[Any] = (frozenset.__hash__, frozenset.__eq__)


NO_VIEW: Final = "no view"
"""The name of the group of the pages that no known view has made."""


def is_plain(key: Any) -> bool:
    """Return whether hashing and comparing ``key`` runs only C code."""
    kind = type(key)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(map(is_plain, key))
    methods = (kind.__hash__, kind.__eq__)
    if methods == _TUPLES:
        return all(map(is_plain, tuple.__iter__(key)))
    if methods == _FROZENSETS:
        return all(map(is_plain, frozenset.__iter__(key)))
    return methods in _C_HASHED


class KeyProxy:
    """A stand-in for one key, which is equal only to itself."""

    __slots__ = ("__weakref__", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key

    def __repr__(self) -> str:
        return repr(self.key)


def unwrap(key: Any) -> Any:
    """Return the caller's key for a result of ``KeyProxies.adapt``."""
    return key.key if type(key) is KeyProxy else key


def text_of(key: Any) -> str:
    """Return a caller's key as a text: the ``repr`` of a key that is not a string. Django's backend keeps keys of which
    Django may warn in tuples."""
    key = key[0] if type(key) is tuple and len(key) == 1 else key
    return key if isinstance(key, str) else repr(key)


def matching(matches: Callable[[str], object], keys: list[Any]) -> list[Any]:
    """Return the callers' keys for whose texts ``matches`` returns a true value: see ``glob_pattern.matcher``."""
    # A call of ``filter`` would keep other threads waiting until all keys are matched, which takes 0.2 s for long keys.
    return [key for key in keys if matches(key if type(key) is str else text_of(key))]


def group_of(key: Any) -> str | None:
    """Return the group of a key, a caller's or the core's: the first item of a tuple, if that is a string. None for any
    other key."""
    key = key.key if type(key) is KeyProxy else key
    return key[0] if type(key) is tuple and len(key) > 0 and type(key[0]) is str else None


GROUP: Final = "("
"""The first character of the core's name for the tag of a group. A caller's tag never meets a group."""

CALLERS: Final = "#"
"""The first character of the core's name for a tag of the caller."""

INTERNAL: Final = "\0wheelcache "
"""The beginning of the tags that an HTTP cache gives its pages to purge them. The tags of a site do not begin so."""


def callers_tags(names: Iterable[str]) -> tuple[str, ...]:
    """Return the callers' tags among the tags that a core reports, without those of an HTTP cache."""
    return tuple([name[1:] for name in names if name[0] == CALLERS and not name.startswith(INTERNAL, 1)])


class KeyProxies:
    """The proxies in use, one for all equal keys. A proxy lives as long as an entry or a caller refers to it."""

    __slots__ = ("_buckets", "_lock")

    def __init__(self) -> None:
        # The proxies by hash. Tuples, so that one thread can search a bucket while another replaces it.
        self._buckets: dict[int, tuple[ref[KeyProxy], ...]] = {}
        self._lock = threading.RLock()

    def adapt(self, key: Any) -> Any:
        """Return ``key`` itself if it is plain, otherwise its proxy. The caller must not hold a lock.

        Raises:
            TypeError: if ``key`` is not hashable.
        """
        kind = type(key)
        # The most common keys first. A call of ``is_plain`` takes 60 ns, a test of all types at once 100 ns.
        if kind is str or kind is int:
            return key
        if kind is tuple:
            for item in key:
                kind = type(item)
                if kind is not str and kind is not int:
                    break
            else:
                return key
        if is_plain(key):
            return key
        digest = hash(key)
        while True:
            bucket = self._buckets.get(digest)
            for reference in bucket or ():
                proxy = reference()
                if proxy is not None and (proxy.key is key or proxy.key == key):
                    return proxy
            proxy = KeyProxy(key)
            with self._lock:
                if self._buckets.get(digest) is bucket:
                    live = (each for each in bucket or () if each() is not None)
                    self._buckets[digest] = (*live, ref(proxy, lambda gone: self._drop(digest, gone)))
                    return proxy

    def unwrapped(self, keys: list[Any]) -> list[Any]:
        """Return the callers' keys for results of ``adapt`` that are in use. Without proxies, this takes no time."""
        return [*map(unwrap, keys)] if self._buckets else keys

    def forget_locks(self) -> None:
        """Create a new lock after a fork, since another thread may have held the old one."""
        self._lock = threading.RLock()

    def _drop(self, digest: int, gone: ref[KeyProxy]) -> None:
        with self._lock:
            live = tuple(each for each in self._buckets.get(digest, ()) if each is not gone)
            if live:
                self._buckets[digest] = live
            else:
                self._buckets.pop(digest, None)
