"""Calls of a function that ``Cache.cached`` or ``Cache.memoize`` decorates: look up, and compute if necessary."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any, Final

from flask import after_this_request, current_app, g, has_request_context
from flask import request as flask_request
from flask_caching import CachedResponse
from flask_caching.backends import NullCache
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from wheelcache.core.contract import MISSING, Record
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.loading.memoize import receives_previous
from wheelcache.engine.loading.request import KEEP, PREVIOUS, Kept, LoadRequest, Unstored, no_previous
from wheelcache.errors import LoadDeadlock, note_key
from wheelcache.flask_backend.engine_backend import NOT_SHARED, TO_BE_COMPUTED, EngineBackend, timeout_for
from wheelcache.flask_backend.function_keys import MakeKey, Versions
from wheelcache.runtime.reusable import check_reusable

try:
    from flask_caching import cache_memoize_hit, cache_memoize_miss, cache_view_hit, cache_view_miss
    from flask_caching.utils import join_generator, normalize_timeout
except ImportError as error:
    raise ImportError("wheelcache.flask_backend.Cache needs Flask-Caching 2.5 or newer") from error

logger = logging.getLogger("flask_caching")


class Need(Enum):
    """The reason why a caller gets no cached value."""

    BYPASS = "the function is called without the cache"
    FORCED = "the function is called and its value is set"
    OUTDATED = "there is a value, but it must be computed again"


NOTHING_SHARED: Final = Unstored(NOT_SHARED)

NO_VALUE: Final = frozenset((Need, type(TO_BE_COMPUTED)))


class Decorated:
    """One decorated function.

    Args:
        theirs: the function, decorated by Flask-Caching.
        given: the arguments of the decorator.
        make_key: makes the keys.
        tags_of: returns the tags of the value, called with the arguments of the call; None if there are none.
        is_view: whether it is decorated by ``cached``, not by ``memoize``.

    Attributes:
        cache, uncached, is_view: see above.
        has_previous: whether the function receives the previous value.
        function: calls this object, and has the attributes that Flask-Caching gives a decorated function.
    """

    def __init__(
        self,
        cache: Any,
        uncached: Callable[..., Any],
        theirs: Any,
        given: dict[str, Any],
        make_key: MakeKey,
        tags_of: Callable[..., tuple[str, ...]] | None,
        *,
        is_view: bool,
    ) -> None:
        self.cache = cache
        self.uncached = uncached
        self.is_view = is_view
        self.has_previous = not is_view and receives_previous(uncached)
        self._make_key = make_key
        self._tags_of = tags_of
        self._unless, self._forced_update = given["unless"], given["forced_update"]
        self._is_stale, self._response_filter = given["is_stale"], given["response_filter"]
        self._cache_none = given["cache_none"]
        self._shows_hits = given.get("response_hit_indication", False)
        is_async = inspect.iscoroutinefunction(uncached)
        looks_up = self._unless is self._forced_update is self._is_stale is None and not self._shows_hits

        @wraps(uncached)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            backend = cache.cache
            if not isinstance(backend, EngineBackend):
                if tags_of is not None:
                    check_tags(f"the tags of {uncached.__qualname__}", backend)
                return theirs(*args, **kwargs, **self.previous(None))
            key: Any = None
            versions: Versions = ()
            found: Any = Need.BYPASS
            if looks_up and not cache.enable_signals:
                # Most hits come through here. It avoids calls of methods: in a request, each takes 0.3 us.
                try:
                    key, versions = make_key(backend, args, kwargs)
                    found = backend.get(key, TO_BE_COMPUTED)
                except Exception:
                    self.log_or_raise()
                if found is None and self.is_missing(found):
                    found = Need.OUTDATED
            else:
                key, versions, found = self._look_up(backend, args, kwargs)
            # As in Flask-Caching, synchronous code calls an async function like any other function.
            if is_async and asyncio._get_running_loop() is not None:
                return self._call_async(backend, found, key, versions, args, kwargs)
            if type(found) in NO_VALUE:
                if found is Need.BYPASS:
                    return cache._call_fn(uncached, *args, **kwargs, **self.previous(None))
                computation = Computation(self, backend, found, key, versions, args, kwargs)
                request = computation.begin(computation.load)
                # Called here: every call between two functions counts towards the limit of recursion.
                try:
                    found = computation.received(backend.loading.get(request))
                except Exception as error:
                    found = computation.after(error)
                if found is NOT_SHARED and computation.value is MISSING:
                    found = backend.loading.get(computation.alone(computation.load))
                return computation.value_of(found)
            if is_view and isinstance(found, HTTPException):
                raise found
            return found

        # Share the dict, so that both functions have the attributes that users set.
        decorated.__dict__ = theirs.__dict__
        self.function: Any = decorated

    def _look_up(
        self, backend: EngineBackend, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Versions, Any]:
        """Return the key, its versions, and the value, or a Need if there is no usable value."""
        cache = self.cache
        if self._unless is not None and cache._bypass_cache(self._unless, self.uncached, *args, **kwargs):
            return None, (), Need.BYPASS
        found: Any
        try:
            key, versions = self._make_key(backend, args, kwargs)
            if self._forced_update is not None and cache._forced_update(self._forced_update, *args, **kwargs):
                found = Need.FORCED
            else:
                found = backend.get(key, TO_BE_COMPUTED)
                if self._is_outdated(found, args, kwargs):
                    found = Need.OUTDATED
        except Exception:
            self.log_or_raise()
            return None, (), Need.BYPASS
        is_found = type(found) not in NO_VALUE
        if self._shows_hits:
            _show_hit(is_found)
        if cache.enable_signals:
            self._send_signal(is_found, key, args, kwargs)
        return key, versions, found

    async def _call_async(
        self,
        backend: EngineBackend,
        found: Any,
        key: Any,
        versions: Versions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if found is Need.BYPASS:
            return await self.uncached(*args, **kwargs, **self.previous(None))
        if type(found) not in NO_VALUE:
            if self.is_view and isinstance(found, HTTPException):
                raise found
            return found
        computation = Computation(self, backend, found, key, versions, args, kwargs)
        request = computation.begin(computation.load_async)
        try:
            found = computation.received(await backend.loading.aget(request))
        except Exception as error:
            found = computation.after(error)
        if found is NOT_SHARED and computation.value is MISSING:
            found = await backend.loading.aget(computation.alone(computation.load_async))
        return computation.value_of(found)

    def begin(self, backend: EngineBackend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the beginning of the computation of a value, with its tags; None if the backend fails."""
        tags = () if self._tags_of is None else self._tags_of(*args, **kwargs)
        try:
            return backend.begin(tags)
        except Exception:
            self.log_or_raise()
            return None

    def previous(self, value: Any) -> dict[str, Any]:
        """Return the argument for a function that receives the previous ``value``; nothing for any other."""
        return {PREVIOUS: value} if self.has_previous else {}

    def is_kept(self, value: Any) -> bool:
        """Return whether a computed value may be cached."""
        if self._response_filter is None:
            return True
        is_error = self.is_view and isinstance(value, HTTPException)
        return bool(self._response_filter(value.get_response() if is_error else value))

    def timeout(self, value: Any) -> Any:
        """Return the timeout of a computed value."""
        if callable(self.function.cache_timeout):
            return timeout_for(self.function.cache_timeout, value)
        timeout = normalize_timeout(self.function.cache_timeout)
        return (value.timeout or timeout) if self.is_view and isinstance(value, CachedResponse) else timeout

    def is_running_view(self) -> bool:
        """Return whether this function is the view of the running request."""
        if not self.is_view or not has_request_context() or flask_request.endpoint is None:
            return False
        view = current_app.view_functions.get(flask_request.endpoint)
        return view is not None and inspect.unwrap(view) is inspect.unwrap(self.uncached)

    def log_or_raise(self) -> None:
        """Raise the current exception again in debug mode; otherwise log it, as Flask-Caching does."""
        if self.cache.app.debug:
            raise
        logger.exception("Exception possibly due to cache backend.")

    def is_missing(self, value: Any) -> bool:
        """Return whether a cached ``value`` counts as a miss."""
        return value is None and not self._cache_none

    def _is_outdated(self, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if found is TO_BE_COMPUTED:
            return False
        if self.is_missing(found):
            return True
        return self._is_stale is not None and bool(self.cache._is_stale(self._is_stale, found, *args, **kwargs))

    def _send_signal(self, is_found: bool, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        payload = {"cache": self.cache, "cache_key": key, "args": args, "kwargs": kwargs}
        if self.is_view:
            (cache_view_hit if is_found else cache_view_miss).send(**payload)
        else:
            (cache_memoize_hit if is_found else cache_memoize_miss).send(f=self.uncached, **payload)


class Computation:
    """A call that has not found a value to return.

    Args:
        need: the reason; TO_BE_COMPUTED for a miss.

    Attributes:
        value: the value, if this call has computed it; otherwise MISSING.
    """

    def __init__(
        self,
        decorated: Decorated,
        backend: EngineBackend,
        need: Any,
        key: Any,
        versions: Versions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._decorated = decorated
        self._backend = backend
        self._need = need
        self._key = key
        self._versions = versions
        self._args = args
        self._kwargs = kwargs
        self._begun: Any = None
        self._has_begun = False
        self._record: Record | None = None
        self.value: Any = MISSING

    def begin(self, load: Callable[[], Any]) -> LoadRequest:
        """Return the request of the value. Of the calls that miss the key together, one computes the value, and the
        others receive it if it is kept, and otherwise NOT_SHARED.

        Args:
            load: ``self.load`` or ``self.load_async``.
        """
        self._begun = self._decorated.begin(self._backend, self._args, self._kwargs)
        if self._begun is None or self._need is Need.FORCED or self._backend.is_in_transaction():
            return self._of_view(self._backend.request_alone(self._key, load))
        if self._need is TO_BE_COMPUTED:
            self._begun = self._begun._replace(is_fill=True)
        return self._of_view(self._backend.request_shared(self._key, load, self._begun))

    def _of_view(self, request: LoadRequest) -> LoadRequest:
        """Count a request for the running view, if it is the decorated function: its key may not show that."""
        if self._decorated.is_running_view():
            request.group = flask_request.endpoint
        return request

    def after(self, error: Exception) -> Any:
        """Return NOT_SHARED after an error if this call has a value or computes one: an error of the cache leaves the
        value to the caller. A LoadDeadlock before the function was called means that this call is part of the
        computation of a value with the same key, which will be kept instead. Raise any other error again."""
        if self.value is MISSING and (self._has_begun or not isinstance(error, LoadDeadlock)):
            raise error
        self._begun = None
        return NOT_SHARED

    def alone(self, load: Callable[[], Any]) -> LoadRequest:
        """Return the request of a value that this call computes for itself, since the one of another call was not kept
        or depends on this one."""
        if self._begun is not None:
            self._begun = self._decorated.begin(self._backend, self._args, self._kwargs)
        return self._of_view(self._backend.request_alone(self._key, load))

    def received(self, stored: Any) -> Any:
        """Return the value of another call, given the result of the request, or NOT_SHARED if it cannot be decoded. The
        next one may be like it, so this call computes its own without caching it."""
        backend = self._backend
        if self.value is not MISSING:
            return self.value
        try:
            return backend._decode(stored)
        except NOT_DECODED as error:
            backend.engine.engine.remove_undecoded(backend._cache_key(self._key), stored, error)
        self._begun = None
        return NOT_SHARED

    def value_of(self, received: Any) -> Any:
        """Return the value of this call: its own, or the one of another call that it has ``received``. If it is a view,
        and the value an exception, raise that."""
        value = received if self.value is MISSING else self.value
        if self._decorated.is_view and isinstance(value, HTTPException):
            raise value
        return value

    def load(self) -> Kept | Unstored:
        """Call the function, and return its value for the cache and for the callers that wait."""
        self._has_begun = True
        try:
            # As Flask-Caching does it.
            function = self._decorated.cache.app.ensure_sync(self._decorated.uncached)
            value = function(*self._args, **self._kwargs, **self._previous())
        except HTTPException as error:
            value = self._as_value(error)
        return self._finish(value)

    async def load_async(self) -> Kept | Unstored:
        """Do the same as ``load`` for an async function."""
        self._has_begun = True
        try:
            value = await self._decorated.uncached(*self._args, **self._kwargs, **self._previous())
        except HTTPException as error:
            value = self._as_value(error)
        return self._finish(value)

    def _previous(self) -> dict[str, Any]:
        if self._decorated.has_previous and not self._backend.is_in_transaction():
            self._record = self._backend.previous(self._key)
        try:
            return self._decorated.previous(None if self._record is None else self._backend._decode(self._record.value))
        except NOT_DECODED:
            # The computed value replaces it.
            self._record = None
            return self._decorated.previous(None)

    def _as_value(self, error: HTTPException) -> HTTPException:
        if not self._decorated.is_view:
            raise error
        return error

    def _finish(self, value: Any) -> Kept | Unstored:
        decorated, backend = self._decorated, self._backend
        if value is KEEP:
            if self._record is None:
                raise no_previous(self._key)
            value = backend._decode(self._record.value)
        if inspect.isgenerator(value):
            value = join_generator(value)
        check_reusable(value)
        shared: Kept | Unstored = NOTHING_SHARED
        if self._begun is not None and self._begun.is_fill and backend.is_in_transaction():
            # The function has begun a transaction, which keeps the value.
            self._begun = self._begun._replace(is_fill=False)
        if self._begun is not None and decorated.is_kept(value):
            try:
                if not decorated.is_missing(value):
                    timeout = decorated.timeout(value)
                    shared = backend.shared(value, timeout, self._begun)
                    if type(shared) is Unstored:
                        backend.keep(self._key, value, timeout, self._begun)
                    for key, version in self._versions:
                        backend.renew_version(key, version, timeout)
                elif self._need is not TO_BE_COMPUTED:
                    backend.delete(self._key)
            except Exception as error:
                note_key(error, self._key)
                decorated.log_or_raise()
        # Now, since in debug mode the caller receives that error instead.
        self.value = value
        return shared


def check_tags(what: str, backend: Any) -> None:
    """Raise a TypeError if ``backend``, which has no tags, may have values."""
    if not isinstance(backend, NullCache):
        raise TypeError(f"{what} must be used with wheelcache.flask_backend or NullCache, not {type(backend).__name__}")


def _show_hit(is_found: bool) -> None:
    g.flask_caching_hit_cache = is_found
    if is_found and has_request_context():

        @after_this_request
        def show(response: Response) -> Response:
            response.headers["hit_cache"] = "True"
            return response
