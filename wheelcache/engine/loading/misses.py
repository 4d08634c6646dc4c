"""The misses of one cache, and the computations that answer them: the counts of both, and a note of each missed key.

A caller that misses a key computes its value and sets it. Most sites load values that way: with ``cache_page``, with
template fragments, with ``@cached`` and ``@memoize`` of Flask-Caching, and in their own code. The note of the miss, one
per key of a thread, task or request, answers two questions about such a ``set``:

- How long did the computation take? A backend counts it as a load, once: the first write of the key ends the
  computation. ``Loads`` times the loaders that are passed to the cache.
- Was a tag of the value dropped since the miss? If so, the value is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from wheelcache.core.contract import Core
from wheelcache.engine.keys import KeyProxies
from wheelcache.engine.observer import Observer
from wheelcache.engine.stats import LOAD_COUNTS, Meter
from wheelcache.runtime.clock import moment
from wheelcache.runtime.request_scope import NotedMisses, running_scope

LONGEST_COMPUTATION: Final = 60.0
"""Seconds. A ``set`` that comes later after a miss is not attributed to it."""


PLAIN_LENGTH: Final = 250
"""Characters. A longer key, or a key that is not a string, is noted by its 16-byte digest: such keys are rare, and
could occupy any number of bytes."""


class Misses:
    """The misses and the loads of one cache. Keys are those of the callers, or of the core.

    Args:
        keys: adapts the callers' keys to the core.
        start_jobs: called for each counted miss, and for each failed load: a cache whose loads all fail has no writes.

    Attributes:
        counts: the counts of the loads.
        noted: the notes.
        scopes: while it is empty, no caller has missed a key, so ``count_computation`` need not be called.
    """

    __slots__ = ("_core", "_is_left_out", "_keys", "_observer", "_start_jobs", "counts", "noted", "scopes")

    def __init__(
        self,
        core: Core,
        keys: KeyProxies,
        start_jobs: Callable[[], object],
    ) -> None:
        self._core = core
        self._keys = keys
        self._start_jobs = start_jobs
        self._observer: Observer | None = None
        self._is_left_out: Callable[[Any], bool] | None = None
        self.counts = Meter(*LOAD_COUNTS)
        self.noted = NotedMisses()
        self.scopes = self.noted.scopes

    def observe(self, observer: Observer) -> None:
        """Report the loads that fail from now on to ``observer``."""
        self._observer = observer

    def leave_out(self, is_left_out: Callable[[Any], bool]) -> None:
        """Do not count the loads of the core's keys for which ``is_left_out`` is true: a layer makes their values."""
        self._is_left_out = is_left_out

    # Counts.

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

    def count_load(self, key: Any, seconds: float, group: str | None = None, *, has_failed: bool = False) -> str:
        """Count a load of ``key``, a key of the core, that took ``seconds``. Every load is counted here, also the
        computation by a caller after a miss. Return the name of its group; empty without one.

        Args:
            group: the name of its group of keys; None if the key decides.
            has_failed: whether the computation raised an exception.
        """
        if self._is_left_out is not None and self._is_left_out(key):
            return ""
        # The time is negative if a test has moved the clock back.
        seconds = max(0.0, seconds)
        self.counts.ended(seconds, "load_failures" if has_failed else "loads")
        if self.noted.missed_keys is not None:
            self.noted.missed_keys.append(key)
        return self._core.count_load(key, seconds, group=group, has_failed=has_failed)

    def count_failure(self, error: BaseException, group: str) -> None:
        """Record ``error``, unless it concerns only the caller of the loader, such as a cancellation or an exit.

        Args:
            group: the result of ``count_load``.
        """
        if isinstance(error, Exception):
            if self._observer is not None:
                self._observer.failed(error, group)
            self._start_jobs()

    # Notes.

    def note(self, key: Any) -> None:
        """Note that the running thread or task missed ``key``, and may set it soon."""
        self.noted.add(_noted_key(key), moment())

    def since(self, key: Any) -> int:
        """Return the moment at which the running thread or task missed ``key``; 0 if it did not, or long ago."""
        since = self.noted.get(_noted_key(key)) if self.scopes else 0
        return since if since > 0 and moment() - since <= LONGEST_COMPUTATION * 1e9 else 0

    def pop_miss(self, key: Any) -> int:
        """Remove the note of the miss of ``key`` that a write or a load answers. Return its moment, below zero if it
        was outdated; 0 if there is none, or long ago."""
        scope = running_scope()
        misses = None if scope is None else scope.misses.get(self.noted)
        # Most calls are for other keys than those that were missed.
        if scope is None or (scope.parent is None and not misses):
            return 0
        if type(key) is not str or len(key) > PLAIN_LENGTH:
            key = _noted_key(key)
        if scope.parent is None and misses and key not in misses:
            return 0
        note = self.noted.pop(key)
        return note if note and moment() - abs(note) <= LONGEST_COMPUTATION * 1e9 else 0

    def count_computation(self, key: Any, together: int = 1) -> int:
        """Count the computation of ``key`` by the running thread or task, which ends with a write of a value. Return
        its moment; 0 if it is not known, or long ago.

        The miss is removed.

        Args:
            together: the number of values that were computed in the same time, which they share.
        """
        note = self.pop_miss(key)
        if note:
            key = key if type(key) is str else self._keys.adapt(key)
            self.count_load(key, (moment() - abs(note)) / 1e9 / together)
        return max(0, note)

    def outdate_all(self) -> None:
        """Let no later write by the running thread or task answer an earlier miss, after the cache was cleared or a tag
        was dropped. It still ends the computation."""
        self.noted.outdate_all()


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
