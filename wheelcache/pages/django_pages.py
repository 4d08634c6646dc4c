"""The HTTP cache in front of a Django site, and the middleware that reports the dependencies of a page.

An HTTP cache knows the request headers that a page's ``Vary`` names. A Django page depends on more: LocaleMiddleware
chooses the language by a cookie that no ``Vary`` names, a view reads a cookie with the visitor's theme, and URLs have
the host of ``X-Forwarded-Host``. ``PageMiddleware`` therefore watches which cookies, headers and other entries of
``request.META`` the page reads while it is made, and makes them a part of the page's key. Pages that cannot be keyed
are not stored. A hit runs none of this.

Django's own middleware reads the cookies of the session and of CSRF protection for every page. These reads do not
count, since Django reports whether the page depends on them, by ``Vary: Cookie``.

Before any middleware runs, Django has read the method, the path, the script name, the scheme, and ``Content-Type``,
with whose charset it decodes the query. They are in the key of every page. Under ASGI it has also copied the addresses
of the client and the server into ``request.META``, which is watched like ``request.scope``. Nothing watches the
receivers of ``request_started``, which run before that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from types import CodeType
from typing import Annotated, Any, Final, SupportsIndex, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.apps import apps
from django.conf import settings
from django.contrib.sessions import middleware as sessions
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import ImproperlyConfigured, RequestDataTooBig, TooManyFieldsSent
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.http.request import HttpHeaders
from django.http.response import HttpResponseBase
from django.middleware import common, csrf, gzip
from django.utils import timezone
from django.utils.cache import has_vary_header
from django.utils.translation import get_language

from wheelcache.cache import Cache
from wheelcache.django_backend.site_settings import figures_directory, use_release
from wheelcache.engine import options as checks
from wheelcache.pages.asgi import App as AsgiApp
from wheelcache.pages.asgi import AsgiCache
from wheelcache.pages.blanks import Blanked
from wheelcache.pages.csrf_tokens import FIELD, OUTSIDE, SETS_COOKIE, CsrfTokens, IssuedTokens, record_tokens
from wheelcache.pages.django_reruns import save_no_session
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.inside import compare, noting_asgi, noting_wsgi
from wheelcache.pages.notes import NOTES_KEY, UNEXPECTED, PageNotes
from wheelcache.pages.options import Options, checked_options, options_of_function
from wheelcache.pages.reads import Reads, record_writes, stop_recording
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.site import Site
from wheelcache.pages.watched import (
    Copy,
    Watch,
    WatchedAttribute,
    WatchedCookies,
    WatchedEnviron,
    WatchedParameters,
    WatchedPart,
)
from wheelcache.pages.wsgi import App as WsgiApp
from wheelcache.pages.wsgi import WsgiCache

IN_SESSION: Final = refusal("csrf", "CSRF token in the session (CSRF_USE_SESSIONS)")
WITH_TOKEN: Final = refusal("csrf", "contains a CSRF token")

COMPANION: Final = "wheelcache.django_backend.PageMiddleware"

ENDS: Final = frozenset(part for part in convert_exception_to_response.__code__.co_consts if isinstance(part, CodeType))
"""The two functions around each middleware and around the view, for sync and for async code."""

IN_THE_KEY: Final = frozenset(("type", "asgi", "method", "scheme", "path", "query_string", "root_path", NOTES_KEY))
"""Entries of a scope that are in the key of every page, or the same for all requests of a server. ``server`` is not: a
server may listen on an internal port, too. Nor is ``state``: an application in front of the cache may keep the visitor
in it."""

CSRF_COOKIE: Final = "CSRF_COOKIE"
"""The entry of META with the visitor's secret."""


class DjangoPages(PageCache):
    """The HTTP cache of a Django site, which ``page_cache`` makes."""

    def wsgi(self, app: WsgiApp) -> WsgiCache:
        return super().wsgi(noting_wsgi(app))

    def asgi(self, app: AsgiApp) -> AsgiCache:
        return super().asgi(noting_asgi(app))


@dataclass(frozen=True, slots=True)
class SiteOptions(Options):
    """The options of ``page_cache``.

    Args:
        csrf_tokens: whether pages with CSRF tokens are stored, with blanks, in which each hit has a token of its
            visitor. Such a page is private for browsers, and has no validators.
    """

    csrf_tokens: Annotated[bool, checks.flag] = True


@options_of_function(SiteOptions)
def page_cache(name: str = "pages", **options: Any) -> PageCache:
    """Return the HTTP cache of this site, for ``wsgi.py`` and ``asgi.py``.

    >>> application = page_cache(grace=30).wsgi(get_wsgi_application())

    Put other WSGI or ASGI middleware around the cache: see ``pages.inside``.

    A page depends on the cookies of the session and of CSRF protection if its ``Vary`` names ``Cookie``, and on each
    cookie that was read while it was made. Other cookies, such as those of analytics, make no variants of it.

    Args:
        options: those of ``Options`` and ``SiteOptions``.

    Raises:
        ImproperlyConfigured: if ``PageMiddleware`` is not the first of ``MIDDLEWARE``, or if ``session_cookies`` does
            not contain the cookie of Django's session.
        TypeError, ValueError: if an option is unknown or invalid. Code in ``ignore_reads_by`` is imported if Django's
            apps are loaded, otherwise at the first request.
    """
    return make_cache(Site(has_companion=True), name, options)


def make_cache(site: Site, name: str, given: Mapping[str, Any]) -> PageCache:
    """Make the HTTP cache of a site: see ``page_cache``."""
    first = next(iter(settings.MIDDLEWARE), None)
    if first != COMPANION:
        raise ImproperlyConfigured(
            f"MIDDLEWARE must begin with {COMPANION!r}, not with {first!r}, because an HTTP cache is in front of the "
            "site. Visitors would get pages in the language of others."
        )
    fills = checks.flag("csrf_tokens", given.get("csrf_tokens", True))
    fills = fills and not settings.CSRF_USE_SESSIONS and record_tokens()
    cookies = [settings.SESSION_COOKIE_NAME]
    if not fills:
        cookies.append(settings.CSRF_COOKIE_NAME)
    defaults = {
        "cookies": cookies,
        "session_cookies": [settings.SESSION_COOKIE_NAME],
        "figures_dir": figures_directory(),
    }
    options = checked_options(SiteOptions, name, {**defaults, **given})
    _check_cookies(options)
    use_release()
    if apps.ready:
        options.ignored.load()
    facts: dict[str, Any] = {
        "tokens": CsrfTokens() if fills else None,
        # LocaleMiddleware chooses the language by it.
        "value_cookies": frozenset([settings.LANGUAGE_COOKIE_NAME.encode()]),
    }
    return DjangoPages(options, replace(site, **facts))


def _check_cookies(options: Options) -> None:
    """Check the names of cookies in options against the settings of the site."""
    named = options.sessions.names
    if settings.SESSION_COOKIE_NAME.encode() not in named:
        raise ImproperlyConfigured(
            f"session_cookies must contain {settings.SESSION_COOKIE_NAME!r}, the SESSION_COOKIE_NAME of the site, not "
            f"only {sorted(map(bytes.decode, named))!r}"
        )
    lost = options.lost
    if lost is not None and settings.CSRF_COOKIE_NAME.encode() in lost.names:
        raise ImproperlyConfigured(
            f"without_cookies() in rules must not name the cookie of CSRF tokens: {settings.CSRF_COOKIE_NAME!r}"
        )


def cache_for_commands() -> list[Cache]:
    """Return, in a list, an unused cache with the default name and figures directory of the site's HTTP cache.

    Commands import no ``wsgi.py``, so their process has no HTTP cache. Through this one, they find the figures that the
    workers publish. The list is empty if the site has no HTTP cache.
    """
    return [page_cache().cache] if settings.MIDDLEWARE[:1] == [COMPANION] else []


class PageMiddleware:
    """Reports the dependencies of a page to the HTTP cache in front of the site. It must be the first middleware."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if hasattr(request, "page_notes"):
            # A view calls another handler with its request, which is watched already.
            return cast(HttpResponseBase, self._get_response(request))
        if self._is_async:
            return self._answer_async(request)
        watch = _begin(request)
        try:
            response: HttpResponseBase = self._get_response(watch.request)
        finally:
            # An exception gets here with DEBUG_PROPAGATE_EXCEPTIONS, and if a time limit or a signal handler raises it.
            watch.close()
        watch.end(response)
        return response

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        watch = _begin(request)
        try:
            response: HttpResponseBase = await self._get_response(watch.request)
        finally:
            watch.close()
        watch.end(response)
        return response


def _begin(request: HttpRequest) -> _Tagged:
    scope = getattr(request, "scope", None) or request.META
    notes = cast(PageNotes | None, scope.get(NOTES_KEY))
    return _Tagged(request, set()) if notes is None else _Watched(request, notes)


class _Tagged:
    """A request, with ``cache_tags``, and its response, whose Cache-Tag is not sent. The page is not stored.

    Attributes:
        request: the request for the code inside.
    """

    def __init__(self, request: HttpRequest, tags: set[str]) -> None:
        self.request = request
        request.cache_tags = tags  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the watch, also after an exception."""

    def end(self, response: HttpResponseBase) -> None:
        # No error if there is none.
        del response.headers["Cache-Tag"]


class _Watched(_Tagged):
    """A request whose page may be stored: its parts are watched, and its response."""

    def __init__(self, request: HttpRequest, notes: PageNotes) -> None:
        super().__init__(request, notes.tags)
        if not notes.ignored.is_loaded:
            notes.ignored.load()
        self._notes = notes
        # A thread keeps the language and the time zone of an earlier request if nothing deactivates them.
        self._language, self._zone = get_language(), timezone.get_current_timezone()
        watch = Watch(notes, ENDS, _own_reads())
        environ = request.META
        if notes.given is not None:
            _compare(watch, request, notes.given)
        self._meta = meta = _Meta(environ, watch)
        cookies = _Cookies(request.COOKIES, environ.get("HTTP_COOKIE", "").encode("latin-1"), watch)
        if notes.is_rerun:
            save_no_session()
        if notes.traces is not None:
            notes.middleware = settings.MIDDLEWARE
            record_writes(notes.traces, SessionBase, HttpResponseBase, ENDS)
            _watch_parameters(request, notes.traces, watch)
        request.COOKIES, request.META = cookies.copy(), meta.copy()
        request.headers = _Headers(meta)
        if hasattr(request, "environ"):
            request.environ = meta.copy()
        if hasattr(request, "scope"):
            request.scope = _Scope(request.scope, watch).copy()
        self.request = _watched_request(request, notes, meta.issued)
        if (environ.get("SCRIPT_URL") or environ.get("REDIRECT_URL")) and environ["SCRIPT_NAME"]:
            # Apache's mod_rewrite. Django derives the script name from this, and the key contains the earlier one.
            notes.refuse("script name", "script name from a rewritten URL")

    def close(self) -> None:
        if self._notes.traces is not None:
            stop_recording()

    def end(self, response: HttpResponseBase) -> None:
        self._meta.has_ended = True
        # This is the work of the application, also if the response cannot be read.
        self._meta.issued.compress(response)
        header = response.headers.get("Cache-Tag", "")
        super().end(response)
        try:
            self._notes.tags |= checks.cache_tags([header])
            given = self.request.cache_tags  # type: ignore[attr-defined]
            if given is not self._notes.tags:
                # A view has assigned them.
                self._notes.add_tags("request.cache_tags", given)
            self._read(response)
        except UNEXPECTED:
            self._notes.cannot_be_read()

    def _read(self, response: HttpResponseBase) -> None:
        """Refuse pages that depend on something that was not read from the request."""
        request, notes = self.request, self._notes
        if request.resolver_match is not None:
            found = request.resolver_match
            notes.view = found.view_name or found._func_path
            notes.route = found.route
        language, zone = get_language(), timezone.get_current_timezone()
        if language == self._language != settings.LANGUAGE_CODE and not _chooses_languages():
            notes.refuse("language", "language of an earlier request")
        is_kept = zone is self._zone is not timezone.get_default_timezone()
        if is_kept and timezone.get_current_timezone_name() != settings.TIME_ZONE:
            notes.refuse("time zone", "time zone of an earlier request")
        messages = getattr(request, "_messages", None)
        # A page that asked for messages and found none depends only on the cookie or the session.
        if messages is not None and messages.added_new:
            notes.refuse("messages", "adds messages")
        elif messages is not None and messages.used and len(messages):
            # Those of this visitor. The page of the next one may be stored.
            notes.refuse("messages", "shows messages", leaves_mark=False)
        varies = has_vary_header(response, "Cookie")
        if getattr(request, "_cache_update_cache", True) is False and response.has_header("Age") and varies:
            # cache_page has answered, without the Set-Cookie of the run that made the page. The page may contain the
            # CSRF token of the visitor of that run.
            notes.refuse("cache_page", "a page of cache_page with Vary: Cookie")
        self._blank(response)
        if response.streaming and hasattr(request, "session") and not varies:
            # The body may still read the session, and no Vary would name it.
            notes.refuse("streaming", "streamed, and may use the session")

    def _blank(self, response: HttpResponseBase) -> None:
        """Give the cache the response with blanks in place of its tokens, or keep it from being stored."""
        notes, meta = self._notes, self._meta
        notes.tokens, notes.token_cookies = meta.issued.tokens(), frozenset([settings.CSRF_COOKIE_NAME.encode()])
        outcome: Blanked | Refusal | None = None
        if notes.most_blanked is not None:
            outcome = meta.issued.blanked(response, meta.data, notes.most_blanked)
        elif meta.data.get(SETS_COOKIE):
            outcome = OUTSIDE
        elif meta.issued.asked and not settings.CSRF_USE_SESSIONS:
            outcome = WITH_TOKEN
        if meta.issued.asked and settings.CSRF_USE_SESSIONS:
            notes.sets_cookie = IN_SESSION
        if isinstance(outcome, Refusal):
            notes.refuse(outcome.reason, outcome.detail, leaves_mark=outcome.leaves_mark)
        else:
            notes.blanked = outcome


def _watch_parameters(request: HttpRequest, traces: Reads, watch: Watch) -> None:
    # Otherwise, the application gets the same exception if it reads them.
    with suppress(TooManyFieldsSent):
        request.GET = WatchedParameters(request.GET, traces, watch).data


def _compare(watch: Watch, request: HttpRequest, given: Mapping[str, Any]) -> None:
    """Compare a request with the one at the cache, whose environ or scope is ``given``."""
    scope = getattr(request, "scope", None)
    if scope is None:
        # Django has written the decoded path into META.
        compare(watch, WSGIRequest({**given}).META, request.META)
        return
    at_cache, scheme = ASGIRequest(given, BytesIO()).META, "wsgi.url_scheme"
    compare(
        watch,
        {**at_cache, scheme: given.get("scheme", "http")},
        {**request.META, scheme: scope.get("scheme", "http")},
    )
    try:
        has_body = request.body != b""
    except RequestDataTooBig:
        has_body = True
    if has_body:
        # The request at the cache has none.
        watch.refuse_changed("body")


def _chooses_languages() -> bool:
    """Return whether a middleware chooses the language of every request."""
    return "django.middleware.locale.LocaleMiddleware" in settings.MIDDLEWARE


def _own_reads() -> dict[str, dict[str, Any]]:
    """Return the parts of a request that Django's middleware reads for every page: see ``Watch``."""
    own = {
        f"cookie {settings.SESSION_COOKIE_NAME}": vars(sessions),
        f"cookie {settings.CSRF_COOKIE_NAME}": vars(csrf),
        CSRF_COOKIE: vars(csrf),
        SETS_COOKIE: vars(csrf),
    }
    if not settings.DISALLOWED_USER_AGENTS:
        # CommonMiddleware looks for agents that the site disallows, even if it disallows none.
        own["HTTP_USER_AGENT"] = vars(common)
    return own


class _WatchedRequest(HttpRequest):
    """A request for the code inside the companion. It shares its attributes with that of Django's handler.

    Attributes:
        page_notes: the notes of the page.
        issued_tokens: the tokens that Django has made for the request: see ``csrf_tokens``.
    """

    # No slots: some sites assign another class to their requests, which must have the same layout.
    issued_tokens: IssuedTokens
    page_notes: PageNotes

    META = WatchedAttribute()
    COOKIES = WatchedAttribute()
    GET = WatchedAttribute()
    environ = WatchedAttribute()
    scope = WatchedAttribute()

    def __copy__(self) -> _WatchedRequest:
        copy: _WatchedRequest = HttpRequest.__new__(type(self))
        copy.__dict__ = {**self._state()[1], "page_notes": self.page_notes, "issued_tokens": self.issued_tokens}
        return copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle it as a request of Django."""
        base, state = self._state()
        return HttpRequest.__new__, (base,), state

    def _state(self) -> tuple[Any, Any]:
        """Return the class of Django's request, and the state that it would copy."""
        classes: Any = type(self).__mro__
        base = next(each for each in classes if issubclass(each, HttpRequest) and not issubclass(each, _WatchedRequest))
        plain = HttpRequest.__new__(base)
        plain.__dict__ = {**self.__dict__}
        del plain.page_notes, plain.issued_tokens
        return base, plain.__getstate__()


def _watched_request(request: HttpRequest, notes: PageNotes, issued: IssuedTokens) -> _WatchedRequest:
    base: Any = type(request)
    watched: _WatchedRequest = HttpRequest.__new__(_class_of(base))
    watched.__dict__ = request.__dict__
    watched.page_notes, watched.issued_tokens = notes, issued
    return watched


@lru_cache
def _class_of(base: Any) -> Any:
    """Return the class for requests that Django's handler makes in the class ``base``."""
    return type(base.__name__, (_WatchedRequest, base), {"__module__": base.__module__})


class _MetaCopy(Copy):
    """A copy of META."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)  # type: ignore[misc]
        meta = self._part
        return meta.encoding(found) if name == "HTTP_ACCEPT_ENCODING" and isinstance(meta, _Meta) else found


class _Meta(WatchedEnviron):
    """The META of a request, which is also its environ under WSGI.

    Attributes:
        issued: the tokens that Django has made for this request: see ``csrf_tokens``.
        has_ended: whether the response has begun.
    """

    kind = _MetaCopy

    def __init__(self, data: dict[str, Any], watch: Watch) -> None:
        super().__init__(data, watch)
        self.issued = IssuedTokens()
        self.has_ended = False

    def note_written(self, items: Mapping[str, Any]) -> None:
        super().note_written(items)
        if items.get(SETS_COOKIE):
            self.issued.asked += 1
            if self.watch.notes.traces is not None:
                self.watch.counts("CSRF token")
            if self.has_ended:
                # A streamed body may do this. It is too late to send a Set-Cookie then.
                self.watch.notes.refuse("csrf", "CSRF token in a streamed body")

    def note(self, name: str) -> None:
        if name == CSRF_COOKIE and self.watch.reader(name) is not None:
            self.watch.refuse("csrf", name)
        else:
            super().note(name)

    def encoding(self, accepted: Any) -> Any:
        """Return the Accept-Encoding for its reader; "" for GZipMiddleware, if it must not compress the page yet."""
        if self.watch.notes.most_blanked is None or self.has_ended:
            return accepted
        reader = self.watch.reader("HTTP_ACCEPT_ENCODING")
        if reader is None or reader.f_globals is not vars(gzip) or not gzip.re_accepts_gzip.search(accepted or ""):
            return accepted
        response = reader.f_locals.get("response")
        if not self.issued.asked and FIELD not in getattr(response, "content", b""):
            return accepted
        # It compresses the page later, when its tokens have been found: see ``IssuedTokens.blanked``.
        self.issued.random_bytes = reader.f_locals["self"].max_random_bytes
        return ""


class _Cookies(WatchedCookies):
    """The cookies of a request."""

    def note(self, name: str) -> None:
        if name == settings.CSRF_COOKIE_NAME and self.watch.notes.most_blanked is not None:
            # No key contains it, and no stored page may contain it.
            self.watch.refuse("csrf", f"cookie {name}")
        else:
            super().note(name)


class _Headers(HttpHeaders):
    """The headers of a request, as ``request.headers`` shows them."""

    def __init__(self, meta: _Meta) -> None:
        super().__init__(meta.data)
        self._meta = meta

    def __getitem__(self, name: str) -> str:
        self._meta.note(self.to_wsgi_name(name))
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._meta.note_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._meta.note_all()
        return super().__len__()

    def __repr__(self) -> str:
        self._meta.note_all()
        return super().__repr__()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Copy and pickle it as headers of Django."""
        self._meta.note_all()
        # Without the streams of the server, which nobody can copy.
        return HttpHeaders, ({name: each for name, each in self._meta.data.items() if self.parse_header_name(name)},)


class _Scope(WatchedPart):
    """The scope of a request under ASGI."""

    whole, reason = "the whole scope", "environ"

    def note(self, name: str) -> None:
        if name not in IN_THE_KEY:
            self.watch.refuse("environ", f"scope[{name!r}]")
