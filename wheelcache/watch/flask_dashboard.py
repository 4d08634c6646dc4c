"""The dashboard as a blueprint: ``app.register_blueprint(dashboard(guard))``.

Flask has no users. The app decides which users get in, so there is no dashboard without a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, abort, current_app, request
from flask import Response as FlaskResponse
from werkzeug.wrappers import Response as AnyResponse

from wheelcache.cache import Cache
from wheelcache.engine.option_table import Setting
from wheelcache.pages.flask_pages import PAGES
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.permissions import granted_by
from wheelcache.watch.dashboard.responses import PAGE, PATHS, Request, respond

if TYPE_CHECKING:
    from wheelcache.flask_backend.engine_backend import EngineBackend

Guard = Callable[[], object]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods that reach the view. Flask would answer OPTIONS itself, and the others before the guard is asked."""


def dashboard(guard: Guard, *, name: str = "wheelcache", user: Callable[[], object] | None = None) -> Blueprint:
    """Return the dashboard of an app's caches, at ``/wheelcache/`` unless ``register_blueprint`` gets a ``url_prefix``.

    Args:
        guard: called without arguments before every request to the dashboard, in the context of the request, so that
            it may use ``flask.request`` and ``session``; it may be a coroutine function. It returns the set of the
            user's permissions: "view_figures" lets the user view the page, "operate" also use its buttons, and
            "inspect" also find entries; to delete found entries, the user needs both. A response, such as a redirect to the login, is sent instead; the guard may also abort. Any other
            return value results in a 403, and is logged unless it is False or None.
        name: the name of the blueprint, and the prefix of its endpoints.
        user: called in the same way when a button is pressed, and returns the name of the user for the recent events.
            Without it, this is the user name of HTTP authentication, or the address that the request comes from.

    Raises:
        TypeError: if ``guard`` or ``user`` cannot be called.
    """
    if user is not None and not callable(user):
        raise TypeError(f"user must be a function that returns the name of the user, not {user!r}")
    if not callable(guard):
        raise TypeError(f"guard must be a function that returns the set of the user's permissions, not {guard!r}")
    blueprint = Blueprint(name, __name__, url_prefix="/wheelcache")

    def answer(path: str) -> AnyResponse:
        verdict = current_app.ensure_sync(guard)()
        if isinstance(verdict, AnyResponse):
            return verdict
        granted = granted_by(verdict)
        if not granted and path == PAGE:
            # The app may have an error page of its own.
            abort(403)
        # The title is the address of the site: the name of an app is often "app".
        title = f"{request.host}{request.script_root}"
        response = respond(
            Request(
                method=request.method,
                path=path,
                fields=lambda: dict((request.form if request.method == "POST" else request.args).lists()),
                header=request.headers.get,
                host=request.host,
                home=f"{request.script_root}/",
                granted=granted,
                user=_user if user is None else lambda: str(current_app.ensure_sync(user)()),
            ),
            Dashboard(title, caches_of_app, _settings_of),
        )
        return FlaskResponse(response.body, response.status, response.headers)

    @blueprint.url_value_preprocessor
    def exempt(endpoint: str | None, values: dict[str, Any] | None) -> None:
        # Flask-WTF's CSRFProtect refuses requests without its token, which would be a second scheme against forged
        # requests. The app may create it after this blueprint, so exempt the view here, before any check.
        csrf: Any = current_app.extensions.get("csrf")
        if hasattr(csrf, "exempt"):
            csrf.exempt(answer)

    for path in PATHS:
        blueprint.add_url_rule(
            f"/{path}",
            "page" if path == PAGE else "answer",
            answer,
            defaults={"path": path},
            methods=METHODS,
            provide_automatic_options=False,
        )
    return blueprint


def _user() -> str:
    authorization = request.authorization
    named = request.remote_user or (authorization and authorization.username)
    return named or f"the dashboard, from {request.remote_addr}"


def caches_of_app() -> list[Cache]:
    """Return the caches of the app and of its pages, including those that have not been used."""
    pages = [each.cache for each in current_app.extensions.get(PAGES, ())]
    return [*(each.engine for each in _backends()), *pages]


def _settings_of(name: str) -> list[Setting]:
    """Return the settings of the cache ``name``."""
    return next((each.settings for each in _backends() if each.engine.name == name), [])


def _backends() -> list[EngineBackend]:
    backends = current_app.extensions.get("cache", {}).values()
    if not backends:
        # Apps that only cache pages may not have Flask-Caching.
        return []
    from wheelcache.flask_backend.engine_backend import EngineBackend

    return [each for each in backends if isinstance(each, EngineBackend)]
