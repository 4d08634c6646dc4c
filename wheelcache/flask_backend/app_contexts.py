"""App contexts: the leases that are taken in one end with it, and a loader in another thread has one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread
from typing import Any, Final

from flask import current_app, g, has_app_context

from wheelcache.leases.fill_leases import Lease
from wheelcache.runtime.request_scope import current_scope

HELD_BEFORE: Final = "_wheelcache_held_before"
"""Where an app context's ``g`` has the leases that were held before the first that was asked for in it."""


def note_held_leases() -> None:
    """To be called before a lease is asked for: those that are held by now do not end with the app context."""
    if has_app_context() and HELD_BEFORE not in g:
        setattr(g, HELD_BEFORE, _held())


def end_leases(error: BaseException | None) -> None:
    """An app context is torn down: the leases that were taken in it end. Those of one around it do not."""
    held_before = g.pop(HELD_BEFORE, None)
    if held_before is not None:
        for lease in _held() - held_before:
            lease.give_up()


def _held() -> set[Lease]:
    """The leases of the running scope and of those that it acts for: after an async view the request's are a
    parent's."""
    return {lease for scope in current_scope().with_parents() for lease in list(scope.leases)}


@contextmanager
def in_app_context(load: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """``load``, to be run in this thread as it is until the block ends; elsewhere and later in an app context of its
    own, if there is one here."""
    if not has_app_context():
        yield load
        return
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    # Until the block ends: the thread may be one that runs loaders in the background, and come to this one.
    caller: Any = current_thread()

    def load_in_context() -> Any:
        if current_thread() is caller:
            return load()
        with app.app_context():
            return load()

    try:
        yield load_in_context
    finally:
        caller = None
