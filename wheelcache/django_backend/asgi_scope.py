"""Which thread or task fills keys for a request, and when that request ends.

At the end of a request Django closes the caches that the running thread got from ``caches``. A backend object in a
module, which all threads use, is none of them; the signal ``request_finished`` reaches that as well. Under WSGI it is
sent in the thread that ran the view. Under ASGI it is sent in another context; and where a view or a middleware runs in
a thread, no task ends with it, while its context may live on in a traceback or in a timer of the server. What all code
of such a request has in common is asgiref's ``ThreadSensitiveContext``.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.core.signals import request_finished

from wheelcache.runtime.request_scope import RequestScope, current_scope, end_request, on_its_own

_scopes: Final[WeakKeyDictionary[ThreadSensitiveContext, set[RequestScope]]] = WeakKeyDictionary()


def act_for_request() -> None:
    """What the running code gets a lease for, it fills for its request, and for no longer."""
    request = SyncToAsync.thread_sensitive_context.get(None)
    if request is None:
        return
    scopes = _scopes.setdefault(request, set())
    if not any(scope in scopes for scope in current_scope().with_parents()):
        # A request inherited this scope from the code that started the server, and so did all others.
        on_its_own()
        scopes.add(current_scope())


def shares_its_thread() -> bool:
    """Whether all ``sync_to_async`` of this event loop runs in this very thread, which must not wait.

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
