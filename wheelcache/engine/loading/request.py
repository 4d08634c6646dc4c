"""A load, as its caller asks for it: the policy, the loader, and the request that a look-up makes after a miss.

A loader with a parameter named ``previous`` receives the value that it replaces, by keyword. It may return KEEP to
renew that value, for example after a conditional request that was answered by 304. The ideas are FusionCache's
conditional refresh and adaptive caching.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache, partial
from inspect import Parameter, signature
from math import inf
from typing import Any, Final, NamedTuple, TypedDict

from wheelcache.core.contract import MISSING, Record
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED, Codec
from wheelcache.errors import note_key
from wheelcache.runtime.reusable import USUAL, check_reusable
from wheelcache.runtime.steps import Call, InSteps, Loader, Steps, call

# The policy.


class LoadOptions(TypedDict, total=False):
    """The options of loads in all forms of the cache."""

    grace: float | None
    refresh_ahead: float | None
    fail_safe: float | None
    negative_ttl: float | None
    tags: Iterable[str]


class Receivers(Enum):
    """The callers that may receive an old value."""

    ALL = "all callers, while the value is loaded again"
    WAITERS = "callers that would otherwise wait for a load"
    OUTAGE = "callers of ``get_stale``, which a layer calls in an outage of the source"


class Staleness(NamedTuple):
    """The rule for an old value while it is loaded again: until when it may be returned, and to whom.

    Attributes:
        seconds: the seconds past its TTL for which the value may be returned; 0.0 for none.
        receivers: the callers that may receive it.
    """

    seconds: float = 0.0
    receivers: Receivers = Receivers.ALL


FRESH_ONLY: Final = Staleness()


class Source(NamedTuple):
    """The rules of a store whose values are loaded. It counts its reads itself, so no read is a load.

    Attributes:
        shares: decides whether the waiters of a load receive an error of its loader. Otherwise they look again.
        counts: decides whether the store counts an error, which is then no failed load.
        lifetime: returns the TTL of the value of a key, whose end may be known, 0.0 if it must not be stored, and the
            seconds past it for which the value stays in memory. They replace those of the request.
        keeps_for_outages: whether old values are kept for outages only.
    """

    shares: Callable[[BaseException], bool]
    counts: Callable[[BaseException], bool]
    lifetime: Callable[[Any], tuple[float, float]]
    keeps_for_outages: bool


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """Checked options of a load.

    Attributes:
        stale: the rule for old values.
        refresh_ahead: the fraction of the TTL after which a hit starts a refresh; None for never.
        fail_safe: the seconds past its TTL for which the old value is returned if loading it again fails; 0.0 for none.
        timeout: seconds that a caller waits for a load; None for no limit.
        negative_ttl: the TTL of a value that is None, in seconds; None for the TTL of all other values.
        source: the rules of the store that the loader reads; None for other loaders.
        kept: the seconds past its TTL for which a value stays in memory.
        is_at_once: whether a load takes place in its caller: no old value is served, and no time limited.
    """

    stale: Staleness = FRESH_ONLY
    refresh_ahead: float | None = None
    fail_safe: float = 0.0
    timeout: float | None = None
    negative_ttl: float | None = None
    source: Source | None = None
    kept: float = field(init=False)
    is_at_once: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", max(self.stale.seconds, self.fail_safe))
        object.__setattr__(self, "is_at_once", not self.kept and self.timeout is None)

    @classmethod
    def of_store(
        cls,
        shares: Callable[[BaseException], bool],
        counts: Callable[[BaseException], bool],
        lifetime: Callable[[Any], tuple[float, float]],
        fail_safe: float,
    ) -> LoadPolicy:
        """Return the policy of loads that read from a store: see ``Source``.

        Args:
            fail_safe: the seconds past its TTL for which a value is kept for outages; 0.0 if it is not.
        """
        source = Source(shares, counts, lifetime, keeps_for_outages=fail_safe > 0)
        return cls(Staleness(fail_safe, Receivers.OUTAGE), source=source)

    def grace_for(self, receivers: Receivers) -> float:
        """Return the seconds past its TTL for which ``receivers`` may receive an old value while it is loaded again."""
        return self.stale.seconds if self.stale.receivers is receivers else 0.0

    def with_grace(self, seconds: float) -> LoadPolicy:
        """Return this policy with the ``grace`` that an option gives to the key. The caller's ``grace`` wins."""
        if not seconds or self.stale.seconds:
            return self
        return replace(self, stale=Staleness(seconds, Receivers.WAITERS))


PLAIN: Final = LoadPolicy()
"""A load without options."""


def load_policy(
    grace: float | None = None,
    refresh_ahead: float | None = None,
    fail_safe: float | None = None,
    negative_ttl: float | None = None,
    timeout: float | None = None,
    load_timeout: float | None = None,
) -> LoadPolicy:
    """Return the policy of these arguments, which ``Cache.get_or_load`` describes. None stands for "not given".

    Args:
        load_timeout: the name of ``timeout`` in a backend, where ``timeout`` is a TTL.

    Raises:
        TypeError, ValueError: if an argument is wrong. The message names it, the accepted values and the given one.
    """
    if grace is refresh_ahead is fail_safe is negative_ttl is timeout is load_timeout is None:
        return PLAIN
    try:
        # The arguments are checked at every call, including hits: 0.3 us instead of 3.
        return _remembered(grace, refresh_ahead, fail_safe, negative_ttl, timeout, load_timeout)
    except TypeError:
        # An argument that cannot be hashed is wrong, too: the check names it.
        return _checked(grace, refresh_ahead, fail_safe, negative_ttl, timeout, load_timeout)


def _checked(
    grace: float | None,
    refresh_ahead: float | None,
    fail_safe: float | None,
    negative_ttl: float | None,
    timeout: float | None,
    load_timeout: float | None,
) -> LoadPolicy:
    return LoadPolicy(
        Staleness(options.seconds_or_none("grace", grace) or 0.0),
        options.share_or_none("refresh_ahead", refresh_ahead),
        options.seconds_or_none("fail_safe", fail_safe) or 0.0,
        options.seconds_or_none("timeout", timeout) or options.seconds_or_none("load_timeout", load_timeout),
        options.seconds_or_none("negative_ttl", negative_ttl),
    )


_remembered: Final = lru_cache(maxsize=128, typed=True)(_checked)


# The previous value, and lifetimes that depend on the loaded one.

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


# The request.


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
        self.grace = policy.kept
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
    if type(request.loader) is InSteps:
        return (yield from call(request.loader))
    value, error = yield Call(request.loader)
    if error is None:
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
