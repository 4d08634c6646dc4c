"""The notes of the misses of one cache: one per missed key of a thread, task or request, until a write answers it.

A caller that misses a key computes its value and sets it. Most sites load values that way: with ``cache_page``, with
template fragments, with ``@cached`` and ``@memoize`` of Flask-Caching, and in their own code. The note of the miss
answers two questions about such a ``set``:

- How long did the computation take? A backend counts it as a load, once: the first write of the key ends the
  computation. The loads of a loader that is passed to the cache are counted and timed by ``Loads``.
- Was a tag of the value dropped since the miss? If so, the value is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, Final, Protocol

from wheelcache.core.contract import Core
from wheelcache.engine.keys import KeyProxies
from wheelcache.runtime.machine_clock import moment
from wheelcache.runtime.request_scope import NotedMisses, running_scope

LONGEST_COMPUTATION: Final = 60.0
"""Seconds. A ``set`` that comes later after a miss is not attributed to it."""


PLAIN_LENGTH: Final = 250
"""Characters. A longer key, or a key that is not a string, is noted by its 16-byte digest: such keys are rare, and
could occupy any number of bytes."""


class LoadCounts(Protocol):
    """Counts the loads of one cache, by the keys of its core."""

    def count(self, key: Any, seconds: float, group: str | None = None) -> None:
        """Count a value that a caller computed in ``seconds``, for the group of the key or the given one."""

    def leave_out(self, is_left_out: Callable[[Any], bool]) -> None:
        """Do not count the loads of keys for which ``is_left_out`` is true."""


class Misses:
    """The misses of one cache that a write may answer. Keys are those of the callers.

    Args:
        keys: adapts the callers' keys to the core.
        start_jobs: called for each counted miss.

    Attributes:
        loads: counts the computations.
        noted: the notes.
        scopes: while it is empty, no caller has missed a key, so ``count_computation`` need not be called.
    """

    __slots__ = ("_core", "_keys", "_start_jobs", "loads", "noted", "scopes")

    loads: LoadCounts

    def __init__(
        self,
        core: Core,
        keys: KeyProxies,
        start_jobs: Callable[[], object],
    ) -> None:
        self._core = core
        self._keys = keys
        self._start_jobs = start_jobs
        self.noted = NotedMisses()
        self.scopes = self.noted.scopes

    def cause(self, key: Any) -> int:
        """Return why there is no fresh entry of ``key``, for a later ``count``."""
        return self._core.miss_cause(self._keys.adapt(key))

    def count(self, key: Any, cause: int = -1, group: str | None = None) -> None:
        """Count a miss of ``key``.

        Args:
            cause: the ``cause`` when the look-up began, if the key may have been set since.
            group: the name of its group of keys; None if the key decides.
        """
        self._core.count_miss(self._keys.adapt(key), cause, group=group)
        self._start_jobs()

    def note(self, key: Any) -> None:
        """Note that the running thread or task missed ``key``, and may set it soon."""
        self.noted.add(_noted_key(key), moment())

    def since(self, key: Any) -> int:
        """Return the moment at which the running thread or task missed ``key``; 0 if it did not, or long ago."""
        note = self._find(key, self.noted.get)
        return _recent(note) if note else 0

    def pop_miss(self, key: Any) -> int:
        """Remove the miss of ``key`` that a write answers. Return its moment; 0 if there is none, or long ago."""
        note = self._find(key, self.noted.pop)
        return _recent(note) if note else 0

    def count_computation(self, key: Any, together: int = 1) -> int:
        """Count the computation of ``key`` by the running thread or task, which ends with a write of a value. Return
        its moment; 0 if it is not known, or long ago.

        The miss is removed.

        Args:
            together: the number of values that were computed in the same time, which they share.
        """
        note = self._find(key, self.noted.pop)
        began = _recent(abs(note)) if note else 0
        if began:
            key = key if type(key) is str else self._keys.adapt(key)
            self.loads.count(key, (moment() - began) / 1e9 / together)
        return began if note > 0 else 0

    def outdate(self, key: Any) -> None:
        """Let the next write of ``key`` by the running thread or task, which deletes or changes an entry, not answer an
        earlier miss. It still ends the computation."""
        self._find(key, self.noted.outdate)

    def outdate_all(self) -> None:
        """Do the same for all keys, after the cache was cleared or a tag was dropped."""
        self.noted.outdate_all()

    def _find(self, key: Any, find: Callable[[Hashable], int]) -> int:
        """Return the result of ``find``, or 0 without a call if the running scope has not missed ``key``: most calls
        are for other keys than those that were missed."""
        scope = running_scope() if self.scopes else None
        if scope is None:
            return 0
        is_plain = type(key) is str and len(key) <= PLAIN_LENGTH
        if scope.parent is None:
            misses = scope.misses.get(self.noted)
            if not misses or (is_plain and key not in misses):
                return 0
        return find(key if is_plain else _noted_key(key))


def _recent(since: int) -> int:
    """Return the moment of a miss; 0 if it is long ago, or outdated."""
    return since if since > 0 and moment() - since <= LONGEST_COMPUTATION * 1e9 else 0


def canonical(key: Any) -> Any:
    """Return ``key`` in a form that has the same ``repr`` for equal keys, such as 1, 1.0 and True.

    Raises:
        TypeError: if ``key`` is not a string, number, bytes, None or a tuple of these.
    """
    kind = type(key)
    if kind is tuple:
        return tuple(map(canonical, key))
    if kind is bool or (kind is float and key.is_integer()):
        return int(key)
    if kind not in (str, int, float, bytes, type(None)):
        raise TypeError(key)
    return key


def _noted_key(key: Any) -> str | bytes | None:
    """Return ``key`` in a form of bounded size, which is the same for equal keys; None if it has no such form, as only
    objects of other types."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    try:
        text = repr(key if isinstance(key, str) else canonical(key))
    except TypeError:
        return None
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
