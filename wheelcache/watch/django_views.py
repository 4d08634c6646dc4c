"""The view of the dashboard, for users with its permissions and users that the guard of the site lets in.

The view needs no middleware, except the authentication if there is no guard. It refuses forged requests by itself: see
``responses``.
"""

from __future__ import annotations

from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import get_script_prefix
from django.views.decorators.csrf import csrf_exempt

from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.permissions import REFUSED, Permission, Permissions, granted_by
from wheelcache.watch.dashboard.responses import HEADERS, PAGE, Request, Response, refusal, respond
from wheelcache.watch.django_caches import caches_of_site, settings_of
from wheelcache.watch.django_guard import dashboard_guard

NOT_LOGGED_IN: Final = "You have to log in"


# Django's token would be a second scheme against forged requests, and its middleware would refuse requests without it.
@csrf_exempt
def answer(request: HttpRequest, path: str) -> HttpResponseBase:
    """Answer a request to ``path``, one of ``PATHS``."""
    granted = _permissions_or_response(request, path)
    if isinstance(granted, HttpResponseBase):
        return granted
    if not granted and path == PAGE:
        # Another login might not help and could redirect in circles. The site has its own page for a 403.
        raise PermissionDenied(REFUSED)
    if path == PAGE and not request.path.endswith("/"):
        raise ImproperlyConfigured(
            "The address of the dashboard of wheelcache must end with a slash, since its files are below it: "
            'path("wheelcache/", include("wheelcache.watch.urls")).'
        )
    host, home = request.get_host(), get_script_prefix()
    # The title is the address of the site: staging and production often share a settings module.
    dashboard = Dashboard(f"{host}{home.rstrip('/')}", caches_of_site, settings_of)
    return _sent(
        respond(
            Request(
                method=request.method or "",
                path=path,
                fields=lambda: dict((request.POST if request.method == "POST" else request.GET).lists()),
                header=request.headers.get,
                host=host,
                home=home,
                granted=granted,
                user=lambda: _user_name(request),
            ),
            dashboard,
        )
    )


# LoginRequiredMiddleware would redirect the requests that are answered in JSON.
answer.login_required = False  # type: ignore[attr-defined]


def _permissions_or_response(request: HttpRequest, path: str) -> Permissions | HttpResponseBase:
    """Return the permissions of the user, or the response with which the guard or the login answers the request."""
    guard = dashboard_guard()
    if guard is not None:
        verdict = async_to_sync(guard)(request) if iscoroutinefunction(guard) else guard(request)
        return verdict if isinstance(verdict, HttpResponseBase) else granted_by(verdict)
    user = _user(request)
    if user.is_authenticated:
        return frozenset(each for each in Permission if user.has_perm(f"wheelcache.{each}"))
    return _to_login(request) if path == PAGE else _sent(refusal(401, NOT_LOGGED_IN))


def _user(request: HttpRequest) -> Any:
    try:
        return request.user
    except AttributeError:
        raise ImproperlyConfigured(
            "The dashboard of wheelcache checks the permissions of request.user, which is missing: put "
            "'django.contrib.auth.middleware.AuthenticationMiddleware' into MIDDLEWARE, or set "
            "WHEELCACHE_DASHBOARD_GUARD to a function that decides instead."
        ) from None


def _user_name(request: HttpRequest) -> str:
    """Return the name of the user for the recent events. Sites with a guard may have other users, or none."""
    try:
        return str(request.user.get_username())
    except AttributeError:
        return f"the dashboard, from {request.META.get('REMOTE_ADDR')}"


def _to_login(request: HttpRequest) -> HttpResponse:
    # This imports the models of django.contrib.auth, which sites with a guard may not have.
    from django.contrib.auth.views import redirect_to_login

    response = redirect_to_login(request.get_full_path(), resolve_url(settings.LOGIN_URL))
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


def _sent(response: Response) -> HttpResponse:
    return HttpResponse(response.body, status=response.status, headers=response.headers)
