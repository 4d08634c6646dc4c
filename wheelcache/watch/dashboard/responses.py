"""Answer the requests to the dashboard, for both frameworks.

A framework routes the addresses in ``PATHS`` to one view. The view asks its guard for the permissions of the user,
translates the request into a ``Request``, and sends the ``Response`` of ``respond``. Everything else is decided here,
so that the frameworks cannot differ.

Forged requests: a page of another site can make the browser of an operator send requests with the operator's cookies or
password. Only POST requests change anything, and only the page's script sends them. They must have the header
``HEADER``, which forms cannot send. Scripts of other origins could send it only after a preflight, and no OPTIONS
request is granted. If the site itself grants such preflights, the second check still holds: the browser names the
origin of a request in ``Sec-Fetch-Site`` and ``Origin``, which no script can set. This needs no secret, so there is no
token, no cookie and no session, and a page that was open for days still works.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wheelcache.errors import FileUnusable
from wheelcache.pages.keys import NotPurgeable
from wheelcache.watch.dashboard.dashboard import ASSETS, Dashboard, asset
from wheelcache.watch.dashboard.inspection import Target
from wheelcache.watch.dashboard.one_cache import Wanted
from wheelcache.watch.dashboard.permissions import REFUSED, Permission, Permissions, refusal_of
from wheelcache.watch.dashboard.refusals import Refused

logger = logging.getLogger("wheelcache")

PAGE: Final = ""
FIGURES: Final = "figures.json"

_NEEDED: Final = {
    **dict.fromkeys(("clear", "purge"), Permission.OPERATE),
    **dict.fromkeys(("inspect", "answers"), Permission.INSPECT),
}
"""The actions, which are POST requests, and the permissions that their users need."""

PATHS: Final = (PAGE, FIGURES, *ASSETS, *_NEEDED)
"""The addresses of the dashboard, below a prefix that ends with a slash."""

HEADER: Final = "Wheelcache-Dashboard"
"""The header of every POST request, with any value. Its name is unusual, because sites often let scripts of all origins
send common ones, such as ``X-Requested-With``."""

HEADERS: Final = {
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every response."""

FORGED: Final = (
    "This request does not come from this page. If it does, the proxy in front of the site must pass on the Host header"
)


class Request(NamedTuple):
    """A request, as a framework has parsed it.

    Attributes:
        method: in capital letters.
        path: one of ``PATHS``.
        fields: returns the values of each field of the query of a GET request or of the form of a POST request. The
            form is parsed only if the request is permitted.
        header: returns the value of a header; None if it is missing.
        host: the host, with any port, at which the framework believes the site to be.
        home: the path of the site's home page.
        granted: the permissions of the user.
        user: returns the name of the user, for the recent events and the log.
    """

    method: str
    path: str
    fields: Callable[[], Mapping[str, Sequence[str]]]
    header: Callable[[str], str | None]
    host: str
    home: str
    granted: Permissions
    user: Callable[[], str]


class Response(NamedTuple):
    """A response: its status, all its headers, and its body, which the framework leaves out of an answer to HEAD."""

    status: int
    headers: dict[str, str]
    body: bytes


def respond(request: Request, dashboard: Dashboard) -> Response:
    """Return the response to a request."""
    if not request.granted:
        return refusal(403, REFUSED)
    allowed = ("POST",) if request.path in _NEEDED else ("GET", "HEAD")
    if request.method not in allowed:
        response = refusal(405, f"This address answers only {' and '.join(allowed)}")
        response.headers["Allow"] = ", ".join(allowed)
        return response
    if request.path in _NEEDED:
        return _action(request, dashboard)
    if request.path == PAGE:
        return _response("text/html; charset=utf-8", dashboard.page(request.granted, request.home).encode())
    if request.path == FIGURES:
        fields = request.fields()
        named, shows = fields.get("details"), Permission.INSPECT in request.granted
        return _outcome(lambda: dashboard.figures(named, Wanted.of(fields), shows_texts=shows))
    return _response(f"{ASSETS[request.path]}; charset=utf-8", asset(request.path))


def refusal(status: int, reason: str) -> Response:
    """Return the response to a request that is refused for a reason in words."""
    return _in_json({"error": reason}, status)


def _action(request: Request, dashboard: Dashboard) -> Response:
    lacking = refusal_of(request.granted, frozenset((_NEEDED[request.path],)))
    if lacking is not None:
        return refusal(403, lacking)
    if _is_forged(request):
        return refusal(403, FORGED)
    fields = request.fields()
    if request.path == "answers":
        return _outcome(lambda: dashboard.answers(_first(fields, "token")))
    target = Target(*(_first(fields, name) for name in Target._fields))
    if request.path == "inspect":
        lacking = refusal_of(request.granted, target.needed)
        if lacking is not None:
            return refusal(403, lacking)
    name, by = _first(fields, "cache"), request.user()
    act, done = {
        "clear": (lambda: dashboard.clear(name, by), f"cleared the cache {name!r}"),
        "purge": (lambda: dashboard.purge(name, _first(fields, "target"), by), f"purged pages of the cache {name!r}"),
        "inspect": (lambda: dashboard.inspect(name, target, by), f"{target.verb} the cache {name!r}"),
    }[request.path]
    response = _outcome(act)
    if response.status == 200:
        logger.info("%r %s from the dashboard", by, done)
    return response


def _is_forged(request: Request) -> bool:
    """Return whether a POST request comes from anywhere but the page.

    ``Sec-Fetch-Site`` is decisive, since the browser compares with the address that it shows, even behind a proxy that
    changes the host. Browsers omit it from plain HTTP, and old browsers from all requests. ``Origin`` must then name
    the host, in any scheme, since a proxy may terminate TLS. A program such as curl sends neither, and has no user
    whose cookies it could misuse.
    """
    if request.header(HEADER) is None:
        return True
    site = request.header("Sec-Fetch-Site")
    if site is not None:
        return site != "same-origin"
    return request.header("Origin") not in (None, f"https://{request.host}", f"http://{request.host}")


def _first(fields: Mapping[str, Sequence[str]], name: str) -> str:
    """Return the first value of a field, or an empty text. The frameworks differ in the value that they prefer."""
    return next(iter(fields.get(name, ())), "")


def _outcome(act: Callable[[], Any]) -> Response:
    """Return the response to a request for the figures or for an action, by what a method of ``Dashboard`` returns."""
    try:
        found = act()
    except Refused as error:
        return refusal(error.status, str(error))
    except NotPurgeable as error:
        return refusal(400, str(error))
    except (FileUnusable, OSError) as error:
        return refusal(503, str(error))
    return _in_json({"message": found} if isinstance(found, str) else found, 200)


def _in_json(document: Mapping[str, Any], status: int) -> Response:
    return _response("application/json", json.dumps(document).encode(), status)


def _response(content_type: str, body: bytes, status: int = 200) -> Response:
    return Response(status, {**HEADERS, "Content-Type": content_type}, body)
