"""The base class of the two backends for Flask-Caching, and the settings of their app."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from flask import Flask
from flask_caching.backends.base import BaseCache

from wheelcache.backend_access import BackendAccess, ByPrefix
from wheelcache.cache import Cache
from wheelcache.codec import Codec, Pickle, Serializer, is_bare
from wheelcache.core.contract import GroupRule, Record
from wheelcache.core.tags import moment
from wheelcache.errors import FileUnusable
from wheelcache.flask_backend.app_contexts import end_leases
from wheelcache.loading.adaptive import seconds_for
from wheelcache.loading.policy import PLAIN
from wheelcache.loading.request import Kept, LoadRequest, Unstored
from wheelcache.option_table import Options, Setting
from wheelcache.runtime.request_scope import forget_misses

logger = logging.getLogger("wheelcache")

R = TypeVar("R")

Timeout = int | float | timedelta | None
"""Seconds, or a timedelta. 0 means no expiry, below 0 immediate expiry, None the default timeout."""

PICKLE: Final = Pickle()


class _Mark(Enum):
    TO_BE_COMPUTED = "a missing value that the caller will compute"
    NOT_SHARED = "a value that another caller computed and did not keep"


TO_BE_COMPUTED: Final = _Mark.TO_BE_COMPUTED
"""The default of a ``get`` whose caller goes on with ``request_shared``: the ``get`` returns without a lease."""

NOT_SHARED: Final = _Mark.NOT_SHARED
"""The result for waiters if the value was not kept."""


class Begun(NamedTuple):
    """The beginning of the computation of a value: the engine's names of its tags, the moment, and whether the value
    answers a miss, and is not kept if another caller has written its key."""

    names: tuple[str, ...]
    since: int
    is_fill: bool = False


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
        """Return the beginning of the computation of a value with ``tags``, for ``request_shared`` and ``keep``.

        Its attribute ``names`` contains the engine's names of the tags.
        """
        return Begun(self._tag_names(tags), moment())

    def request_shared(self, key: str, load: Callable[[], Any], begun: Any) -> LoadRequest:
        """Return the request of a value that concurrent callers share.

        Args:
            load: computes the value, and returns the result of ``shared`` after ``keep``, or NOT_SHARED as Unstored.
        """
        return self.loading.request_apart(self._cache_key(key), load, PLAIN, begun.names)

    def request_alone(self, key: str, load: Callable[[], Any]) -> LoadRequest:
        """Return the request of a value that the caller computes for itself."""
        request = self.loading.request(self._cache_key(key), load, None, PLAIN, passes_previous=False, is_alone=True)
        # Its caller has looked it up.
        request.is_counted = True
        return request

    def shared(self, value: Any, timeout: Timeout, begun: Any) -> Kept | Unstored:
        """Return a computed value for the callers that wait: as Kept if the load stores it, so that ``keep`` need not
        be called."""
        return Unstored(self._encode(value))

    def keep(self, key: str, value: Any, timeout: Timeout, begun: Any) -> None:
        """Store a computed value."""
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
