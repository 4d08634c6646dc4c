"""The request that the running code belongs to: the leases that end with it, its page, its language and URLs.

**Leases.** At the end of a request, Django closes the caches that the running thread got from ``caches``. A backend
object in a module, which all threads use, is not among them, so the signal ``request_finished`` is used as well. Under
WSGI, it is sent in the thread that ran the view. Under ASGI, it is sent in another context; and if a view or a
middleware runs in a thread, no task ends with it, and its context may live on in a traceback or in a timer of the
server. All code of such a request has asgiref's ``ThreadSensitiveContext`` in common.

**Pages.** Django's cache middleware and ``cache_page`` keep a page in two entries: the list of the request headers that
the page depends on, and the page for certain values of them. On a miss of the first, the key of the second cannot be
known. So the lease on the first stands for the page: the list is held back until the page is stored. Otherwise, the
waiters for the list would receive it, miss the page, and make it again.

**Tags of pages.** ``PageMiddleware`` begins to collect them, in ``request.cache_tags``. When ``cache_page`` or Django's
cache middleware stores the page in a cache of this package, the cache stores it with these tags.

**Loads in the background.** Django keeps the language, the time zone, the script prefix and the URLconf of a request in
asgiref's ``Local``, which acquires a lock outside of ``try``: an
exception that interrupts its methods (a time limit, a signal handler) may leave the lock acquired, and other threads
would wait for it forever. The values themselves are in a context variable, which needs no lock, so they are read from
there.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Any, Final
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.conf import settings
from django.core.signals import request_finished
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import base, set_script_prefix, set_urlconf
from django.utils import timezone, translation
from django.utils.translation import trans_real

from wheelcache.cache import Cache
from wheelcache.engine import options
from wheelcache.engine.loading.background import surroundings
from wheelcache.engine.loading.steps import drive
from wheelcache.engine.machine_clock import moment
from wheelcache.engine.runtime.request_scope import RequestScope, current_scope, end_request, on_its_own

PREFIX: Final = "views.decorators.cache."
HEADERS: Final = f"{PREFIX}cache_header."
PAGES: Final = f"{PREFIX}cache_page."

_PAGE: Final = re.compile(r"views\.decorators\.cache\.cache_page\.(.*)\.[A-Z]+\.([0-9a-f]{32})\.[0-9a-f]{32}(\..*)?")
"""Key prefix, method, hash of the URL, hash of the headers, language and time zone."""

_scopes: Final[WeakKeyDictionary[ThreadSensitiveContext, set[RequestScope]]] = WeakKeyDictionary()


def act_for_request() -> None:
    """Make the leases of the running code end with its request, not later."""
    request = SyncToAsync.thread_sensitive_context.get(None)
    if request is None:
        return
    scopes = _scopes.setdefault(request, set())
    if not any(scope in scopes for scope in current_scope().with_parents()):
        # All requests inherit this scope from the code that started the server.
        on_its_own()
        scopes.add(current_scope())


def shares_its_thread() -> bool:
    """Return whether this thread runs every ``sync_to_async`` call of its event loop, so that it must not wait.

    Under an ASGI server each request has a thread of its own.
    """
    if SyncToAsync.thread_sensitive_context.get(None) is not None:
        return False
    loop = getattr(SyncToAsync.threadlocal, "main_event_loop", None)
    return loop is not None and loop.is_running()


def _end(**kwargs: Any) -> None:
    request = SyncToAsync.thread_sensitive_context.get(None)
    if request is None:
        end_request()
        return
    # A copy: a thread of the request may still be asking for more.
    for scope in list(_scopes.pop(request, ())):
        scope.end()


request_finished.connect(_end, dispatch_uid="wheelcache")


def is_of_page(key: Any) -> bool:
    """Return whether ``key`` is the key of a page or of a list of headers."""
    return type(key) is str and key.startswith(PREFIX)


class Held:
    """A list of headers that will be stored: see ``is_held_back``.

    Args:
        store: stores it. Returns the result, or steps to it.
    """

    __slots__ = ("store",)

    def __init__(self, store: Callable[[], Any]) -> None:
        self.store = store

    def __call__(self) -> object:
        return drive(self.store())


def held_back_of(cache: Cache) -> Iterator[Held]:
    """Take the lists of headers of ``cache`` that the running code holds back."""
    held_back = current_scope().held_back
    for place in list(held_back):
        if place[0] is cache:
            yield held_back.pop(place)  # type: ignore[misc]


def is_held_back(cache: Cache, leases: Any, key: Any, cache_key: Any, store: Callable[[], Any]) -> bool:
    """Return whether ``key`` is the key of a list of headers on which the running code has a lease. If so, ``store()``
    is called when the page is stored or the request ends."""
    if type(key) is not str or not key.startswith(HEADERS) or not leases.is_held(cache_key):
        return False
    current_scope().held_back[cache, cache_key] = Held(store)
    return True


def headers_of(page: Any) -> str | None:
    """Return the key of the list of headers on which a page depends, if ``page`` is the key of a page."""
    match = _PAGE.fullmatch(page) if type(page) is str else None
    return None if match is None else f"{HEADERS}{match[1]}.{match[2]}{match[3] or ''}"


def headers_held_for(cache: Cache, page: Any, key_of: Callable[[str], Any]) -> list[Held]:
    """Take the lists of headers that were held back until ``page`` is stored, if that is the key of a page.

    Args:
        key_of: returns the key of the cache for a key of the caller.
    """
    headers = headers_of(page)
    if headers is None:
        return []
    return current_scope().take_held_back((cache, key_of(headers)))  # type: ignore[return-value]


class PageTags:
    """Collects the tags of the pages that are being made.

    Attributes:
        are_used: whether a ``PageMiddleware`` was made. Until then, a ``set`` need not look for tags.
    """

    def __init__(self) -> None:
        self.are_used = False
        self._request: ContextVar[tuple[HttpRequest, int] | None] = ContextVar("wheelcache.cache_tags", default=None)

    def begin(self, request: HttpRequest) -> Token[tuple[HttpRequest, int] | None]:
        """Begin to collect the tags of the response to ``request``. Pass the result to ``end``."""
        return self._request.set((request, moment()))

    def end(self, begun: Token[tuple[HttpRequest, int] | None]) -> None:
        """End what ``begin`` began, in the same context."""
        self._request.reset(begun)

    def collected(self, key: Any, page: Any) -> tuple[set[str], int]:
        """Return the tags of ``page`` and the moment at which its request began; no tags if ``key`` is not its key.

        The page keeps its tags in the attribute ``cache_tags``, for an HTTP cache in front of the site: no view adds
        them to the request of a visitor who gets the page from Django's cache.
        """
        begun = self._request.get()
        if begun is None or type(key) is not str or not key.startswith(PAGES) or not isinstance(page, HttpResponseBase):
            # A TieredCache stores the page in an envelope, perhaps in a cache of this package.
            return set(), 0
        request, since = begun
        given = options.page_tags("request.cache_tags", request.cache_tags)  # type: ignore[attr-defined]
        tags = given | options.cache_tags([page.headers.get("Cache-Tag", "")])
        page.cache_tags = tags  # type: ignore[attr-defined]
        return tags, since


page_tags: Final = PageTags()


@contextmanager
def _of_request(
    thread: int, language: str | None, zone: Any, script_prefix: str, urlconf: str | None
) -> Iterator[None]:
    """Activate the state that Django keeps for the request of ``thread``, which started a load."""
    # A task runs in a copy of its caller's context, and in the same thread.
    if threading.get_ident() == thread:
        yield
        return
    # The context of the load ends with it, so these need not be reset.
    set_script_prefix(script_prefix)
    set_urlconf(urlconf)
    with translation.override(language), timezone.override(zone):
        yield


def context_of_request() -> AbstractContextManager[None]:
    """Return a context manager with the caller's language, time zone, script prefix and URLconf.

    A load runs in a copy of the caller's context, but asgiref, from 3.13 at the latest, shows the values of a context
    only to the thread that stored them.
    """
    if not settings.configured:
        return nullcontext()
    script_prefix = getattr(_unlocked(base, "_prefixes"), "value", "/")
    urlconf = getattr(_unlocked(base, "_urlconfs"), "value", None)
    return _of_request(threading.get_ident(), _language(), _time_zone(), script_prefix, urlconf)


surroundings.append(context_of_request)


def _language() -> str | None:
    """Do the same as ``translation.get_language`` without a lock."""
    if not settings.USE_I18N:
        return translation.get_language()
    active = getattr(_unlocked(trans_real, "_active"), "value", None)
    # ``to_language`` returns None after ``translation.deactivate_all``.
    name: str | None = settings.LANGUAGE_CODE if active is None else active.to_language()
    return name


def _time_zone() -> Any:
    """Do the same as ``timezone.get_current_timezone`` without a lock."""
    return getattr(_unlocked(timezone, "_active"), "value", timezone.get_default_timezone())


def _unlocked(module: Any, name: str) -> Any:
    """Return the storage that the ``Local`` of a module uses under its lock."""
    local = getattr(module, name)
    return getattr(local, "_storage", local)
