"""The dashboard as a blueprint: ``app.register_blueprint(dashboard(guard))``.

Flask has neither users nor protection against forged requests. The app decides which users get in, so there is no
dashboard without a guard. A request comes from the page itself if it has the token of the page, which is also in a
cookie that scripts cannot read, and if its headers name no other origin. If the app uses Flask-WTF's ``CSRFProtect``,
Flask-WTF makes the token, since it refuses all others.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, current_app, g, jsonify, request
from werkzeug.wrappers import Response as AnyResponse

from wheelcache.cache import Cache
from wheelcache.flask_backend.pages import PAGES
from wheelcache.observability.dashboard.dashboard import ASSETS, HEADERS, Dashboard, asset
from wheelcache.observability.dashboard.inspection import Target
from wheelcache.observability.dashboard.permissions import LACKING, REFUSED, Permission, granted_by
from wheelcache.observability.dashboard.refusals import answer
from wheelcache.option_table import Setting, is_inspectable

if TYPE_CHECKING:
    from wheelcache.flask_backend.engine_backend import EngineBackend

logger = logging.getLogger("wheelcache")

Guard = Callable[[], object]

HEADER: Final = "X-CSRFToken"
COOKIE: Final = "wheelcache_csrf"
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""The form of a token. A cookie of another form may contain characters that are not allowed in a header."""

IN_JSON: Final = ("figures", "clear", "purge", "save", "reset", "inspect", "answers")
"""The views that scripts request. They refuse in JSON."""


def dashboard(guard: Guard, *, name: str = "wheelcache", user: Callable[[], object] | None = None) -> Blueprint:
    """Return the dashboard of an app's caches, at ``/wheelcache/`` unless ``register_blueprint`` gets a ``url_prefix``.

    Args:
        guard: called without arguments before every request to the dashboard, in the context of the request, so that
            it may use ``flask.request`` and ``session``; it may be a coroutine function. True or "operate" lets the
            user view the figures and use the buttons; "inspect" also lets the user inspect caches with the option
            ``inspect``; "view_figures" lets the user view the figures. A response, such as a redirect to the login, is
            sent instead; the guard may also abort. Any other return value results in a 403, and is logged unless it is
            False or None.
        name: the name of the blueprint, and the prefix of its endpoints.
        user: called in the same way when a button is pressed, and returns the name of the user for the recent events.
            Without it, this is the user name of HTTP authentication, or the address that the request comes from.

    Raises:
        TypeError: if ``guard`` or ``user`` cannot be called.
    """
    if user is not None and not callable(user):
        raise TypeError(f"user must be a function that returns the name of the user, not {user!r}")
    if not callable(guard):
        raise TypeError(f"guard must be a function that returns True for users that may see the caches, not {guard!r}")
    blueprint = Blueprint(name, __name__, url_prefix="/wheelcache")

    @blueprint.before_request
    def let_in() -> AnyResponse | None:
        verdict = current_app.ensure_sync(guard)()
        if isinstance(verdict, AnyResponse):
            return verdict
        permission = granted_by(verdict)
        if permission is None:
            return _refused(REFUSED)
        g.wheelcache_user, g.wheelcache_permission = user, permission
        return None

    blueprint.add_url_rule("/", "page", _page)
    blueprint.add_url_rule("/figures.json", "figures", _figures)
    for each in ASSETS:
        blueprint.add_url_rule(f"/{each}", "asset", _asset, defaults={"name": each})
    blueprint.add_url_rule("/clear", "clear", _clear, methods=["POST"])
    blueprint.add_url_rule("/purge", "purge", _purge, methods=["POST"])
    blueprint.add_url_rule("/save", "save", _save, methods=["POST"])
    blueprint.add_url_rule("/reset", "reset", _reset, methods=["POST"])
    blueprint.add_url_rule("/inspect", "inspect", _inspect, methods=["POST"])
    blueprint.add_url_rule("/answers", "answers", _answers, methods=["POST"])
    return blueprint


def _page() -> Response:
    wtf = _flask_wtf()
    if wtf is not None:
        return _page_with(current_app.config["WTF_CSRF_HEADERS"][0], wtf.generate_csrf())
    # All tabs of a browser share one token.
    token = request.cookies.get(COOKIE, "")
    if not TOKEN.fullmatch(token):
        token = secrets.token_urlsafe(32)
    response = _page_with(HEADER, token)
    # Without a path, the cookie is for the folder of the page in the browser, which a proxy may have shortened here.
    response.set_cookie(COOKIE, token, path=None, secure=request.is_secure, httponly=True, samesite="Strict")
    return response


def _page_with(token_header: str, token: str) -> Response:
    page = _dashboard().page(token_header, token, g.wheelcache_permission, _home())
    return _sent(Response(page, mimetype="text/html"))


def _home() -> str:
    """Return the address of the site's first page, which may be below a path."""
    return f"{request.script_root}/"


def _figures() -> Response:
    details = request.args.getlist("details") if "details" in request.args else None
    return _answer(lambda: _dashboard().figures(details, request.args.get("span", "hour")))


def _asset(name: str) -> Response:
    return _sent(Response(asset(name), mimetype=ASSETS[name]))


def _clear() -> Response:
    return _done(_dashboard().clear, "The cache %(cache)r was cleared from the dashboard")


def _purge() -> Response:
    target = request.form.get("target", "")
    to_log = "Pages of the cache %(cache)r were purged from the dashboard"
    return _done(lambda name, by: _dashboard().purge(name, target, by), to_log)


def _save() -> Response:
    return _done(_dashboard().save, "The cache %(cache)r was saved from the dashboard")


def _reset() -> Response:
    return _done(lambda name, by: _dashboard().reset(by), "The figures of the dashboard were reset")


def _inspect() -> Response:
    target = Target.of(request.form)
    to_log = f"The dashboard {target.verb} the cache %(cache)r"
    return _done(lambda name, by: _dashboard().inspect(name, target, by), to_log, Permission.INSPECT)


def _answers() -> Response:
    token = request.form.get("token", "")
    return _refusal(Permission.INSPECT) or _answer(lambda: _dashboard().answers(token))


def _done(act: Callable[[str, str], Any], to_log: str, needed: Permission = Permission.OPERATE) -> Response:
    """Call ``act(cache, user)`` for a button of the page, and log it."""
    refusal = _refusal(needed)
    if refusal is not None:
        return refusal
    name, by = request.form.get("cache", ""), _user()
    response = _answer(lambda: act(name, by))
    if response.status_code == 200:
        logger.info(to_log, {"cache": name})
    return response


def _refusal(needed: Permission) -> Response | None:
    """Return the response to a request for an action by a user without the permission, or from another page."""
    if not g.wheelcache_permission.includes(needed):
        return _refused(LACKING[needed])
    return _refused("This page is older than your login, reload it") if _is_forged() else None


def _user() -> str:
    user = g.wheelcache_user
    if user is not None:
        return str(current_app.ensure_sync(user)())
    authorization = request.authorization
    named = request.remote_user or (authorization and authorization.username)
    return named or f"the dashboard, from {request.remote_addr}"


def _is_forged() -> bool:
    """Return whether a request does not come from the page that was sent to this browser."""
    if not _comes_from_here():
        return True
    wtf = _flask_wtf()
    if wtf is None:
        token, given = request.cookies.get(COOKIE, ""), request.headers.get(HEADER, "")
        return not token or not compare_digest(token.encode(), given.encode())
    try:
        # Check even if the app has switched off the check of every request.
        wtf.validate_csrf(request.headers.get(current_app.config["WTF_CSRF_HEADERS"][0]))
    except wtf.ValidationError:
        return True
    return False


def _comes_from_here() -> bool:
    """Return False if a header names another origin. Schemes are not compared, since a proxy may terminate TLS."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        # The browser compares with the address that it shows, even behind a proxy.
        return site == "same-origin"
    origin = request.headers.get("Origin") or request.headers.get("Referer")
    try:
        return origin is None or urlsplit(origin).netloc == request.host
    except ValueError:
        return False


def _flask_wtf() -> Any:
    """Return the module of Flask-WTF if the app uses its ``CSRFProtect``, otherwise None."""
    if "csrf" not in current_app.extensions:
        return None
    try:
        from flask_wtf import csrf
    except ImportError:
        return None
    return csrf if isinstance(current_app.extensions["csrf"], csrf.CSRFProtect) else None


def _dashboard() -> Dashboard:
    # The title is the address of the site: the name of an app is often "app".
    return Dashboard(f"{request.host}{request.script_root}", caches_of_app, _settings_of, _may_be_inspected)


def caches_of_app() -> list[Cache]:
    """Return the caches of the app and of its pages, including those that have not been used."""
    pages = [each.cache for each in current_app.extensions.get(PAGES, ())]
    return [*(each.engine for each in _backends()), *pages]


def _settings_of(name: str) -> list[Setting]:
    """Return the settings of the cache ``name``."""
    return next((each.settings for each in _backends() if each.engine.name == name), [])


def _may_be_inspected(name: str) -> bool:
    """Return whether every backend with the cache ``name`` has the option ``inspect``, and there is one."""
    found = [is_inspectable(each.settings) for each in _backends() if each.engine.name == name]
    return any(found) and all(found)


def _backends() -> list[EngineBackend]:
    backends = current_app.extensions.get("cache", {}).values()
    if not backends:
        # Apps that only cache pages may not have Flask-Caching.
        return []
    from wheelcache.flask_backend.engine_backend import EngineBackend

    return [each for each in backends if isinstance(each, EngineBackend)]


def _answer(figures_or_message: Callable[[], Any]) -> Response:
    status, document = answer(figures_or_message)
    return _in_json(document, status)


def _refused(why: str) -> Response:
    if request.endpoint is None or request.endpoint.rpartition(".")[2] not in IN_JSON:
        # The app may have an error page of its own.
        abort(403)
    return _in_json({"error": why}, 403)


def _in_json(document: dict[str, Any], status: int) -> Response:
    response = jsonify(document)
    response.status_code = status
    return _sent(response)


def _sent(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response
