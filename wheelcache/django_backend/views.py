"""The views of the dashboard: for logged-in staff only.

Each decides by itself which users get in and which requests are forged, whatever middleware the site has; so the
site's own is told to leave both to them, and what is refused is refused in the same words, with the same headers,
everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import HttpHeaders
from django.middleware.csrf import get_token
from django.shortcuts import resolve_url
from django.urls import get_script_prefix
from django.views.decorators.csrf import csrf_exempt, csrf_protect, ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe

from wheelcache.django_backend.aliases import engines, settings_of
from wheelcache.observability.dashboard import dashboard as shared
from wheelcache.observability.dashboard.dashboard import ASSETS, HEADERS, Dashboard

logger = logging.getLogger("wheelcache")

View = Callable[..., HttpResponse]

Refusal = Callable[[HttpRequest, int], HttpResponse]
"""What to say to a request, and with which status: 401 without a login, 403 for another user's."""

WHY: Final = {401: "You have to log in", 403: "Only staff may see this"}


def _to_login(request: HttpRequest, status: int) -> HttpResponse:
    if status == 403:
        # Another login might not help, and would ask for it in circles. The site has a page for this.
        raise PermissionDenied(WHY[status])
    # What it imports needs the app whose users are asked for here.
    from django.contrib.auth.views import redirect_to_login

    return redirect_to_login(request.get_full_path(), resolve_url(settings.LOGIN_URL))


def _in_json(request: HttpRequest, status: int) -> HttpResponse:
    return JsonResponse({"error": WHY[status]}, status=status)


def _staff_only(refuse: Refusal) -> Callable[[View], View]:
    """Checks the user before anything else, and sees to the headers of every answer."""

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            user = _user(request)
            if not user.is_authenticated:
                response = refuse(request, 401)
            elif user.is_active and getattr(user, "is_staff", False):
                response = view(request, **kwargs)
            else:
                response = refuse(request, 403)
            for name, value in HEADERS.items():
                response.headers[name] = value
            return response

        # For LoginRequiredMiddleware, which would redirect what must not be.
        answer.login_required = False  # type: ignore[attr-defined]
        return answer

    return decorate


def _user(request: HttpRequest) -> Any:
    try:
        return request.user
    except AttributeError:
        raise ImproperlyConfigured(
            "The dashboard of wheelcache lets only staff in, and request.user is missing: put "
            "'django.contrib.auth.middleware.AuthenticationMiddleware' into MIDDLEWARE."
        ) from None


def _action(view: View) -> View:
    """A view that staff may post to, with the token of the page."""
    protected = csrf_protect(view)

    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        response = protected(request)
        if response.status_code == 403:
            # It is the only answer that says so, and in HTML.
            return JsonResponse({"error": "This page is older than your login, reload it"}, status=403)
        return response

    return csrf_exempt(_staff_only(_in_json)(require_POST(answer)))


@_staff_only(_to_login)
@require_safe
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    if not request.path.endswith("/"):
        raise ImproperlyConfigured(
            "What is beside the dashboard of wheelcache is found from its address, which has to end with a slash: "
            'path("wheelcache/", include("wheelcache.django_backend.urls")).'
        )
    header = HttpHeaders.parse_header_name(settings.CSRF_HEADER_NAME) or settings.CSRF_HEADER_NAME
    return HttpResponse(_dashboard(request).page(header, get_token(request), get_script_prefix()))


@_staff_only(_in_json)
@require_safe
def figures(request: HttpRequest) -> HttpResponse:
    details = request.GET.getlist("details") if "details" in request.GET else None
    return _answer(lambda: _dashboard(request).figures(details, request.GET.get("span", "hour")))


@_staff_only(_in_json)
@require_safe
def asset(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(shared.asset(name), content_type=f"{ASSETS[name]}; charset=utf-8")


@_action
def clear(request: HttpRequest) -> HttpResponse:
    return _done(request, _dashboard(request).clear, "%(user)r cleared the cache %(cache)r from the dashboard")


@_action
def save(request: HttpRequest) -> HttpResponse:
    return _done(request, _dashboard(request).save, "%(user)r had the cache %(cache)r saved from the dashboard")


@_action
def reset(request: HttpRequest) -> HttpResponse:
    dashboard = _dashboard(request)
    return _done(request, lambda name, by: dashboard.reset(by), "%(user)r reset the figures of the dashboard")


def _done(request: HttpRequest, act: Callable[[str, str], str], to_log: str) -> HttpResponse:
    """Have ``act(cache, user)`` do what a button of the page asks for, and log it."""
    name, by = request.POST.get("cache", ""), request.user.get_username()
    response = _answer(lambda: act(name, by))
    if response.status_code == 200:
        logger.info(to_log, {"user": by, "cache": name})
    return response


def _dashboard(request: HttpRequest) -> Dashboard:
    # As its users know the site: a settings module is often the same for staging and production.
    return Dashboard(f"{request.get_host()}{get_script_prefix().rstrip('/')}", engines, settings_of)


def _answer(figures_or_message: Callable[[], Any]) -> HttpResponse:
    status, document = shared.answer(figures_or_message)
    return JsonResponse(document, status=status)
