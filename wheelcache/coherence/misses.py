"""The notes of the misses of one cache: one per missed key of a thread, task or request, until a write answers it.

A caller that misses a key computes its value and sets it. Most sites load values that way: with ``cache_page``, with
template fragments, with ``@cached`` and ``@memoize`` of Flask-Caching, and in their own code. The note of the miss
answers three questions about such a ``set``:

- How long did the computation take? A backend counts it as a load. The loads of a loader that is passed to the cache
  are timed separately.
- Was a tag of the value dropped since the miss? If so, the value is not stored.
- In a coherent cache: is this a fill? The source of the value did not change, so a fill does not notify the other
  processes, and it is dropped if another process wrote the key since the miss. Any other write invalidates their
  entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.coherence.shared_stamps import canonical
from wheelcache.core.contract import Core, Seen
from wheelcache.core.tags import moment
from wheelcache.keys import CALLERS, KeyProxies
from wheelcache.runtime.request_scope import NO_MISSES, NotedMisses, running_scope

FILL_WINDOW: Final = 10.0
"""Seconds. A ``set`` or ``add`` this soon after the same thread or task missed the key counts as a fill: it does not
invalidate the entries of other processes, and it is dropped if one of them wrote the key in the meantime. A later one
invalidates."""

LONGEST: Final = 60.0
"""Seconds. A ``set`` that comes later after a miss is not attributed to it."""

PLAIN_LENGTH: Final = 250
"""Characters. The note of a longer key, or of a key that is not a string, contains its 16-byte digest instead, if other
processes write the key, and is omitted otherwise: such keys are rare, and could occupy any number of bytes."""

Answered = tuple[Seen | None, int]
"""The miss that a write answers: the words that its slot of the stamps showed, None if the write is no fill, and its
moment, 0 if it is not known or long ago."""

INVALIDATES: Final[Answered] = (None, 0)
"""The value of a write that answers no miss."""


class Misses:
    """The misses of one cache that a write may answer. Keys are those of the callers.

    Args:
        keys: adapts the callers' keys to the core.
        cache_is_used: called for each counted miss.
        count_load: counts the computation of the value of a key, which took a number of seconds.

    Attributes:
        scopes: while it is empty, no caller has missed a key, so ``filled`` need not be called.
    """

    __slots__ = ("_cache_is_used", "_core", "_count_load", "_keys", "_noted", "_stamps", "scopes")

    def __init__(
        self,
        core: Core,
        stamps: KeyStamps,
        keys: KeyProxies,
        cache_is_used: Callable[[], object],
        count_load: Callable[[Any, float], object],
    ) -> None:
        self._core = core
        self._stamps = stamps
        self._keys = keys
        self._cache_is_used = cache_is_used
        self._count_load = count_load
        self._noted = NotedMisses()
        self.scopes = self._noted.scopes

    def cause(self, key: Any) -> int:
        """Return why there is no fresh entry of ``key``, for a later ``count``."""
        return self._core.miss_cause(self._keys.adapt(key))

    def count(self, key: Any, cause: int = -1) -> None:
        """Count a miss of ``key``.

        Args:
            cause: the ``cause`` when the look-up began, if the key may have been set since.
        """
        self._core.count_miss(self._keys.adapt(key), cause)
        self._cache_is_used()

    def note(self, key: Any) -> None:
        """Note that the running thread or task missed ``key``, and may set it soon."""
        stamps = self._stamps
        if stamps.reports_writes:
            self._noted.add(_noted_key(key), (stamps.source, stamps.seen(key), moment(), self._core.now()))
        elif type(key) is str and len(key) <= PLAIN_LENGTH:
            self._noted.add(key, (None, None, moment(), 0.0))

    def since(self, key: Any) -> int:
        """Return the moment at which the running thread or task missed ``key``; 0 if it did not, or long ago."""
        if not self.scopes:
            return 0
        note = self._noted.get(_noted_key(key))
        return 0 if note is None else self._answered(note)[1]

    def take(self, key: Any) -> Answered:
        """Remove and return the miss of ``key`` that a write answers; INVALIDATES if there is none."""
        if not self.scopes:
            return INVALIDATES
        note = self._noted.take(_noted_key(key))
        return INVALIDATES if note is None else self._answered(note)

    def take_fill(self, key: Any) -> Answered:
        """Do the same in a coherent cache. In others, no write is a fill: ``filled`` removes the miss."""
        return self.take(key) if self._stamps.reports_writes else INVALIDATES

    def filled(self, key: Any) -> int:
        """Count the computation that ends with a ``set`` of ``key`` by the running thread or task. Return its moment.

        The miss is removed, in a coherent cache by the ``take_fill`` of the ``set``.
        """
        scope = running_scope()
        if scope is None or (scope.parent is None and key not in scope.misses.get(self._noted, NO_MISSES)):
            # Most sets are of other keys than those that were missed, and this saves them 0.1 us.
            return 0
        note = (self._noted.get if self._stamps.reports_writes else self._noted.take)(key)
        if note is None:
            return 0
        since: int = note[2]
        seconds = (moment() - since) / 1e9
        if seconds > LONGEST:
            return 0
        self._count_load(self._keys.adapt(key), seconds)
        return since

    def are_committing(self, tags: Iterable[str]) -> bool:
        """Return whether a commit that has dropped one of the tags is in progress: see ``KeyStamps.is_committing``."""
        return self._stamps.is_committing([self._stamps.slot(CALLERS + tag) for tag in tags])

    def forget(self) -> None:
        """Remove the notes of the running thread or task, after the cache was cleared or a tag was dropped: a later
        ``set`` answers none of them.

        The notes of other caches with the same stamps are removed, too: this has outdated all computations.
        """
        self._noted.forget(self._stamps.source)

    def _answered(self, note: Any) -> Answered:
        source, seen, since, missed_at = note
        if seen is not None and (source != self._stamps.source or self._core.now() - missed_at > FILL_WINDOW):
            # The words in the slots of other stamps say nothing about those of the present ones.
            seen = None
        return seen, since if moment() - since <= LONGEST * 1e9 else 0


def _noted_key(key: Any) -> str | bytes:
    """Return ``key`` in a form of bounded size, which is the same for equal keys."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    text = repr(key if isinstance(key, str) else canonical(key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
