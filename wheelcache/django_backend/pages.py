"""The HTTP cache in front of a Django site, and the middleware that reports the dependencies of a page.

An HTTP cache knows the request headers that a page's ``Vary`` names. A Django page depends on more: LocaleMiddleware
chooses the language by a cookie that no ``Vary`` names, a view reads a cookie with the visitor's theme, and URLs have
the host of ``X-Forwarded-Host``. ``PageMiddleware`` therefore watches which cookies, headers and other entries of
``request.META`` the page reads while it is made, and makes them a part of the page's key. Pages that cannot be keyed
are not stored. A hit runs none of this.

Two cookies are exempt, since every page reads them: the session cookie and the CSRF cookie. Django itself reports
whether a page depends on them, by ``Vary: Cookie``.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.request import HttpHeaders
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware
from django.utils import timezone
from django.utils.cache import has_vary_header
from django.utils.translation import get_language

from wheelcache import options
from wheelcache.cache import Cache
from wheelcache.django_backend.request_context import page_tags
from wheelcache.django_backend.site_settings import figures_directory
from wheelcache.http_cache import HTTPCache
from wheelcache.http_cache.headers import cache_tags
from wheelcache.http_cache.notes import SEAM, PageNotes
from wheelcache.http_cache.watched import WatchedCookies, WatchedEnviron, watched

COMPANION: Final = "wheelcache.django_backend.pages.PageMiddleware"
MODULES: Final = "wheelcache.django_backend.page"
"""The beginning of the names of both middlewares for pages."""


def page_cache(**options: Any) -> HTTPCache:
    """Return the HTTP cache of this site, for ``wsgi.py`` and ``asgi.py``.

    >>> application = page_cache(stale_while_revalidate=30).wsgi(get_wsgi_application())

    A page depends on the cookies of the session and of CSRF protection if its ``Vary`` names ``Cookie``, and on each
    cookie that was read while it was made. Other cookies, such as those of analytics, make no variants of it.

    Args:
        options: those of ``HTTPCache``.

    Raises:
        ImproperlyConfigured: if ``PageMiddleware`` is not the first of ``MIDDLEWARE``.
        TypeError, ValueError: see ``HTTPCache``.
    """
    check_first(COMPANION, "an HTTP cache is in front of the site. Visitors would get pages in the language of others")
    return cache_of_site(options)


def check_first(middleware: str, reason: str) -> None:
    """Check that ``middleware`` is the first of the site.

    Raises:
        ImproperlyConfigured: if it is not. The message states the reason.
    """
    first = next(iter(settings.MIDDLEWARE), None)
    if first != middleware:
        raise ImproperlyConfigured(f"MIDDLEWARE must begin with {middleware!r}, not with {first!r}, because {reason}.")


def cache_of_site(options: Mapping[str, Any]) -> HTTPCache:
    """Return an HTTP cache with the defaults of a Django site."""
    own = [settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME]
    return HTTPCache(
        **{
            "cookies": own,
            "session_cookies": [settings.SESSION_COOKIE_NAME],
            "companion": True,
            "figures_dir": figures_directory(),
            **options,
        }
    )


def stand_in() -> list[Cache]:
    """Return, in a list, an unused cache with the figures directory and the name of the workers' HTTP cache.

    Commands import no ``wsgi.py``, so their process has no HTTP cache. Through this one, they find the figures that the
    workers publish. The list is empty if the site has no HTTP cache.
    """
    if not next(iter(settings.MIDDLEWARE), "").startswith(MODULES):
        return []
    return [cache_of_site(getattr(settings, "WHEELCACHE_PAGES", {})).cache]


class PageMiddleware:
    """Reports the dependencies of a page to the HTTP cache in front of the site. It must be the first middleware."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        page_tags.are_used = True
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._answer_async(request)
        watch = _watch(request)
        try:
            response: HttpResponseBase = self._get_response(request)
        finally:
            # An exception gets here with DEBUG_PROPAGATE_EXCEPTIONS, and if a time limit or a signal handler raises it.
            page_tags.end(watch.begun)
        watch.end(response)
        return response

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        watch = _watch(request)
        try:
            response: HttpResponseBase = await self._get_response(request)
        finally:
            page_tags.end(watch.begun)
        watch.end(response)
        return response


def _watch(request: HttpRequest) -> _Tagged:
    scope = getattr(request, "scope", None) or request.META
    notes = cast(PageNotes | None, scope.get(SEAM))
    return _Tagged(request, set()) if notes is None else _Watch(request, notes)


class _Tagged:
    """A request, with ``cache_tags``, and its response, whose Cache-Tag is not sent. The page is not stored."""

    def __init__(self, request: HttpRequest, tags: set[str]) -> None:
        self._request = request
        self._tags = request.cache_tags = tags  # type: ignore[attr-defined]
        self.begun = page_tags.begin(request)

    def end(self, response: HttpResponseBase) -> None:
        given = self._request.cache_tags  # type: ignore[attr-defined]
        if given is not self._tags:
            # A view has assigned them.
            self._tags.update(options.tags("request.cache_tags", given))
        # Tags of a page that cache_page answered.
        self._tags |= getattr(response, "cache_tags", set())
        if "Cache-Tag" in response.headers:
            self._tags |= cache_tags([response.headers["Cache-Tag"]])
            del response.headers["Cache-Tag"]


class _Watch(_Tagged):
    """Watches a request whose page may be stored: the reads of its parts, and its response."""

    def __init__(self, request: HttpRequest, notes: PageNotes) -> None:
        super().__init__(request, notes.tags)
        self._notes = notes
        # A thread keeps the language and the time zone of an earlier request if nothing deactivates them.
        self._language, self._zone = get_language(), timezone.get_current_timezone_name()
        # This call makes the notes complete. Later reads are added, including reads by a streamed body.
        notes.vary_on()
        environ = request.META
        # Both are read for every page.
        exempt = (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME)
        request.COOKIES = _Cookies(request.COOKIES, notes, exempt)
        request.META = meta = _Meta(environ, notes)
        request.headers = _Headers(meta, environ, notes)
        if hasattr(request, "environ"):
            request.environ = meta
        if (environ.get("SCRIPT_URL") or environ.get("REDIRECT_URL")) and environ["SCRIPT_NAME"]:
            # Apache's mod_rewrite. Django derives the script name from this, and the key contains the earlier one.
            notes.refuse("script name")

    def end(self, response: HttpResponseBase) -> None:
        """Refuse pages that depend on something that was not read from the request."""
        super().end(response)
        request, notes = self._request, self._notes
        language, zone = get_language(), timezone.get_current_timezone_name()
        if language == self._language != settings.LANGUAGE_CODE and not _chooses_languages():
            notes.refuse("language")
        if zone == self._zone != settings.TIME_ZONE:
            notes.refuse("time zone")
        messages = getattr(request, "_messages", None)
        if messages is not None and (messages.used or messages.added_new):
            notes.refuse("messages")
        varies = has_vary_header(response, "Cookie")
        if getattr(request, "_cache_update_cache", True) is False and response.has_header("Age") and varies:
            # cache_page has answered, without the Set-Cookie of the run that made the page. The page may contain the
            # CSRF token of the visitor of that run.
            notes.refuse("cache_page")
        if response.streaming and hasattr(request, "session") and not varies:
            # The body may still read the session, and no Vary would name it.
            notes.refuse("streaming")


def _chooses_languages() -> bool:
    """Return whether a middleware chooses the language of every request."""
    return "django.middleware.locale.LocaleMiddleware" in settings.MIDDLEWARE


@watched(dict)
class _Cookies(WatchedCookies):
    """The cookies of a request."""


_FOR_DISALLOWED: Final = CommonMiddleware.process_request.__code__
"""This middleware reads the User-Agent of every request, even if the site disallows none."""


class _Meta(WatchedEnviron):
    """The META of a request, which is also its environ under WSGI."""

    def note(self, name: Any) -> None:
        is_for_nothing = (
            name == "HTTP_USER_AGENT"
            and not settings.DISALLOWED_USER_AGENTS
            and sys._getframe(2).f_code is _FOR_DISALLOWED
        )
        if not is_for_nothing:
            super().note(name)


class _Headers(HttpHeaders):
    """The headers of a request, as ``request.headers`` shows them."""

    def __init__(self, meta: _Meta, environ: dict[str, Any], notes: PageNotes) -> None:
        super().__init__(environ)
        self._meta = meta
        self._notes = notes

    def __getitem__(self, name: str) -> str:
        self._meta.note(self.to_wsgi_name(name))
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._notes.refuse("all headers")
        return super().__iter__()

    def __len__(self) -> int:
        self._notes.refuse("all headers")
        return super().__len__()

    def __repr__(self) -> str:
        self._notes.refuse("all headers")
        return super().__repr__()
