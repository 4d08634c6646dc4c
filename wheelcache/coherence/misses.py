"""The notes of the misses of one cache: one per missed key of a thread, task or request, until a write answers it.

A caller that misses a key computes its value and sets it. Most sites load values that way: with ``cache_page``, with
template fragments, with ``@cached`` and ``@memoize`` of Flask-Caching, and in their own code. The note of the miss
answers three questions about such a ``set``:

- How long did the computation take? A backend counts it as a load, once: the first write of the key ends the
  computation. The loads of a loader that is passed to the cache are counted and timed by ``loading.results``.
- Was a tag of the value dropped since the miss? If so, the value is not stored.
- In a coherent cache: is this a fill? The source of the value did not change, so a fill does not notify the other
  processes, and it is dropped if another process wrote the key since the miss. Any other write invalidates their
  entries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from typing import Any, Final, Protocol

from wheelcache.coherence.key_stamps import NEVER_CURRENT, KeyStamps
from wheelcache.coherence.shared_stamps import canonical
from wheelcache.core.contract import Core, Seen
from wheelcache.keys import CALLERS, KeyProxies
from wheelcache.machine_clock import moment
from wheelcache.runtime.request_scope import NotedMisses, running_scope

FILL_WINDOW: Final = 10.0
"""Seconds. A ``set`` or ``add`` this soon after the same thread or task missed the key counts as a fill: it does not
invalidate the entries of other processes, and it is dropped if one of them wrote the key in the meantime. A later one
invalidates."""

LONGEST_COMPUTATION: Final = 60.0
"""Seconds. A ``set`` that comes later after a miss is not attributed to it."""

PLAIN_LENGTH: Final = 250
"""Characters. A longer key, or a key that is not a string, is noted by its 16-byte digest: such keys are rare, and
could occupy any number of bytes."""

MissSeen = tuple[Seen | None, int]
"""The miss that a write answers: the words that its slot of the stamps showed, None if the write is no fill, and its
moment, 0 if it is not known or long ago."""

INVALIDATES: Final[MissSeen] = (None, 0)
"""The value of a write that answers no miss."""


class Miss:
    """The note of one miss.

    Args:
        seen: the words in the slot of the key; None if the write that answers the miss is no fill.
        missed_at: the time of the miss on the clock of the core.
        began: the moment of the miss.

    Attributes:
        source: see ``Note``.
        began: 0 after the computation was counted.
        since: the moment of the miss; 0 after it was outdated.
    """

    __slots__ = ("began", "missed_at", "seen", "since", "source")

    def __init__(self, source: Hashable, seen: Seen | None, missed_at: float, began: int) -> None:
        self.source = source
        self.seen = seen
        self.missed_at = missed_at
        self.began = self.since = began

    def outdate(self) -> None:
        self.seen, self.since = None, 0


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
        scopes: while it is empty, no caller has missed a key, so ``count_computation`` need not be called.
    """

    __slots__ = ("_core", "_keys", "_noted", "_stamps", "_start_jobs", "loads", "scopes")

    loads: LoadCounts

    def __init__(
        self,
        core: Core,
        stamps: KeyStamps,
        keys: KeyProxies,
        start_jobs: Callable[[], object],
    ) -> None:
        self._core = core
        self._stamps = stamps
        self._keys = keys
        self._start_jobs = start_jobs
        self._noted = NotedMisses()
        self.scopes = self._noted.scopes

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
        stamps = self._stamps
        if stamps.reports_writes:
            miss = Miss(stamps.source, stamps.seen(key), self._core.now(), moment())
        else:
            miss = Miss(None, None, 0.0, moment())
        self._noted.add(key if type(key) is str and len(key) <= PLAIN_LENGTH else _noted_key(key), miss)

    def begin(self, key: Any) -> None:
        """Note that the running thread or task will compute the value of ``key``. A later write of it is no fill."""
        self._noted.add(_noted_key(key), Miss(None, None, 0.0, moment()))

    def fill(self, key: Any, leader: Any = None) -> None:
        """Let the next write of ``key`` by the running thread or task be a fill, also if it comes late after the miss,
        or if the caller had no reason to look the key up: every writer of this key computes it after a miss.

        Args:
            leader: the key that the caller missed instead, which was passed to ``lead``. If another process has written
                it since, the write of ``key`` stores nothing.
        """
        miss, now = self._find(key, self._noted.get), self._core.now()
        if miss is None:
            miss = Miss(self._stamps.source, self._stamps.seen(key), now, 0)
            led_by = None if leader is None else self._noted.get((_noted_key(leader),))
            if led_by is not None and led_by.seen not in (None, self._stamps.seen(leader)):
                miss.seen = NEVER_CURRENT
            self._noted.add(_noted_key(key), miss)
        miss.missed_at = now

    def lead(self, key: Any) -> None:
        """Remember the miss of ``key`` for the keys that are filled after it, also when a write has answered it."""
        miss = self._find(key, self._noted.get)
        if miss is not None:
            self._noted.add((_noted_key(key),), miss)

    def since(self, key: Any) -> int:
        """Return the moment at which the running thread or task missed ``key``; 0 if it did not, or long ago."""
        miss = self._find(key, self._noted.get)
        return 0 if miss is None else _recent(miss.since)

    def pop_miss(self, key: Any) -> MissSeen:
        """Remove and return the miss of ``key`` that a write answers; INVALIDATES if there is none."""
        miss = self._find(key, self._noted.pop)
        if miss is None:
            return INVALIDATES
        seen = miss.seen
        if seen is not None and (miss.source != self._stamps.source or self._core.now() - miss.missed_at > FILL_WINDOW):
            # The words in the slots of other stamps say nothing about those of the present ones.
            seen = None
        return seen, _recent(miss.since)

    def count_computation(self, key: Any, together: int = 1) -> int:
        """Count the computation of ``key`` by the running thread or task, which ends with a write of a value. Return
        its moment; 0 if it is not known, or long ago.

        The miss is removed, in a coherent cache by the ``pop_miss`` of the write. Until then, further calls count
        nothing.

        Args:
            together: the number of values that were computed in the same time, which they share.
        """
        miss = self._find(key, self._noted.get if self._stamps.reports_writes else self._noted.pop)
        if miss is None:
            return 0
        began, miss.began = miss.began, 0
        if _recent(began):
            self.loads.count(self._keys.adapt(key), (moment() - began) / 1e9 / together)
        return _recent(miss.since)

    def are_committing(self, tags: Iterable[str]) -> bool:
        """Return whether a commit that has dropped one of the tags is in progress: see ``KeyStamps.is_committing``."""
        return self._stamps.is_committing([self._stamps.slot(CALLERS + tag) for tag in tags])

    def outdate(self, key: Any) -> None:
        """Let the next write of ``key`` by the running thread or task, which deletes or changes an entry, be no fill of
        an earlier miss. It still ends the computation."""
        miss = self._find(key, self._noted.get)
        if miss is not None:
            miss.outdate()

    def outdate_all(self) -> None:
        """Do the same for all keys, after the cache was cleared or a tag was dropped.

        This includes the notes of other caches with the same stamps: all computations are outdated.
        """
        self._noted.outdate(self._stamps.source)

    def _find(self, key: Any, find: Callable[[Hashable], Any]) -> Miss | None:
        """Return the result of ``find``, or None without a call if the running scope has not missed ``key``: most calls
        are for other keys than those that were missed."""
        scope = running_scope() if self.scopes else None
        if scope is None:
            return None
        is_plain = type(key) is str and len(key) <= PLAIN_LENGTH
        if scope.parent is None:
            misses = scope.misses.get(self._noted)
            if not misses or (is_plain and key not in misses):
                return None
        return find(key if is_plain else _noted_key(key))  # type: ignore[no-any-return]


def _recent(since: int) -> int:
    """Return a moment; 0 if it is long ago."""
    return since if moment() - since <= LONGEST_COMPUTATION * 1e9 else 0


def _noted_key(key: Any) -> str | bytes | None:
    """Return ``key`` in a form of bounded size, which is the same for equal keys; None if it has no such form, as only
    keys that are not coherent."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    try:
        text = repr(key if isinstance(key, str) else canonical(key))
    except TypeError:
        return None
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
