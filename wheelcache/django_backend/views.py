"""The views of the dashboard, for users with its permissions and users that the guard of the site lets in.

Each view checks the permission and detects forged requests by itself, whatever middleware the site has. The site's own
middleware leaves both to the views, so every refusal has the same words and the same headers on every site.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import HttpHeaders
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import resolve_url
from django.urls import get_script_prefix
from django.views.decorators.csrf import csrf_exempt, csrf_protect, ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe

from wheelcache.django_backend.aliases import caches_of_site, may_be_inspected, settings_of
from wheelcache.django_backend.site_settings import dashboard_guard
from wheelcache.observability.dashboard import dashboard as shared
from wheelcache.observability.dashboard.dashboard import ASSETS, HEADERS, Dashboard
from wheelcache.observability.dashboard.inspection import Target
from wheelcache.observability.dashboard.permissions import LACKING, REFUSED, Permission, granted_by
from wheelcache.observability.dashboard.refusals import answer

logger = logging.getLogger("wheelcache")

View = Callable[..., HttpResponse]

Refusal = Callable[[HttpRequest, int], HttpResponse]
"""A function that makes the response to a refused request. Its status is 401 without a login, otherwise 403."""

WHY: Final = {401: "You have to log in", 403: REFUSED}


def _to_login(request: HttpRequest, status: int) -> HttpResponse:
    if status == 403:
        # Another login might not help and could redirect in circles. The site has its own page for a 403.
        raise PermissionDenied(WHY[status])
    # This imports the models of django.contrib.auth, which sites with a guard may not have.
    from django.contrib.auth.views import redirect_to_login

    return redirect_to_login(request.get_full_path(), resolve_url(settings.LOGIN_URL))


def _in_json(request: HttpRequest, status: int) -> HttpResponse:
    return JsonResponse({"error": WHY[status]}, status=status)


def _guarded(refuse: Refusal) -> Callable[[View], View]:
    """Return a decorator that checks the permission before anything else and sets the headers of every response."""

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            guard = dashboard_guard()
            if guard is None:
                verdict = _permission_of(_user(request))
            else:
                verdict = async_to_sync(guard)(request) if iscoroutinefunction(guard) else guard(request)
            if isinstance(verdict, HttpResponseBase):
                return verdict
            permission = granted_by(verdict)
            if permission is not None:
                request.wheelcache_permission = permission  # type: ignore[attr-defined]
                response = view(request, **kwargs)
            elif guard is None and not request.user.is_authenticated:
                response = refuse(request, 401)
            else:
                response = refuse(request, 403)
            for name, value in HEADERS.items():
                response.headers[name] = value
            return response

        # LoginRequiredMiddleware would redirect the requests that are answered in JSON.
        answer.login_required = False  # type: ignore[attr-defined]
        return answer

    return decorate


def _permission_of(user: Any) -> Permission | None:
    """Return the highest permission of a Django user; superusers have all."""
    if user.is_authenticated:
        for permission in reversed(Permission):
            if user.has_perm(f"wheelcache.{permission}"):
                return permission
    return None


def _user(request: HttpRequest) -> Any:
    try:
        return request.user
    except AttributeError:
        raise ImproperlyConfigured(
            "The dashboard of wheelcache checks the permissions of request.user, which is missing: put "
            "'django.contrib.auth.middleware.AuthenticationMiddleware' into MIDDLEWARE, or set "
            "WHEELCACHE_DASHBOARD_GUARD to a function that decides instead."
        ) from None


def _granted(request: HttpRequest) -> Permission:
    found: Permission = request.wheelcache_permission  # type: ignore[attr-defined]
    return found


def _action(view: View, needed: Permission = Permission.OPERATE) -> View:
    """Return ``view`` as a view that users with a permission may post to, with the token of the page."""
    protected = csrf_protect(view)

    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        if not _granted(request).includes(needed):
            return JsonResponse({"error": LACKING[needed]}, status=403)
        response = protected(request)
        if response.status_code == 403:
            # The view itself never returns a 403, so this is the HTML page of csrf_protect.
            return JsonResponse({"error": "This page is older than your login, reload it"}, status=403)
        return response

    return csrf_exempt(_guarded(_in_json)(require_POST(answer)))


@_guarded(_to_login)
@require_safe
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    if not request.path.endswith("/"):
        raise ImproperlyConfigured(
            "The address of the dashboard of wheelcache must end with a slash, since its files are below it: "
            'path("wheelcache/", include("wheelcache.django_backend.urls")).'
        )
    header = HttpHeaders.parse_header_name(settings.CSRF_HEADER_NAME) or settings.CSRF_HEADER_NAME
    return HttpResponse(_dashboard(request).page(header, get_token(request), _granted(request), get_script_prefix()))


@_guarded(_in_json)
@require_safe
def figures(request: HttpRequest) -> HttpResponse:
    details = request.GET.getlist("details") if "details" in request.GET else None
    return _answer(lambda: _dashboard(request).figures(details, request.GET.get("span", "hour")))


@_guarded(_in_json)
@require_safe
def asset(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(shared.asset(name), content_type=f"{ASSETS[name]}; charset=utf-8")


@_action
def clear(request: HttpRequest) -> HttpResponse:
    return _done(request, _dashboard(request).clear, "%(user)r cleared the cache %(cache)r from the dashboard")


@_action
def purge(request: HttpRequest) -> HttpResponse:
    target, dashboard = request.POST.get("target", ""), _dashboard(request)
    to_log = "%(user)r purged pages of the cache %(cache)r from the dashboard"
    return _done(request, lambda name, by: dashboard.purge(name, target, by), to_log)


@_action
def save(request: HttpRequest) -> HttpResponse:
    return _done(request, _dashboard(request).save, "%(user)r saved the cache %(cache)r from the dashboard")


@_action
def reset(request: HttpRequest) -> HttpResponse:
    dashboard = _dashboard(request)
    return _done(request, lambda name, by: dashboard.reset(by), "%(user)r reset the figures of the dashboard")


_inspection = partial(_action, needed=Permission.INSPECT)


@_inspection
def inspect(request: HttpRequest) -> HttpResponse:
    target, dashboard = Target.of(request.POST), _dashboard(request)
    to_log = f"%(user)r {target.verb} the cache %(cache)r from the dashboard"
    return _done(request, lambda name, by: dashboard.inspect(name, target, by), to_log)


@_inspection
def answers(request: HttpRequest) -> HttpResponse:
    return _answer(lambda: _dashboard(request).answers(request.POST.get("token", "")))


def _done(request: HttpRequest, act: Callable[[str, str], Any], to_log: str) -> HttpResponse:
    """Call ``act(cache, user)`` for a button of the page, and log it."""
    name, by = request.POST.get("cache", ""), _user_name(request)
    response = _answer(lambda: act(name, by))
    if response.status_code == 200:
        logger.info(to_log, {"user": by, "cache": name})
    return response


def _user_name(request: HttpRequest) -> str:
    """Return the name of the user for the recent events. Sites with a guard may have other users, or none."""
    try:
        return str(request.user.get_username())
    except AttributeError:
        return f"the dashboard, from {request.META.get('REMOTE_ADDR')}"


def _dashboard(request: HttpRequest) -> Dashboard:
    # The title is the address of the site: staging and production often share a settings module.
    return Dashboard(
        f"{request.get_host()}{get_script_prefix().rstrip('/')}", caches_of_site, settings_of, may_be_inspected
    )


def _answer(figures_or_message: Callable[[], Any]) -> HttpResponse:
    status, document = answer(figures_or_message)
    return JsonResponse(document, status=status)
