"""The contract of a core: a bounded map in order of use with a timing wheel under it. ``tests/core`` checks it.

**Steps.** Each call is one step: other threads see the core before it or after it. A step takes O(1) time or a budget
given by the caller, unless its docstring says otherwise. It calls no Python code but ``__del__`` and weak reference
callbacks: references that it gives up are dropped after its last change, so that this code finds a consistent core and
may call it. Objects tracked by the garbage collector are allocated before the first change or after the last one. An
asynchronous exception or a failed allocation leaves the core as before the step or as after it.

Only **the compiled core** keeps every step that short, and is that exact after an exception at any point. In the
reference core in Python, a scan copies the keys, a table that once held many more entries is rebuilt, and an
asynchronous exception may end a step in the middle. No lock is left held, and no entry is read after its expiry, but a
count may be off by one, and an entry may have lost its timer: it then leaves by LRU, unless it is set again before.

Only the compiled core has the policy "adaptive", the causes of misses of keys without an entry, and the groups of keys.
The reference core accepts the same calls and returns the same values, but its policy is always LRU, the cause of a miss
without an entry is UNKNOWN, and all keys are in the group without a name.

**Reads without a lock.** A ``find`` takes effect at one moment between its call and its return. Its count
and the move to the young end may follow the look-up, so a concurrent eviction may still remove the entry that was hit.

**Lock order.** A core is a leaf: it calls no other part and never waits for one. A caller that holds a lock of its own
uses only the members that are safe under a lock; every other call may drop the last reference to a value. A part that
finds a key missing watches it, claims it by a turn for a load or a lease, and looks again *after* the claim. A caller
that joins the turn of another shares its value only if the watch was neither broken (for a load) nor ended (for a
lease) when the caller joined; otherwise it looks again.

**Keys** are hashed and compared by C code alone, and equal keys have equal hashes whatever their types. Other keys are
replaced by proxies before they reach a core; the compiled core refuses them with a TypeError. Keys that are not strings
may share a hash by the choice of a visitor, as in a dict, and are then as slow as there. **Values** are kept by
reference and never compared, hashed or called.

**The order of eviction** is that of use, the least recently used first, with the policy "lru". With "adaptive", it is
that of ``regions.pxi``, and the entry that leaves is the first one or the oldest of the window. Where this contract
says the young end, that policy may choose another place. A key that was just stored survives until a fifth of
``max_entries`` further new keys were stored.

**Arguments** are checked before the first change. A weight out of range is an OverflowError, a TTL that is not a number
a ValueError, and the name of a tag is exactly a ``str``. Any other invalid argument is undefined behavior.

**Times** are floats, in seconds on the core's clock; ``inf`` means never. An entry is *fresh* before ``fresh_until``,
then *stale* until ``expires_at``. It is *current* while it is trusted, and none of its tags was dropped.

**Trust** is a word of 64 bits that the owner of a core may give it, for copies that another process may outdate. An
entry is trusted while the word is odd and the same as when it was stored. With a watch, this is the word when the watch
began. A core without such a word trusts all entries.

**Tags** are names under which entries are dropped together. An entry of a dropped tag is as good as deleted, but takes
memory, a place and its weight until it is removed. A *moment* is an int, in nanoseconds of a clock that all
processes of the machine share and no test freezes. A value that was computed since a moment is not stored if one of its
tags was dropped after that moment; the tags may be known only when it is stored. The moment of a drop is kept for a
name with entries exactly, for other names in a bounded table: two of them may share a place, and a value of one is then
refused for the drop of the other.

**Causes.** A removal counts once: as EXPIRED if ``fresh_until`` has passed, otherwise under the cause of the call. Only
``clear`` counts everything as CLEARED. ``removed`` is a list of the caller's that receives ``(key, value, cause)``
after the last change of the step; with None, nothing is built.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from enum import Enum
from sys import maxsize
from typing import Any, Final, NamedTuple, Protocol


class RemovalCause(Enum):
    """The reason for a removal. An expired entry counts as EXPIRED, whatever removed it."""

    EXPIRED = "expired"
    EVICTED = "evicted"
    REPLACED = "replaced"
    DELETED = "deleted"
    CLEARED = "cleared"


class MissCause(Enum):
    """The reason for a miss.

    The entry of the key shows it if it is still there: it has expired, one of its tags was dropped, or another process
    may have written the key. Otherwise the compiled core remembers why recent entries left, and why values were
    refused. For most misses of keys that left long ago, the reason is an estimate, from a sample of the keys. The
    reference core counts all misses without an entry as UNKNOWN.
    """

    EXPIRED = "expired"
    EVICTED = "evicted"
    NOT_STORED = "not stored"
    DELETED = "deleted"
    CLEARED = "cleared"
    TAG = "tag"
    OTHER_PROCESS = "another process"
    NEW = "new or long gone"
    UNKNOWN = "unknown"


SAMPLED_MISSES: Final = 16
"""The sampled misses after which an older one counts by a third in the estimate of causes. With 512 of them, the
estimate followed changes so late that the causes were up to 15 points off; with 16, they are 7 at most."""


class GroupRule(NamedTuple):
    """A rule by which keys are in groups.

    The keys with the ``prefix`` are in the group named ``name``, followed by the text of the key from there to
    ``stop``. A key without ``stop`` follows the next rule; with an empty ``stop``, only the name counts. If both are
    empty, the keys are pages, in the group named by ``VIEW``. All texts are ASCII.

    A preliminary key is looked up before another one, which is looked up only if the preliminary key is found. Then
    only the second look-up counts, as a hit or a miss, so that both together are one look-up in the figures. All rules
    of preliminary keys have the same ``name``, and their ``stop`` is empty.
    """

    prefix: str
    name: str
    stop: str
    is_preliminary: bool = False


VIEW: Final[ContextVar[str | None]] = ContextVar("wheelcache_view", default=None)
"""The name of the view whose pages the running code looks up and stores; None for NO_VIEW."""


class GroupCounts(NamedTuple):
    """The counts of one group of keys, since construction, or since the fork in a child.

    Attributes:
        name: empty for the keys of no group.
        hits, stale_hits: the look-ups that ended with a fresh value, and with a stale one.
        puts: the values that ``set`` stored.
        loads, load_failures: all computations, and those of them that failed.
        load_seconds: the time spent in ``loads``.
        misses: the misses by cause, in the order of ``MissCause``.
    """

    name: str
    hits: int
    stale_hits: int
    puts: int
    loads: int
    load_failures: int
    load_seconds: float
    misses: tuple[int, ...]


BATCH: Final = 1024
"""The usual budget of a step."""

SWEEP_INTERVAL: Final = 1.0
"""Seconds, at most, from the drop of a tag until its entries begin to leave memory."""

MAX_WEIGHT: Final = 2**62
"""The largest weight, and the largest ``max_weight``."""

MISSING: Final = object()
"""The result of a look-up that finds nothing."""

KEEP_TTL: Final = -1.0
"""As the ``ttl`` of ``replace``: keep the times that the entry has."""

STORED: Final = 1
"""An outcome is an int that combines this flag with the following ones. The usual outcome is exactly STORED."""
WAKE: Final = 2
"""``next_due`` became earlier, or the wheel is over two intervals late: the caller must see that the core advances."""
MORE: Final = 4
"""The weight is still above ``max_weight``: the caller calls ``evict`` until it returns False."""
COMPLETED: Final = 8
"""Watches were completed: the caller empties ``completed``."""
PRESENT, CHANGED, OUTDATED, TOO_HEAVY = 16, 32, 64, 128
"""The reasons for which a value was not stored."""


def is_adaptive_policy(policy: str, max_entries: int | None) -> bool:
    """Return whether a core has the policy "adaptive".

    Raises:
        ValueError: if there is no such policy, or if it needs ``max_entries``.
    """
    if policy not in ("lru", "adaptive"):
        raise ValueError(f"policy must be 'lru' or 'adaptive', not {policy!r}")
    if policy == "adaptive" and max_entries is None:
        raise ValueError("policy 'adaptive' needs max_entries")
    return policy == "adaptive"


Removals = list[tuple[Any, Any, RemovalCause]]
"""Removed entries, as ``(key, value, cause)``. The caller passes a list, to which the core appends."""

Labels = tuple[tuple[str, ...], int, str | None]
"""The rarely used arguments of a write: tags, since, group.

- tags: distinct tags, which replace those of the entry.
- since: the moment at which the computation of the value began; 0 if it does not matter. If a tag was dropped after
  that moment, the value is OUTDATED. In ``fill``, the begin of the watch is the moment, and the value is CHANGED.
- group: the name of the group of the entry: see ``Core.group_by``. If None, the key decides, or the existing entry
  keeps its group.

A plain tuple, since it is made per write.
"""


class Times(NamedTuple):
    """The times of an entry on the clock of its core, and whether none of its tags was dropped."""

    fresh_until: float
    expires_at: float
    is_current: bool


class Record(NamedTuple):
    """An entry, as calls return it that look at entries without a hit."""

    key: Any
    value: Any
    times: Times
    weight: int
    tags: tuple[str, ...] = ()
    standing: int = 0
    """The entry's region and uses with the policy "adaptive", as bits of the compiled core."""
    group: str = ""
    """The name of the entry's group; empty for the group without a name."""


class Counts(NamedTuple):
    """Counts since construction, or since the fork in a child. Exact when no call is in progress. None decreases, but
    ``hits`` by ``remove_value``.

    Attributes:
        puts: values that ``set`` stored.
        evicted_weight: the weights of the entries that left as EVICTED.
        causes: the misses by cause, in the order of ``MissCause``. Their sum is ``misses``.
    """

    hits: int
    misses: int
    removals: dict[RemovalCause, int]
    puts: int
    evicted_weight: int
    causes: tuple[int, ...]


class Watch(Protocol):
    """A watch on one key, until it is closed or dropped.

    Attributes:
        trust: the word of trust when the watch began; 0 without one.
        broken: the key was set, deleted or cleared while the watch was open, other than by a ``fill`` under this watch.
            Expiry, eviction, ``touch``, ``only_dead``, and values that were PRESENT, CHANGED or OUTDATED do not break a
            watch. A part may set it to True itself: a ``fill`` under the watch that begins later is then refused.
        since: the moment at which the watch began.
        value: with ``wants_value``, the first value that was set, also if TOO_HEAVY; MISSING until then. It completes
            the watch, which ends and is appended to ``completed``. A delete breaks a watch and does not complete it.
    """

    key: Any
    trust: int
    broken: bool
    since: int
    value: Any

    def close(self) -> None: ...


class Scan(Protocol):
    """A walk over the entries. It returns each entry that exists from start to end at least once, possibly twice.
    ``step`` returns at most ``count`` further entries, and none at the end."""

    def step(self, count: int) -> list[Record]: ...

    def keys(self, count: int) -> list[Any]:
        """Return the keys of a ``step``. Some of them may no longer have entries."""


class Core(Protocol):
    """A core. It lives as long as its cache, so callers may keep its bound methods.

    It is built with ``policy`` ("lru" or "adaptive"; the latter needs ``max_entries``), ``max_entries`` and
    ``max_weight`` (int >= 1 or None), ``jitter`` (0 <= jitter < 1), ``interval`` (seconds per tick), ``clock`` (see
    ``use_clock``) and ``trust`` (a buffer of one word, or None). The compiled core also has ``seed``, the secret of its
    samples, an int of 64 bits: with the same seed and calls, cores evict the same entries. By default, it is random.
    Ticks without timers cost nothing. Times up to ``interval * 2**52`` either way are distinguished; a clock beyond
    that raises a ValueError. A caller that holds a lock may use ``times``, ``watch``, ``counts``, ``groups``,
    ``count_hit``, ``now``, ``len`` and the attributes.

    Attributes:
        next_due: the time at which ``advance`` has work: ``-inf`` while detached entries or a sweep that has begun are
            left, ``inf`` if nothing is scheduled. From the first drop of a tag on, a sweep is due once per
            SWEEP_INTERVAL as long as there are entries with tags, so later drops wake no thread. It is never too late.
            After deletions it may be too early until the next ``advance``.
        completed: completed watches, each once. Any thread may remove them from the deque and handle them.
        entry_bytes: the size of an entry without tags, in addition to its key and value, for weighers.
        in_step: whether the calling thread is inside a step, in code run by the garbage collector, and must not wait.
            Always False in a core whose steps run no such code.
        trust: the present word of trust; 0 without one.
    """

    @property
    def weight(self) -> int: ...
    @property
    def next_due(self) -> float: ...
    @property
    def completed(self) -> deque[Any]: ...
    @property
    def entry_bytes(self) -> int: ...
    @property
    def in_step(self) -> bool: ...
    @property
    def trust(self) -> int: ...

    def __len__(self) -> int: ...

    def find(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a fresh and current entry, count a hit, and move the entry to the young end. Otherwise
        return ``default``. No read removes an entry. The caller calls ``count_miss``, once it knows how the look-up
        ended."""

    def times(self, key: Hashable) -> Times | None:
        """Return the times of an entry in any state; None if there is no entry or one of its tags was dropped. Nothing
        is counted or moved."""

    def peek(self, key: Hashable, *, use: bool = False) -> Record | None:
        """Return an entry in any state; None if there is no entry or one of its tags was dropped. Nothing is counted;
        ``use`` moves the entry to the young end."""

    def set(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        """Store ``value`` at the young end, and return the outcome.

        An entry that exists is updated in place: a reader without a lock never finds the key missing. To make room,
        the least recently used entries leave: one for ``max_entries``, at most BATCH for ``max_weight``. A value
        heavier than ``max_weight`` is TOO_HEAVY, and the entry of its key leaves as REPLACED.

        Args:
            ttl: seconds > 0 until the entry is stale, or None for never. Unless ``exact``, jitter shortens it, by a
                factor drawn evenly from [1 - jitter, 1] and by ``options.MAX_JITTER`` at most.
            grace: seconds >= 0 from stale to expired.
            weight: 0 to MAX_WEIGHT; otherwise OverflowError.
        """

    def add(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        """Do a ``set``, without jitter, unless a fresh and current entry exists. Then the outcome is PRESENT."""

    def replace(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        expected: Any,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        removed: Removals | None = None,
    ) -> int:
        """Do a ``set`` if the fresh and current value is ``expected``, by identity; otherwise, the outcome is CHANGED.
        The entry keeps its tags and its group, and with KEEP_TTL its times."""

    def fill(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        watch: Any,
        grace: float = 0.0,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        """Do a ``set`` of a value whose computation began with ``watch``, if the watch is unbroken; otherwise, the
        outcome is CHANGED.

        The caller closes the watch once no other caller can join the claim. A value that is not trusted any more breaks
        the other watches on the key, and completes none.
        """

    def touch(self, key: Hashable, ttl: float | None) -> int:
        """Give a fresh and current entry a new TTL, without jitter, and keep its grace, unless it never expires.

        Return STORED, perhaps with WAKE; 0 if there is no such entry.
        """

    def delete(
        self,
        key: Hashable,
        default: Any = None,
        only_dead: bool = False,
        removed: Removals | None = None,
    ) -> Any:
        """Remove an entry. Return its value if it was fresh and current, otherwise ``default``.

        Args:
            only_dead: whether to remove only an entry that is stale or not current. This breaks no watch.
        """

    def remove_value(
        self, key: Hashable, value: Any, removed: Removals | None = None, *, was_hit: bool = False
    ) -> None:
        """Remove the entry of ``key``, as DELETED, if it has this very ``value``, which a look-up has found and cannot
        use. This breaks no watch: the computation of a new value may have begun.

        Args:
            was_hit: whether the look-up was counted as a hit, which is taken back. The caller counts it as a miss.
        """

    def drop_tag(self, name: str) -> int:
        """Drop a tag in O(1): none of its entries is current any longer. Return the number of its entries that ``len``
        counts. ``advance`` and ``drain`` remove them, as DELETED."""

    def dropped_since(self, tags: tuple[str, ...], since: int) -> bool:
        """Return whether ``set`` would refuse a value with these tags that was computed since the moment ``since``."""

    def evict(self, budget: int = BATCH, removed: Removals | None = None, *, size: int | None = None) -> bool:
        """Evict at most ``budget`` entries, until the bounds hold, or until ``size`` are left. Return whether more must
        be evicted."""

    def advance(self, budget: int = BATCH, removed: Removals | None = None) -> int:
        """Call ``drain``, then remove expired entries in the order of their ticks. Return the number of entries looked
        at, which ``budget`` bounds. Work is left while ``next_due <= now()``."""

    def clear(self, *, invalidate: bool = True) -> int:
        """Detach all entries and break all watches, in O(watches). Return the number of detached entries, which count
        immediately. A core that closes passes False as ``invalidate``: entries that processes share stay. ``drain``,
        ``advance`` and, a few each, ``set`` drop detached entries, and report them in ``removed``."""

    def drain(self, budget: int = BATCH, removed: Removals | None = None) -> bool:
        """Drop detached entries, then remove entries of dropped tags, and report each once. ``budget`` bounds the
        number of entries looked at. Return whether work is left."""

    def scan(self, *, start: float = 0.0) -> Scan:
        """Walk over the entries, in no order.

        Args:
            start: the share of the entries, from 0.0 to 1.0, that the scan leaves out, for samples.
        """

    def keys(self, limit: int = maxsize) -> list[Any]:
        """Return the keys of fresh and current entries, least recently used first, in one step. Only the ``limit``
        entries that were used last are looked at: without a limit, this is O(n) and not for servers."""

    def counts(self) -> Counts: ...

    def count_hit(self, key: Hashable) -> None:
        """Count a look-up that ended with a value for which the caller waited."""

    def count_stale_hit(self, key: Hashable) -> None:
        """Count a look-up that ended with a stale value for the group of its entry, and not in ``counts``."""

    def miss_cause(self, key: Hashable) -> int:
        """Return why there is no fresh and current entry of ``key``, as the place of a ``MissCause``. NEW stands for
        all misses for which ``count_miss`` of the compiled core estimates the cause."""

    def count_miss(self, key: Hashable, cause: int = -1, *, group: str | None = None) -> None:
        """Count a miss, under its cause and for the group of ``key``.

        Args:
            cause: the ``miss_cause`` when the look-up began. If it is not given, the key must not have been set since.
                The compiled core counts UNKNOWN as NEW, without an estimate.
            group: as in ``Labels``.
        """

    def count_load(self, key: Hashable, seconds: float, *, group: str | None = None, has_failed: bool = False) -> str:
        """Count a computation of the value of ``key``, which may have failed, for its group. Return the name of the
        group. ``group`` is as in ``Labels``."""

    def group_by(self, rules: Iterable[GroupRule]) -> None:
        """Distinguish groups of keys by the first rule that fits. The reference core has one group.

        A tuple follows the rules for its first item, if that is a string; if the tuple has more items, the end of that
        string is a stop, too. Each hit, stale hit, put, miss and load belongs to one group: those of an entry to the
        group in which it was stored, others to that of the key.

        A name that the caller gives is cut off after 96 bytes of UTF-8; a rule that would make a longer one makes no
        group. At most 64 names are distinguished at a time; all other keys are in the group without a name. A name has
        a rank: 2 if the code of the site has chosen it, as a name that the caller gives, that of a rule, or that of a
        function whose calls are keys; otherwise 1 if computed values were counted for it, and 0 if not. A new name
        takes the place of the name with the lowest rank below its own, and of several, with the least computing time.
        Its counts then belong to the group without a name, as do those of its entries.
        """

    def is_preliminary(self, key: Hashable) -> bool:
        """Return whether look-ups that find ``key`` do not count: see ``GroupRule``."""

    def groups(self) -> list[GroupCounts]:
        """Return the counts of the group without a name, and of the groups with any counts. The sums over the groups
        are those of ``counts``. Empty before a key is counted."""

    def watch(self, key: Hashable, *, wants_value: bool = False) -> Watch:
        """Watch a key, whether or not there is an entry. A key may have any number of watches."""

    def now(self) -> float: ...

    def use_clock(self, clock: Callable[[], float] | None) -> None:
        """Read ``clock()`` from now on, before each step begins; None for the clock of the machine. The times of
        entries stay as they are, so the new clock continues the scale of the old one. If the clock is behind the last
        ``advance``, all timers are filed again, in O(n): this happens only with frozen time in tests."""

    def gate(self, error: Callable[[], Exception] | None) -> None:
        """Shut the gate, or open it with None. While it is shut, a call that would read or write an entry raises
        ``error()``, and changes and counts nothing. Exceptions are a hit of ``find``, ``clear``, ``drain``,
        ``advance``, ``len`` and the calls whose names begin with ``count``. To close a core permanently, shut the gate
        first and then clear."""

    def before_fork(self) -> None:
        """Return when no step is in progress. At the moment of the fork, no thread is in one. One thread at a time
        forks. Both methods may be called again after an asynchronous exception interrupted them."""

    def after_fork(self, *, in_child: bool) -> None:
        """Resume after the fork. In the child, locks are fresh, counts start from zero, watches are closed and broken,
        and the jitter's generator has a new seed, since forked workers would otherwise draw the same jitter. Entries
        stay, and scans go on."""
