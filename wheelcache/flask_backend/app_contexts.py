"""App contexts, and the directory in which the processes of an app share their figures.

Leases end with the app context they began in. A load in the background gets an app context of its own, and neither the
request nor the ``g`` of its caller.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from flask import Flask, ctx, current_app, g, has_app_context, request

from wheelcache.core.contract import VIEW
from wheelcache.engine import observer
from wheelcache.engine.loading.background import surroundings
from wheelcache.runtime import threads
from wheelcache.runtime.request_scope import Lease, current_scope

HELD_BEFORE: Final = "_wheelcache_held_before"
"""The name in an app context's ``g`` of the leases that were held before the context first asked for one."""


OUTER_VIEW: Final = "_wheelcache_outer_view"
"""The name in an app context's ``g`` of the view of the request that makes this one, as tests do."""


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


def count_views(app: Flask) -> None:
    """Count the pages that a request of ``app`` looks up and stores for its view."""
    begins = app.before_request_funcs.setdefault(None, [])
    if _begin_view not in begins:
        begins.insert(0, _begin_view)
        app.teardown_request_funcs.setdefault(None, []).append(_end_view)


def _begin_view() -> None:
    setattr(g, OUTER_VIEW, VIEW.get())
    VIEW.set(request.endpoint)


def _end_view(error: BaseException | None) -> None:
    VIEW.set(g.pop(OUTER_VIEW, None))


def _held() -> set[Lease]:
    """Return the leases of the running scope and of the scopes that it acts for: after an async view, the leases of the
    request belong to a parent scope."""
    return {lease for scope in current_scope().with_parents() for lease in list(scope.leases)}


def new_app_context() -> AbstractContextManager[object]:
    """Return a new context of the current app, for a load in the background; without an app, one that does nothing."""
    if not has_app_context():
        return nullcontext()
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    return app.app_context()


surroundings.append(new_app_context)
# A request, and objects in ``g`` such as database connections, belong to their thread. In Flask 3.2, one class is both;
# the other name is then an alias that warns, and not among the variables of the module.
threads.not_copied.extend(vars(ctx)[name] for name in ("AppContext", "RequestContext") if name in vars(ctx))


def figures_directory(app: Flask) -> Path | None:
    """Return the directory for figures without ``figures_dir``, which is the same for all processes of the app."""
    # One installed package may serve several sites, each with an instance folder of its own.
    site = f"flask {app.name} {Path(app.root_path).resolve()} {Path(app.instance_path).resolve()}"
    return observer.figures_directory(site)
