"""The HTTP cache in front of a Flask app, whose requests note the cookies and headers that its views read.

A page may depend on more than its ``Vary`` names: a view reads a cookie with the visitor's theme, or
``X-Forwarded-Host`` through ProxyFix. The app's requests therefore note which cookies and headers are read while a page
is made, and these become a part of the page's key. Pages that cannot be keyed, because they depend on the client's
address or on all cookies, are not stored. Flask reads the cookie of the session for every page. This read does not
count, since Flask adds ``Vary: Cookie`` to pages that use the session.

Werkzeug reads some parts when it makes the request object: the method, the scheme, the path, the script name and the
query, which are in the key of every page, and the addresses of the server and the client, which are watched. It also
reads the address of the server for requests that name no host. Such requests bypass the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from inspect import getattr_static, unwrap
from itertools import product
from types import FrameType
from typing import Any, Final, TypeVar, cast

from flask import Flask, Response, current_app, g, make_response, request, session
from werkzeug import wsgi
from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import HTTPException
from werkzeug.routing import map as routing
from werkzeug.sansio import request as sansio_request
from werkzeug.test import run_wsgi_app
from werkzeug.utils import cached_property
from werkzeug.wrappers import Request

from wheelcache.engine import options as checks
from wheelcache.flask_backend.app_contexts import figures_directory
from wheelcache.pages.http_cache import PageCache
from wheelcache.pages.inside import compare, noting_wsgi
from wheelcache.pages.notes import NOTES_KEY, UNEXPECTED, PageNotes
from wheelcache.pages.options import Options, checked_options, options_of_init
from wheelcache.pages.reads import record_writes, stop_recording
from wheelcache.pages.reasons import refusal
from wheelcache.pages.site import Site
from wheelcache.pages.watched import (
    Watch,
    WatchedAttribute,
    WatchedCookies,
    WatchedEnviron,
    WatchedParameters,
)

IN_SESSION: Final = refusal("csrf", "CSRF token of Flask-WTF in the session")
"""A page without it can be shared if a script fetches the token from a URL of its own."""

SESSION: Final = "session"
"""The default name of Flask's session cookie."""

ENDS: Final = frozenset([Flask.wsgi_app.__code__, Flask.dispatch_request.__code__])
"""The code that calls the app, and the code that calls a view."""

READ_BY_ROUTING: Final = ("HTTP_CONNECTION", "QUERY_STRING")
"""Entries of the environ that Werkzeug reads to find the view of a URL."""

LOOKS_FOR_HOST: Final = frozenset(
    product(("SERVER_NAME", "SERVER_PORT"), (wsgi.get_host.__module__, sansio_request.__name__))
)
"""The entries of the environ with the address of the server, and the modules of Werkzeug that read it for requests that
name no host."""

PASSING: Final = ("flask.app", "flask.ctx", "flask.helpers")
"""The modules of Flask that pass on the environ to functions of Werkzeug, and to functions that do not use it."""

PAGES: Final = "wheelcache.pages"
"""The key of the HTTP caches of an app in its ``extensions``."""

View = TypeVar("View", bound=Callable[..., Any])


class HTTPCache(PageCache):
    """A shared HTTP cache (RFC 9111) in front of a Flask app.

    >>> pages = HTTPCache(grace=30)
    >>> pages.init_app(app)
    >>> @app.get("/news")
    ... @pages.cached(60)
    ... def news(): ...

    A view may also set ``response.cache_control`` itself.

    Args:
        options: see ``wheelcache.pages.options.Options``. Pages with ``Vary: Cookie`` depend on the session and on the
            cookies that were read, unless ``cookies`` says otherwise. The default of ``figures_dir`` is the directory
            of the app, so the cache cannot be used before ``init_app``.

    Raises:
        TypeError, ValueError: if an option is unknown or invalid.
    """

    _site = Site(has_companion=True)

    @options_of_init(Options)
    def __init__(
        self,
        name: str = "pages",
        *,
        cookies: Iterable[str] | None = (SESSION,),
        session_cookies: Iterable[str] = (SESSION,),
        **options: Any,
    ) -> None:
        given = {"cookies": cookies, "session_cookies": session_cookies, **options}
        self.options = checked_options(Options, name, given)
        self._is_in_app_directory = "figures_dir" not in options
        self._is_ready = False

    def init_app(self, app: Flask) -> None:
        """Put the cache in front of ``app``. Call it before other changes of ``app.wsgi_app``.

        Then the key of a page is made from the request that the app sees: see ``pages.inside``.

        Raises:
            ValueError: if ``session_cookies`` does not contain the cookie of the app's session.
            FileUnusable: (a RuntimeError) if ``figures_dir`` cannot be used.
        """
        session = app.config["SESSION_COOKIE_NAME"]
        named = self.options.sessions.names
        if session.encode() not in named:
            raise ValueError(
                f"session_cookies must contain {session!r}, the SESSION_COOKIE_NAME of the app, not only "
                f"{sorted(map(bytes.decode, named))!r}"
            )
        if not self._is_ready:
            options = self.options
            if self._is_in_app_directory:
                options = replace(options, figures_dir=figures_directory(app))
            super().__init__(options, self._site)
            self._is_ready = True
        app.extensions.setdefault(PAGES, []).append(self)
        opens_session = unwrap(type(app.session_interface).open_session)
        own = {f"cookie {session}": opens_session.__globals__, **dict.fromkeys(READ_BY_ROUTING, vars(routing))}
        attributes: dict[str, Any] = {"_own": own}
        if self.options.ignore_reads_by:
            # Werkzeug caches them. A view would not read what code whose reads do not count has read before.
            found = [(name, getattr_static(app.request_class, name)) for name in ("access_route", "user_agent")]
            attributes |= {name: property(each.fget) for name, each in found if isinstance(each, cached_property)}
        app.request_class = type("WatchedRequest", (_Watched, app.request_class), attributes)
        app.before_request_funcs.setdefault(None, []).insert(0, _offer_tags)
        app.after_request_funcs.setdefault(None, []).insert(0, _collect_tags)
        app.wsgi_app = self.wsgi(noting_wsgi(app.wsgi_app))  # type: ignore[method-assign]

    def cached(self, seconds: float) -> Callable[[View], View]:
        """Decorate a view, so that its responses may be stored for ``seconds`` by this cache and by browsers.

        A response that sets its own ``Cache-Control`` keeps it.
        """
        max_age = int(checks.seconds("seconds", seconds))

        def decorate(view: View) -> View:
            @wraps(view)
            def decorated(*args: Any, **kwargs: Any) -> Any:
                response = make_response(current_app.ensure_sync(view)(*args, **kwargs))
                if "Cache-Control" not in response.headers:
                    response.cache_control.max_age = max_age
                return response

            return decorated  # type: ignore[return-value]

        return decorate


def _offer_tags() -> None:
    """Let views add tags to their page."""
    notes = cast(_Watched, request)._notes
    g.cache_tags = set() if notes is None else notes.tags
    # An earlier request of the thread may have ended with an exception.
    stop_recording()
    if notes is not None and notes.traces is not None:
        # Not the session itself: a look at it could add Vary.
        record_writes(notes.traces, getattr(current_app.session_interface, "session_class", None), Response, ENDS)


def _collect_tags(response: Response) -> Response:
    """Collect the tags that a view has assigned."""
    notes = cast(_Watched, request)._notes
    if notes is None:
        return response
    try:
        notes.view = request.endpoint
        notes.route = None if request.url_rule is None else request.url_rule.rule
        if notes.traces is not None:
            stop_recording()
        if notes.is_rerun:
            # A session on the server would lose messages that no visitor has seen.
            session.modified = False
        if "csrf_token" in g:
            # Flask-WTF keeps it there, and signs it into the session.
            notes.sets_cookie = IN_SESSION
        if g.get("cache_tags", notes.tags) is not notes.tags:
            notes.add_tags("g.cache_tags", g.cache_tags)
    except UNEXPECTED:
        notes.cannot_be_read()
    return response


class _Watch(Watch):
    harmless = LOOKS_FOR_HOST

    def is_exempt(self, reader: FrameType) -> bool:
        """Return whether Flask makes the response of an exception of Werkzeug, as a 404 or the redirect to a slash.

        It passes on the whole environ, of which these exceptions use nothing that is not in the key.
        """
        error = reader.f_locals.get("app") if reader.f_code is run_wsgi_app.__code__ else None
        is_of_werkzeug = type(error).__module__.startswith("werkzeug.")
        return isinstance(error, HTTPException) and error.response is None and is_of_werkzeug


class _FromEnviron:
    """An attribute that Werkzeug copies from the environ when it makes the request."""

    def __init__(self, entry: str) -> None:
        self._entry = entry

    def __get__(self, request: _Watched, owner: type[_Watched]) -> Any:
        if request._environ is not None:
            request._environ.note(self._entry)
        return request.__dict__[self._entry]

    def __set__(self, request: _Watched, value: Any) -> None:
        request.__dict__[self._entry] = value


class _Watched(Request):
    """A request of an app behind the cache."""

    _own: dict[str, dict[str, Any]]
    _notes: PageNotes | None = None
    _environ: WatchedEnviron | None = None

    remote_addr = _FromEnviron("REMOTE_ADDR")
    query_string = _FromEnviron("QUERY_STRING")
    server = _FromEnviron("SERVER_NAME")

    cookies = WatchedAttribute()
    args = WatchedAttribute()
    environ = WatchedAttribute()

    def __init__(self, environ: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(environ, *args, **kwargs)
        notes = environ.get(NOTES_KEY)
        if notes is None:
            return
        if not notes.ignored.is_loaded:
            notes.ignored.load()
        watch = _Watch(notes, ENDS, self._own, PASSING)
        if notes.given is not None:
            compare(watch, notes.given, environ)
        cookies = WatchedCookies(super().cookies, environ.get("HTTP_COOKIE", "").encode("latin-1"), watch)
        whole = WatchedEnviron(environ, watch)
        if notes.traces is not None:
            # Otherwise, the app gets the same exception if it reads them.
            with suppress(UnicodeDecodeError):
                self.args = WatchedParameters(self.args, notes.traces, watch).data
        # Without the attributes of the class, which are for the app.
        vars(self).update(cookies=cookies.copy(), environ=(copy := whole.copy()))
        self.headers = _Headers(copy)
        self._notes, self._environ = notes, whole


class _Headers(EnvironHeaders):
    """The headers of a request, whose environ is watched."""

    environ = WatchedAttribute()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvironHeaders) and vars(self)["environ"] is vars(other)["environ"]
