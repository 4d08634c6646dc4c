"""The dashboard as a blueprint: ``app.register_blueprint(dashboard(guard))``.

Flask knows neither users nor forged requests. The app says which users get in, so there is no dashboard without a
guard. That a request comes from the page itself is told by a token, which the page has and a cookie that scripts cannot
read, and by what the browser says of where it comes from. Where the app has Flask-WTF's ``CSRFProtect``, the token is
its own, since it would let no other through.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, current_app, g, jsonify, request
from werkzeug.wrappers import Response as AnyResponse

from wheelcache.cache import Cache
from wheelcache.flask_backend.engine_backend import EngineBackend
from wheelcache.observability.dashboard.dashboard import ASSETS, HEADERS, Dashboard, answer, asset
from wheelcache.observability.dashboard.permissions import NOT_AN_OPERATOR, REFUSED, Permission, granted_by
from wheelcache.option_table import Setting

logger = logging.getLogger("wheelcache")

Guard = Callable[[], object]

HEADER: Final = "X-CSRFToken"
COOKIE: Final = "wheelcache_csrf"
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""One that is made here. Another could be one that no header takes."""

IN_JSON: Final = ("figures", "clear", "save", "reset")
"""The views that scripts ask, and that refuse in JSON."""


def dashboard(guard: Guard, *, name: str = "wheelcache", user: Callable[[], object] | None = None) -> Blueprint:
    """The dashboard of the caches of an app, at ``/wheelcache/`` unless ``register_blueprint`` is told otherwise.

    Args:
        guard: called without arguments before every request to the dashboard, within it, so that it may look at
            ``flask.request`` and ``session``; it may be a coroutine function. True or "operate" lets the user view
            the figures and use the buttons; "view_figures" lets the user view the figures. A response, such as a
            redirect to the login, is sent instead; the guard may also abort. Any other return value results in a 403,
            and is logged unless it is False or None.
        name: of the blueprint, and so of its endpoints.
        user: called as ``guard`` is, when a button is pressed: the name of the user for the recent events. Without it,
            the name is that of HTTP authentication, or the address that the request comes from.

    Raises:
        TypeError: ``guard`` or ``user`` cannot be called.
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
    blueprint.add_url_rule("/save", "save", _save, methods=["POST"])
    blueprint.add_url_rule("/reset", "reset", _reset, methods=["POST"])
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
    page = _dashboard().page(token_header, token, _home(), may_operate=_may_operate())
    return _sent(Response(page, mimetype="text/html"))


def _home() -> str:
    """The first page of the site, which may be below a path."""
    return f"{request.script_root}/"


def _figures() -> Response:
    details = request.args.getlist("details") if "details" in request.args else None
    return _answer(lambda: _dashboard().figures(details, request.args.get("span", "hour")))


def _asset(name: str) -> Response:
    return _sent(Response(asset(name), mimetype=ASSETS[name]))


def _clear() -> Response:
    return _done(_dashboard().clear, "The cache %(cache)r was cleared from the dashboard")


def _save() -> Response:
    return _done(_dashboard().save, "The cache %(cache)r was saved from the dashboard")


def _reset() -> Response:
    return _done(lambda name, by: _dashboard().reset(by), "The figures of the dashboard were reset")


def _done(act: Callable[[str, str], str], to_log: str) -> Response:
    """Call ``act(cache, user)`` for a button of the page, and log it."""
    if not _may_operate():
        return _refused(NOT_AN_OPERATOR)
    if _is_forged():
        return _refused("This page is older than your login, reload it")
    name, by = request.form.get("cache", ""), _user()
    response = _answer(lambda: act(name, by))
    if response.status_code == 200:
        logger.info(to_log, {"cache": name})
    return response


def _may_operate() -> bool:
    return g.wheelcache_permission is Permission.OPERATE


def _user() -> str:
    user = g.wheelcache_user
    if user is not None:
        return str(current_app.ensure_sync(user)())
    authorization = request.authorization
    named = request.remote_user or (authorization and authorization.username)
    return named or f"the dashboard, from {request.remote_addr}"


def _is_forged() -> bool:
    """Whether a request does not come from the page that this browser was given."""
    if not _comes_from_here():
        return True
    wtf = _flask_wtf()
    if wtf is None:
        token, given = request.cookies.get(COOKIE, ""), request.headers.get(HEADER, "")
        return not token or not compare_digest(token.encode(), given.encode())
    try:
        # Whether or not the app has every request looked at.
        wtf.validate_csrf(request.headers.get(current_app.config["WTF_CSRF_HEADERS"][0]))
    except wtf.ValidationError:
        return True
    return False


def _comes_from_here() -> bool:
    """What the browser says of it, if it does. The schemes are not compared: a proxy may have taken the TLS off."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        # Of the address in the browser, whatever a proxy makes of it.
        return site == "same-origin"
    origin = request.headers.get("Origin") or request.headers.get("Referer")
    try:
        return origin is None or urlsplit(origin).netloc == request.host
    except ValueError:
        return False


def _flask_wtf() -> Any:
    """Flask-WTF's module, if the app uses its ``CSRFProtect``."""
    if "csrf" not in current_app.extensions:
        return None
    try:
        from flask_wtf import csrf
    except ImportError:
        return None
    return csrf if isinstance(current_app.extensions["csrf"], csrf.CSRFProtect) else None


def _dashboard() -> Dashboard:
    # As its users know the site: the name of an app is often "app".
    return Dashboard(f"{request.host}{request.script_root}", caches_of_app, _settings_of)


def caches_of_app() -> list[Cache]:
    """Those of the app, whether or not they were used before."""
    return [each.engine for each in _backends()]


def _settings_of(name: str) -> list[Setting]:
    """Those of the cache ``name``."""
    return next((each.settings for each in _backends() if each.engine.name == name), [])


def _backends() -> list[EngineBackend]:
    backends = current_app.extensions.get("cache", {}).values()
    return [each for each in backends if isinstance(each, EngineBackend)]


def _answer(figures_or_message: Callable[[], Any]) -> Response:
    status, document = answer(figures_or_message)
    return _in_json(document, status)


def _refused(why: str) -> Response:
    if request.endpoint is None or request.endpoint.rpartition(".")[2] not in IN_JSON:
        # In the words of the app.
        abort(403)
    return _in_json({"error": why}, 403)


def _in_json(document: dict[str, Any], status: int) -> Response:
    response = jsonify(document)
    response.status_code = status
    return _sent(response)


def _sent(response: Response) -> Response:
    response.headers.update(HEADERS)
    return response
