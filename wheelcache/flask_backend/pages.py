"""The HTTP cache in front of a Flask app, whose requests note the cookies and headers that its views read.

A page may depend on more than its ``Vary`` names: a view reads a cookie with the visitor's theme, or
``X-Forwarded-Host`` through ProxyFix. The app's requests therefore note which cookies and headers are read while a page
is made, and these become a part of the page's key. Pages that cannot be keyed, because they depend on the client's
address or on all cookies, are not stored. The cookie of the session is read for every page; Flask itself adds ``Vary:
Cookie`` to pages that use the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar, cast

from flask import Flask, Response, current_app, g, make_response, request
from werkzeug.datastructures import EnvironHeaders, ImmutableMultiDict
from werkzeug.wrappers import Request

from wheelcache import http_cache, options
from wheelcache.flask_backend.app_contexts import figures_directory
from wheelcache.http_cache.notes import SEAM, PageNotes
from wheelcache.http_cache.watched import WatchedCookies, WatchedEnviron, watched

SESSION: Final = "session"
"""The default name of Flask's session cookie."""

PAGES: Final = "wheelcache.pages"
"""The key of the HTTP caches of an app in its ``extensions``."""

View = TypeVar("View", bound=Callable[..., Any])


class HTTPCache(http_cache.HTTPCache):
    """A shared HTTP cache (RFC 9111) in front of a Flask app.

    >>> pages = HTTPCache(stale_while_revalidate=30)
    >>> pages.init_app(app)
    >>> @app.get("/news")
    ... @pages.cached(60)
    ... def news(): ...

    A view may also set ``response.cache_control`` itself.

    Args:
        options: those of ``wheelcache.http_cache.HTTPCache``. Pages with ``Vary: Cookie`` depend on the session and on
            the cookies that were read, unless ``cookies`` says otherwise. The default of ``figures_dir`` is the
            directory of the app, so the cache cannot be used before ``init_app``.
    """

    def __init__(
        self,
        name: str = "pages",
        *,
        cookies: Iterable[str] | None = (SESSION,),
        session_cookies: Iterable[str] = (SESSION,),
        **options: Any,
    ) -> None:
        self._sessions = frozenset(session_cookies)
        self._options = {
            "name": name,
            "cookies": cookies,
            "session_cookies": self._sessions,
            "companion": True,
            **options,
        }
        self._is_ready = False

    def init_app(self, app: Flask) -> None:
        """Put the cache in front of ``app``. Call it after other changes of ``app.wsgi_app``.

        Raises:
            ValueError: if ``session_cookies`` does not contain the cookie of the app's session.
            TypeError, ValueError, FileUnusable: (a RuntimeError) if an option is invalid.
        """
        session = app.config["SESSION_COOKIE_NAME"]
        if session not in self._sessions:
            raise ValueError(
                f"session_cookies must contain {session!r}, the SESSION_COOKIE_NAME of the app, not only "
                f"{sorted(self._sessions)!r}"
            )
        if not self._is_ready:
            super().__init__(**{"figures_dir": figures_directory(app), **self._options})
            self._is_ready = True
        app.extensions.setdefault(PAGES, []).append(self)
        app.request_class = type("WatchedRequest", (_Watched, app.request_class), {"_exempt": self._sessions})
        app.before_request_funcs.setdefault(None, []).insert(0, _offer_tags)
        app.after_request_funcs.setdefault(None, []).insert(0, _collect_tags)
        app.wsgi_app = self.wsgi(app.wsgi_app)  # type: ignore[method-assign]

    def cached(self, seconds: float) -> Callable[[View], View]:
        """Decorate a view, so that its responses may be stored for ``seconds`` by this cache and by browsers.

        A response that sets its own ``Cache-Control`` keeps it.
        """
        max_age = int(options.seconds("seconds", seconds))

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


def _collect_tags(response: Response) -> Response:
    """Collect the tags that a view has assigned."""
    notes = cast(_Watched, request)._notes
    if notes is not None and g.get("cache_tags", notes.tags) is not notes.tags:
        notes.tags.update(options.page_tags("g.cache_tags", g.cache_tags))
    return response


class _Watched(Request):
    """A request of an app behind the cache."""

    _exempt: frozenset[str]
    _notes: PageNotes | None = None

    def __init__(self, environ: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(environ, *args, **kwargs)
        notes = environ.get(SEAM)
        if notes is None:
            return
        # This call makes the notes complete. Later reads are added, including reads by a streamed body.
        notes.vary_on()
        self.cookies = _Cookies(self.cookies, notes, self._exempt)
        self.environ = WatchedEnviron(environ, notes)
        self.headers = EnvironHeaders(self.environ)
        self._notes = notes

    @property
    def remote_addr(self) -> str | None:
        """The address of the client. A page that depends on it is not stored."""
        if self._notes is not None:
            self._notes.refuse("client address")
        return self._remote_addr

    @remote_addr.setter
    def remote_addr(self, address: str | None) -> None:
        self._remote_addr = address


@watched(ImmutableMultiDict)
class _Cookies(WatchedCookies, ImmutableMultiDict[str, str]):  # type: ignore[misc]
    """The cookies of a request."""
