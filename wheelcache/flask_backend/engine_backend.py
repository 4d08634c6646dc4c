"""The base class of the two backends for Flask-Caching, and the settings of their app."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from flask import Flask
from flask_caching.backends.base import BaseCache

from wheelcache.backend_access import BackendAccess, ByPrefix
from wheelcache.cache import Cache
from wheelcache.codec import Codec, Pickle, Serializer, is_bare
from wheelcache.core.contract import MISSING, GroupRule, Record
from wheelcache.core.tags import moment
from wheelcache.errors import FileUnusable
from wheelcache.flask_backend.app_contexts import end_leases
from wheelcache.loading.adaptive import seconds_for
from wheelcache.loading.policy import PLAIN, LoadPolicy
from wheelcache.loading.request import Unstored
from wheelcache.loading.steps import Call, InSteps, Outcome, Steps
from wheelcache.option_table import Options, Setting
from wheelcache.runtime.request_scope import forget_misses

logger = logging.getLogger("wheelcache")

R = TypeVar("R")

Timeout = int | float | timedelta | None
"""Seconds, or a timedelta. 0 means no expiry, below 0 immediate expiry, None the default timeout."""

PICKLE: Final = Pickle()

Keep = Callable[[Any, Timeout], None]
"""Stores a computed value for a timeout, and gives it to the callers that wait for it."""

Compute = Callable[[Keep], Any]
"""Computes a value, and passes it to the given function unless it must not be kept. May return an awaitable."""


class _Mark(Enum):
    TO_BE_COMPUTED = "a missing value that the caller will compute"
    NOT_SHARED = "a value that another caller computed and did not keep"


TO_BE_COMPUTED: Final = _Mark.TO_BE_COMPUTED
"""The default of a ``get`` whose caller calls ``compute_once`` next: the ``get`` returns without a lease."""

NOT_SHARED: Final = _Mark.NOT_SHARED
"""The result of ``compute_once`` for waiters if the value was not kept."""


class Begun(NamedTuple):
    """The beginning of the computation of a value: the engine's names of its tags, and the moment."""

    names: tuple[str, ...]
    since: int


GROUPS: Final = (
    GroupRule("view/", "views", ""),
    GroupRule("_template_fragment_cache_", "fragments", ""),
    GroupRule("", "", ":"),
)
"""The groups of keys: the views of ``cached``; the fragments of templates, in whose keys nothing ends the name; and for
all others, such as those of a memoized function, the text up to the first colon."""


class EngineBackend(BackendAccess, BaseCache):
    """A cachelib cache with an engine.

    Args:
        fill_waits, fill_graces: see ``BackendAccess``.
        settings: see below.

    Attributes:
        settings: the options, for operators.
        serializer: in cachelib's form. If it is set on the class or on the object, it replaces pickle and receives
            every value except ints and None.
    """

    serializer: Serializer = PICKLE

    def __init__(
        self,
        engine: Cache,
        *,
        default_timeout: float,
        ignore_delete_many_errors: bool,
        fill_waits: ByPrefix,
        fill_graces: ByPrefix,
        settings: list[Setting],
    ) -> None:
        super().__init__()
        # cachelib before version 0.16 has no such parameter.
        self.ignore_delete_many_errors = ignore_delete_many_errors
        # cachelib converts it to an int; fractions are kept here.
        self.default_timeout = default_timeout  # type: ignore[assignment]
        self._use_cache(engine, fill_waits, fill_graces)
        # Their values are made, and not computed by the site.
        self._misses.loads.leave_out(is_memoize_version)
        # Every key is stored as it is.
        self._max_key_length = 0
        self.settings = settings
        self._use_serializer()

    @property
    def engine(self) -> Cache:
        """The cache with the entries, or with the copies."""
        return self._cache

    def is_of_this_process(self) -> bool:
        """Return whether each process has its own entries: ``coherence`` only notifies the others of writes."""
        return True

    def _group_keys(self) -> None:
        """Distinguish groups of keys, which begin with the key prefix."""
        if self._prefix is not None and self._prefix.isascii():
            self._cache.engine.group_by([each._replace(prefix=self._prefix + each.prefix) for each in GROUPS])

    def register_teardowns(self, app: Flask) -> None:
        """Make the leases and fills of each app context of ``app`` end with it."""
        if self._fill_waits:
            app.teardown_appcontext(end_leases)
        app.teardown_appcontext(lambda error: forget_misses())

    # For ``caching.Cache``.

    def begin(self, tags: tuple[str, ...]) -> Any:
        """Return the beginning of the computation of a value with ``tags``, for the three methods below.

        Its attribute ``names`` contains the engine's names of the tags.
        """
        return Begun(self._tag_names(tags), moment())

    def compute_once(self, key: str, compute: Compute, begun: Any) -> Steps:
        """Return the steps to the value of ``key``, after a ``get`` that returned TO_BE_COMPUTED.

        Of the callers that miss the key together, one calls ``compute``. The others receive its value if it was kept,
        or its exception, and otherwise NOT_SHARED.
        """
        raise NotImplementedError

    def compute_apart(
        self,
        key: str,
        compute: Compute,
        begun: Any,
        look: Callable[[], Any] = lambda: MISSING,
        policy: LoadPolicy = PLAIN,
    ) -> Steps:
        """Return the steps to a newly computed value, even if ``key`` exists. Concurrent callers of this method share
        it as in ``compute_once``.

        Args:
            look: returns the stored form of a value that can be used instead of computing one; otherwise MISSING.
            policy: decides whether the others receive the old value instead.
        """
        computed = Computed(self)

        def keep(value: Any, timeout: Timeout) -> None:
            computed.keep(value)
            self.keep(key, value, timeout, begun)

        loader = InSteps(partial(computed.steps, compute, keep, look))
        load = self._cache.engine.load_apart(self._cache_key(key), loader, None, policy, begun.names)
        return computed.outcome((yield from load))

    def compute(self, key: str, compute: Compute, keep: Keep) -> Steps:
        """Return the steps to a newly computed value, which other callers do not wait for."""
        engine = self._cache.engine
        request = engine.request(
            *(self._cache_key(key), partial(compute, keep), None, PLAIN), passes_previous=False, is_alone=True
        )
        # Its caller has looked it up.
        request.is_counted = True
        return engine.compute(request)

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Any) -> None:
        """Set a computed value."""
        raise NotImplementedError

    def previous(self, key: str) -> Record | None:
        """Return the entry of ``key`` with the value that a computed one will replace, if there is one in memory."""
        return self._cache.engine.peek(self._cache_key(key))

    def version(self, key: str) -> str:
        """Return the version of a memoized function, or of one of its instances. Make it if there is none."""
        version: Any = self.get(key, TO_BE_COMPUTED)
        return version if type(version) is str else str(self.get_or_load(key, new_version, 0))

    def renew_version(self, key: str, version: str, timeout: Timeout) -> None:
        """Give a version a new timeout, unless it has changed."""
        raise NotImplementedError

    def get_or_load(self, key: str, loader: Callable[..., R], timeout: Timeout = None) -> R:
        """Return the value of ``key``; if it is missing, the result of ``loader()``, which is stored."""
        raise NotImplementedError

    def _cache_key(self, key: str) -> str:
        """Return the key of the entry, or of the copy."""
        raise NotImplementedError

    def get_dict(self, *keys: str) -> dict[str, Any]:
        """Return the values of all ``keys`` as a dict."""
        return dict(zip(keys, self.get_many(*keys), strict=True))

    def dec(self, key: str, delta: int = 1) -> Any:
        """Subtract ``delta`` from a value: see ``inc``."""
        return self.inc(key, -delta)

    def _waits_for_versions(self, keys: Iterable[Any]) -> bool:
        """Return whether ``keys`` are versions of memoized functions, for which ``get_many`` must call ``get``.

        Flask-Caching reads the versions together. The values of the functions cannot be computed before the versions
        are set, and without waiting, all callers that miss the versions would set their own.
        """
        return bool(self._fill_waits) and any(map(is_memoize_version, keys))

    def __setattr__(self, name: str, value: Any) -> None:
        # Flask-Caching sets CACHE_SERIALIZER on the finished object.
        super().__setattr__(name, value)
        if name == "serializer":
            self._use_serializer()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "serializer":
            self._use_serializer()

    def _use_serializer(self) -> None:
        is_own = self.serializer is not PICKLE
        self._use_codec(Codec(self.serializer, keep=is_bare) if is_own else Codec(PICKLE), keeps_atoms=not is_own)


class Computed:
    """Passes the result of one call of ``compute`` to the caller itself and to the callers that wait for it.

    Attributes:
        stored: the result for the waiting callers: the encoded value, or NOT_SHARED if the value was not kept.
    """

    def __init__(self, backend: EngineBackend) -> None:
        self._codec = backend._codec
        self._value: Any = MISSING
        self.stored: Any = Unstored(NOT_SHARED)

    def keep(self, value: Any) -> None:
        self.stored = Unstored(self._codec.encode(value))

    def steps(self, compute: Compute, keep: Keep, look: Callable[[], Any] = lambda: MISSING) -> Steps:
        """Return the steps of the caller that computes the value."""
        found = look()
        if found is not MISSING:
            return Unstored(found, is_computed=False), None
        value, error = yield Call(partial(compute, keep))
        if error is not None:
            return None, error
        self._value = value
        return self.stored, None

    def outcome(self, of_load: Outcome) -> Outcome:
        """Return the outcome for this caller: the value itself if it computed the value, otherwise a decoded copy."""
        stored, error = of_load
        if self._value is not MISSING:
            return self._value, None
        if error is not None or stored is NOT_SHARED:
            return stored, error
        return self._codec.decode(stored), None


def timeout_for(timeout: Any, value: Any) -> Any:
    """Return ``timeout``; if it is a function of the value, the timeout that it gives to ``value``."""
    seconds = seconds_for(timeout, value)
    if not callable(timeout):
        return timeout
    if seconds is None:
        return 0
    # cachelib prefers ints.
    return (int(seconds) if seconds.is_integer() else seconds) or -1


def new_version() -> str:
    return secrets.token_hex(4)


def is_memoize_version(key: Any) -> bool:
    """Return whether Flask-Caching keeps the version of a memoized function under ``key``."""
    return str(key).endswith("_memver")


def checked_options(options: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked values of all ``options``, given or default, by the names in ``option_table``.

    Raises:
        TypeError, ValueError, FileUnusable: if an option is unknown or wrong. The message names the option, the values
            that it accepts and the value that it got.
    """
    check_known(options, given)
    return options.checked(given)


def check_known(options: Options, given: Mapping[str, Any]) -> None:
    """Check that all options are known.

    Raises:
        TypeError: if an option is unknown. The message names the option, its cache and the nearest known option.
    """
    unknown = options.unknown(given, f"the cache {given.get('name', 'default')!r}")
    if unknown is not None:
        raise TypeError(unknown)


@contextmanager
def naming(cache: Any) -> Iterator[None]:
    """Add the name of the cache to the error of a wrong option in this block."""
    try:
        yield
    except (TypeError, ValueError, FileUnusable) as error:
        # A subclass may have other arguments.
        kind = next(each for each in (TypeError, ValueError, FileUnusable) if isinstance(error, each))
        raise kind(f"Wrong setting of the cache {cache!r}: {error}") from error


def warn_of_sessions(app: Flask) -> None:
    """Log a warning if Flask-Session keeps the sessions of ``app`` in a cache that the workers do not share."""
    sessions = app.config.get("SESSION_CACHELIB")
    if (
        app.config.get("SESSION_TYPE") == "cachelib"
        and isinstance(sessions, EngineBackend)
        and sessions.is_of_this_process()
    ):
        logger.warning(
            "Flask-Session keeps the sessions of the app %r in a cache that the worker processes do not share: with "
            "more than one worker, a visitor is logged out whenever another one answers. Set SESSION_CACHELIB to a "
            "TieredCache over Redis, Valkey or memcached, or to one of these itself.",
            app.name,
        )
