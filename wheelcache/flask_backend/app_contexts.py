"""App contexts, and the directory in which the processes of an app share their figures.

Leases end with the app context they began in. A loader in another thread gets an app context of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread
from typing import Any, Final

from flask import Flask, current_app, g, has_app_context

from wheelcache.leases.fill_leases import Lease
from wheelcache.observability.figures_directory import directory_of
from wheelcache.runtime.request_scope import current_scope

HELD_BEFORE: Final = "_wheelcache_held_before"
"""The name in an app context's ``g`` of the leases that were held before the context first asked for one."""


def note_held_leases() -> None:
    """Record the leases that the running code holds before its app context asks for one: they outlive the context."""
    if has_app_context() and HELD_BEFORE not in g:
        setattr(g, HELD_BEFORE, _held())


def end_leases(error: BaseException | None) -> None:
    """End the leases that began in the app context that is being torn down, but not the leases of an outer one."""
    held_before = g.pop(HELD_BEFORE, None)
    if held_before is not None:
        for lease in _held() - held_before:
            lease.give_up()


def _held() -> set[Lease]:
    """Return the leases of the running scope and of the scopes that it acts for: after an async view, the leases of the
    request belong to a parent scope."""
    return {lease for scope in current_scope().with_parents() for lease in list(scope.leases)}


@contextmanager
def in_app_context(load: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Yield a function that calls ``load``. In another thread, or after the block, it does so in a new context of the
    current app, if there is one."""
    if not has_app_context():
        yield load
        return
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    # Reset at the end of the block, since this thread may run the loader again later, as a thread of the pool.
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


def figures_directory(app: Flask) -> Path | None:
    """Return the directory for figures without ``figures_dir``, which is the same for all processes of the app."""
    # One installed package may serve several sites, each with an instance folder of its own.
    return directory_of(f"flask {app.name} {Path(app.root_path).resolve()} {Path(app.instance_path).resolve()}")
