"""The request that the running code belongs to: the leases that end with it, its language and URLs.

**Leases.** At the end of a request, Django closes the caches that the running thread got from ``caches``. A backend
object in a module, which all threads use, is not among them, so the signal ``request_finished`` is used as well. Under
WSGI, it is sent in the thread that ran the view. Under ASGI, it is sent in another context; and if a view or a
middleware runs in a thread, no task ends with it, and its context may live on in a traceback or in a timer of the
server. All code of such a request has asgiref's ``ThreadSensitiveContext`` in common.

**Loads in the background.** Django keeps the language, the time zone, the script prefix and the URLconf of a request in
asgiref's ``Local``, which acquires a lock outside of ``try``: an exception that interrupts its methods (a time limit, a
signal handler) may leave the lock acquired, and other threads would wait for it forever. The values themselves are in a
context variable, which needs no lock, so they are read from there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.conf import settings
from django.core.signals import request_finished
from django.urls import base, set_script_prefix, set_urlconf
from django.utils import timezone, translation
from django.utils.translation import trans_real

from wheelcache.engine.loading.background import surroundings
from wheelcache.runtime.request_scope import RequestScope, current_scope, end_request, on_its_own

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
