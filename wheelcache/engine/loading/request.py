"""The two ends of a load: the caller's request, and the part of the cache that stores the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

from wheelcache.core.access import TTL
from wheelcache.core.contract import MISSING, Removals, Watch
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.engine.loading.adaptive import KEEP, WithPrevious, no_previous, seconds_for
from wheelcache.engine.loading.policy import PLAIN, LoadPolicy
from wheelcache.errors import note_key
from wheelcache.runtime.reusable import USUAL, check_reusable
from wheelcache.runtime.steps import InSteps, Loader, Steps, call

Stored = tuple[int, Removals | None]
"""The outcome of ``core.fill``, and the entries that it removed."""


class LoadRequest:
    """One look-up that missed, or one refresh.

    Args:
        key: the key in the core.
        caller_key: the key as the caller wrote it.
        loader: called without arguments. In a coroutine, an awaitable result is awaited.
        ttl: the seconds for which the value is fresh, None for no expiry, or a function of the value.
        names: the tags of the entry, by their names in the core.
        codec: converts values to their stored form and back; None if they are stored as they are.

    Attributes:
        computed: the value whose stored form ``complete`` has returned, if that is another object; otherwise MISSING.
        watched: the key in the core whose writes outdate the value; usually ``key``.
        ttl, grace: the seconds for which the value is fresh, None for no expiry, and those for which it is kept after
            that. ``complete`` finds those that depend on the value.
        fresh_until: the end of the freshness of the entry that is refreshed.
        is_counted: whether the look-up has ended, as a hit or a miss.
        group: the name of the group of keys for which it is counted; None if the key decides.
        cause: why the look-up missed: see ``Core.miss_cause``. -1 before that was asked.
        is_hit: whether the look-up was a hit: the value was found after its key was claimed, or a stale value was
            served.
        leaves_miss: whether the caller counts the miss if the load returns MISSING.
        is_alone: whether the caller computes the value for itself, and no value is stored or shared.
        is_at_once: whether the load takes place in its caller, unless another caller has begun one.
        is_computed: whether the value is computed, which counts as a load, and not found, or given by the caller.
        given_up: whether the caller's timeout has passed.
        may_wait: whether the caller may wait for other loads of the key.
        started: the time on the cache's clock at which its own load began.
        contexts: entered around the load if it runs in the background: see ``background.made_for_load``.
        is_repeated: whether a result of the same request was not decoded.
    """

    # The values of the class: most requests change few of them.
    ttl: float | None = None
    fresh_until = inf
    is_counted = False
    group: str | None = None
    cause = -1
    is_hit = False
    leaves_miss = False
    is_alone = False
    is_computed = True
    given_up = False
    may_wait = True
    started = 0.0
    computed: Any = MISSING
    is_repeated = False
    contexts: Sequence[AbstractContextManager[Any]] = ()
    _ttl_of: Callable[[Any], Any] | None = None

    def __init__(
        self,
        key: Any,
        caller_key: Hashable,
        loader: Loader,
        ttl: float | Callable[[Any], Any] | None,
        policy: LoadPolicy = PLAIN,
        names: tuple[str, ...] = (),
        codec: Codec | None = None,
    ) -> None:
        self.key = self.watched = key
        self.caller_key = caller_key
        self.loader: Any = loader
        self.policy = policy
        self.grace = policy.stale.seconds
        self.is_at_once = policy.is_at_once and type(loader) is not InSteps
        self.names = names
        self.codec = codec
        if callable(ttl):
            self._ttl_of = ttl
        else:
            self.ttl = ttl

    def stay_alone(self) -> None:
        """Let the caller compute the value for itself."""
        self.is_alone, self.is_at_once = True, False
        if isinstance(self.loader, WithPrevious):
            self.loader.pass_nothing()

    def complete(self, value: Any) -> Any:
        """Return the stored form of the result of ``loader()``, and find its lifetime.

        Raises:
            TypeError: if the result can be read only once. Errors of the serializer and of the TTL pass through.
        """
        if type(value) is Kept:
            self.ttl = value.ttl
            return value.stored
        if type(value) is Unstored:
            return value
        if value is KEEP:
            if not isinstance(self.loader, WithPrevious):
                raise no_previous(self.caller_key)
            value = self.loader.renewed()
        if type(value) not in USUAL:
            check_reusable(value)
        try:
            stored = value if self.codec is None else self.codec.encode(value)
        except Exception as error:
            note_key(error, self.caller_key)
            raise
        if stored is not value:
            self.computed = value
        if value is None and self.policy.negative_ttl is not None:
            self.ttl, self.grace = self.policy.negative_ttl, 0.0
        elif self._ttl_of is not None:
            self.ttl = seconds_for(self._ttl_of, value)
        return stored

    def decoded(self, stored: Any) -> Any:
        """Return the value of the stored form that ``complete`` has returned. If it cannot be decoded, this is the
        computed object itself, which no other caller then has."""
        try:
            return stored if self.codec is None else self.codec.decode(stored)
        except NOT_DECODED:
            if self.computed is MISSING:
                raise
            return self.computed

    def again(self) -> LoadRequest:
        """Return a request of the same value, after that of another caller was not decoded. If it was found, it is
        loaded again, once. If it was just computed, the next one may be like it, so this caller computes its own."""
        again = copy(self)
        again.is_repeated = True
        if self.is_repeated or not self.is_hit:
            again.is_alone, again.is_at_once, again.codec = True, False, None
        self.is_hit = again.is_hit = again.given_up = False
        return again


def computed(request: LoadRequest) -> Steps:
    """Run the loader of a request. Return the outcome with the stored form of the value."""
    value, error = yield from call(request.loader)
    if error is None and type(request.loader) is not InSteps:
        try:
            value = request.complete(value)
        except BaseException as raised:
            return None, raised
    return value, error


class Kept(NamedTuple):
    """The result of a loader that chooses the lifetime: ``stored``, the stored form of its value, is kept for ``ttl``
    seconds, None for forever. With 0 or less, only the callers that wait for it receive it."""

    stored: Any
    ttl: float | None


@dataclass(frozen=True, slots=True)
class Unstored:
    """The result of a loader that only passes a value on: the leader and every waiter receive ``value``, and nothing is
    stored.

    Attributes:
        is_computed: False if the loader has found the value instead of computing it, so that it counts as no load.
    """

    value: Any
    is_computed: bool = True


@dataclass(frozen=True, slots=True)
class Tagged:
    """The result of a loader that learned the tags of its value: ``value`` is stored with these tags of the caller."""

    value: Any
    tags: tuple[str, ...]


def untagged(value: Any) -> Any:
    """Return ``value``, or its value if it is Tagged."""
    return value.value if type(value) is Tagged else value


class Target(Protocol):
    """The services that loading needs from its cache, in addition to the core."""

    @property
    def name(self) -> str:
        """The name of the cache, for logs."""

    @property
    def is_plain(self) -> bool:
        """See ``WriteState``."""

    @property
    def usual_outcome(self) -> int:
        """See ``WriteState``."""

    def adapted(self, key: Any) -> Any:
        """Open the gate, and return the core's key for a caller's key."""

    def seconds(self, ttl: TTL) -> float | None:
        """Return a caller's TTL in seconds; None for no expiry. Raise TypeError or ValueError if it is invalid."""

    def tag_names(self, key: Any, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Return the core's names for the tags of an entry: for the caller's tags, and for the group of ``key``."""

    def store(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float,
        watch: Watch,
        names: tuple[str, ...],
        group: str | None = None,
    ) -> Stored:
        """Weigh the value and call ``core.fill``. Raise the weigher's error. With a TTL of 0 or less, only remove
        an older value that is kept past its time."""

    def announce(self, outcome: int, removed: Removals | None) -> None:
        """Notify the listener and the leases, wake the wheel, evict more. Called when no caller waits, since a
        listener may look up the key that was loaded."""

    def remove_undecoded(self, key: Any, value: Any, error: Exception) -> None:
        """Remove the entry of ``key`` if it has this value, which cannot be decoded, and log that."""

    def delete(self, key: Any) -> object:
        """Remove an entry, and notify the listener."""
