"""Why a response is not stored: a reason for the figures, with an advice, and a detail for Cache-Status."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

LONGEST_DETAIL: Final = 120
"""Characters. Visitors may choose a part of it, and it is kept with each mark."""


class Refusal(NamedTuple):
    """Why a response is not stored.

    Attributes:
        reason: the reason under which the figures count the response. There are few different ones.
        detail: what the visitor's developer tools show, such as "sets cookie x"; the reason if there is no more to say.
        leaves_mark: whether it holds for the next request for the page, too. A reason that holds only for requests such
            as this one leaves no mark: a stranger could otherwise keep a page from being stored for all.
        cookie: the name of a cookie; the mark is only for requests that have it. None if it is for all.
    """

    reason: str
    detail: str
    leaves_mark: bool = True
    cookie: bytes | None = None


def refusal(
    reason: str, detail: str | None = None, *, leaves_mark: bool = True, cookie: bytes | None = None
) -> Refusal:
    return Refusal(reason, (reason if detail is None else detail)[:LONGEST_DETAIL], leaves_mark, cookie)


class Reason(NamedTuple):
    """Why pages are not stored: for the figures, the command ``why`` and the documentation.

    Attributes:
        cause, advice: sentences that explain it, and that say what to change.
        details: the texts that Cache-Status shows, or an example if they are made of the response; empty for the reason
            itself.
    """

    cause: str
    advice: str
    details: tuple[str, ...]

    def advice_for(self, pattern: str, detail: str = "", kept: Collection[str] = ()) -> str:
        """Return the advice with real names in the rules that it names.

        Args:
            pattern: the pattern of a rule.
            detail: the detail of the refusal, which may name cookies.
            kept: the cookies that no rule may remove, such as those of sessions.
        """
        named = _COOKIES.search(detail)
        cookies = [] if named is None else (named[1] or named[2]).split(", ")
        is_left_out = not cookies or not {*cookies}.isdisjoint(kept)
        advice = _WITH_NAMES.sub("", self.advice) if is_left_out else self.advice
        advice = advice.replace("[(path, ", f"[({pattern!r}, ")
        return advice.replace("(names)", f"({', '.join(map(repr, cookies))})").replace("=names)", f"={cookies!r})")


def _reason(cause: str, advice: str, *details: str) -> Reason:
    return Reason(cause, advice, details)


_COOKIES: Final = re.compile(r"sets cookie (.+)|the cookie ([^ ,]+)")
"""Finds the names of cookies in a detail."""

_WITH_NAMES: Final = re.compile(r" If [^.]*?: rules=\[\(path, [^\]]*names\)*\]\.")
"""Finds the sentence that names cookies, before the path is in it."""

_READ_LESS: Final = (
    "Let the code that the command why names read single cookies or headers. If no page shows what it read, as with a "
    "log, name it in ignore_reads_by; a rehearsal then compares the pages."
)
_SEND_WHOLE: Final = "Return the body as a whole, or leave such responses to the server in front of the site."
_FOR_ALL: Final = (
    "Nothing if the page is for one visitor. If it is the same for all, and only browsers must not keep it, add "
    "CDN-Cache-Control: max-age=60."
)
_ONLY_GET: Final = "Nothing: only the complete response to a GET is stored."

REASONS: Final[Mapping[str, Reason]] = {
    "status": _reason(
        "Responses with this status are not stored, or only if they name a lifetime.",
        "Nothing. Only if a redirect is the same for all visitors, let it set Cache-Control: max-age=60.",
        "status 302",
    ),
    "error": _reason(
        "The application failed, or answered with a server error.",
        "Look at the log of the site, and correct the exception.",
        "the application failed",
        "error",
        "status 503",
    ),
    "no lifetime": _reason(
        "The response names no lifetime, such as Cache-Control: max-age=60.",
        "Let the view set Cache-Control: max-age=60, or add a rule: rules=[(path, ttl(60))].",
    ),
    "no-store": _reason("The response has Cache-Control: no-store.", _FOR_ALL),
    "private": _reason("The response has Cache-Control: private.", _FOR_ALL),
    "set-cookie": _reason(
        "The response sets a cookie.",
        "Let the code set it, or write to the session, only if something changes, or let a script or another URL do "
        "it. If visitors can do without the cookie on this page, and it is not that of the session: "
        "rules=[(path, without_cookies(names))].",
        "sets cookie theme",
    ),
    "authorization": _reason(
        "The request had an Authorization header, and the response does not say that it is public.",
        "Set Cache-Control: public if all users may see the page.",
    ),
    "vary": _reason(
        "The response has Vary: *, or varies on a header that only caches need, such as If-None-Match.",
        "Let Vary name the headers on which the page depends.",
        "Vary: *",
    ),
    "cors": _reason(
        "The response allows one origin, but does not have Vary: Origin.",
        "Add Origin to Vary, or allow all origins with *.",
        "Access-Control-Allow-Origin without Vary: Origin",
    ),
    "max_body": _reason("The body is larger than max_body.", "Raise the option max_body.", "longer than max_body"),
    "max_bytes": _reason(
        "The page does not fit into max_bytes.", "Raise the option max_bytes, which limits all pages together."
    ),
    "session": _reason(
        "The visitor had a session, and nothing shows that the page does not depend on it.",
        "Set Vary: Cookie if the page depends on the session; otherwise, it is only for visitors without one.",
        "has a session, so it keeps the cookies that a rule removes",
    ),
    "visitor": _reason(
        "The page depends on a cookie that the visitor has, and only a rule of the site gives it a lifetime.",
        "Nothing if the page shows the visitor's state. If the cookie is a mere value, such as a theme: "
        "rules=[(path, ttl(60, cookies=names))].",
        "depends on the cookie basket, which this visitor has; only a rule gives it a lifetime",
    ),
    "companion": _reason(
        "The application did not report on what the page depends: its middleware or extension is missing, or cannot "
        "read the response.",
        "Put PageMiddleware first in MIDDLEWARE (Django), or call PageNotes.vary_on. If the response cannot be read, "
        "the log of the site names the cause.",
        "the application reported no dependencies",
        "a response that cannot be read",
    ),
    "client address": _reason(
        "The application read the address of the visitor.",
        "If no page shows what the code read, as with a log, name the code in ignore_reads_by; a rehearsal then "
        "compares the pages. Otherwise, leave the page out: rules=[(path, bypass())].",
        "reads REMOTE_ADDR",
    ),
    "all cookies": _reason(
        "The application read all cookies together, or passed them to code that the cache cannot watch, or frameworks "
        "may read the Cookie header differently.",
        f"{_READ_LESS} If the header is unusual, nothing: few browsers send such headers.",
        "reads all cookies",
        "unusual Cookie header",
    ),
    "cookie": _reason(
        "The page contains the value of a cookie, of 8 characters or more, and its key does not contain the cookie, so "
        "the page may be for one visitor.",
        "Let the view read this cookie with request.COOKIES[name] (Django) or request.cookies[name] (Flask), or set "
        "Vary: Cookie. If the page contains the text by chance, nothing: a page that is made for a visitor without the "
        "cookie is stored.",
        "shows the value of the cookie name, on which it does not depend",
        "more than 64 cookies on which it does not depend",
    ),
    "all headers": _reason(
        "The application read all request headers together, or passed them to code that the cache cannot watch.",
        _READ_LESS,
        "reads all headers",
    ),
    "messages": _reason(
        "The page shows messages to the visitor, or adds some.",
        "Nothing: the next page without messages is stored.",
        "shows messages",
        "adds messages",
    ),
    "cache_page": _reason(
        "cache_page answered, perhaps with the CSRF token of another visitor.",
        "Replace cache_page on this view with cache_control(max_age=60).",
        "a page of cache_page with Vary: Cookie",
    ),
    "streaming": _reason(
        "The body is a stream that may still read the session.",
        "Return an HttpResponse instead of a StreamingHttpResponse, or set Vary: Cookie.",
        "streamed, and may use the session",
    ),
    "purged": _reason(
        "The page was purged while the application made it.", "Nothing: it was purged while the application made it."
    ),
    "clear-site-data": _reason(
        "The response has Clear-Site-Data, which is meant for one visitor.",
        "Nothing: such a response ends the visit, for example at a log-out.",
    ),
    "csrf": _reason(
        "The page has a CSRF token that the cache cannot replace with that of another visitor.",
        "Let {% csrf_token %} write each token into the page, and keep no form in another cache. If the token is in "
        "the session, let a script fetch it from a URL of its own. Inside the cache, compress with gzip only.",
        "a CSRF token that is not in the body as it is",
        "the CSRF secret, or another token of it, in the body",
        "the CSRF secret, or a token, in a header",
        "a CSRF token of another run in the body",
        "CSRF token in a streamed body",
        "a piece or another form of a CSRF token in the body",
        "an encoding in which CSRF tokens are not found",
        "a content coding in which CSRF tokens are not found",
        "too many CSRF tokens",
        "CSRF token in a body that is changed inside the cache",
        "CSRF token in a page that depends on the whole Cookie header",
        "a new CSRF secret, or a token that was made out of sight",
        "the CSRF secret changed",
        "the cookie of the CSRF token is not as Django sends it",
        "unusual cookie of the CSRF token",
        "CSRF token from outside of CsrfViewMiddleware",
        "contains a CSRF token",
        "CSRF token in the session (CSRF_USE_SESSIONS)",
        "CSRF token of Flask-WTF in the session",
        "reads CSRF_COOKIE",
        "reads cookie csrftoken",
    ),
    "unsafe request": _reason(
        "A request header is too long, has an unusual name or control characters, or is an unusual Accept-Encoding.",
        "Nothing for the site: the client sends this header.",
        "unsafe header in the request",
    ),
    "request": _reason(
        "The request had Cache-Control: no-store, or Authorization and a condition.",
        "Nothing for the site: the client sends this header.",
        "no-store in the request",
        "condition in the request",
    ),
    "overdue": _reason(
        "The application took too long for an earlier request, so later ones do not wait for each other.",
        "Make the page faster, or raise the option wait.",
        "the application took too long",
    ),
    "language": _reason(
        "The language did not come from the request, or an earlier request left it behind.",
        "Deactivate the language at the end of each request, or use LocaleMiddleware.",
        "language of an earlier request",
    ),
    "time zone": _reason(
        "The time zone did not come from the request, or an earlier request left it behind.",
        "Deactivate the time zone at the end of each request.",
        "time zone of an earlier request",
    ),
    "script name": _reason(
        "Apache's mod_rewrite has changed the URL.",
        "Set FORCE_SCRIPT_NAME instead of rewriting URLs in the server.",
        "script name from a rewritten URL",
    ),
    "environ": _reason(
        "The application read the whole environ or scope, or an unusual part of it.",
        f"{_READ_LESS} The same helps if all visitors have the same value, such as the port of the server.",
        "reads SERVER_PROTOCOL",
        "reads the whole scope",
    ),
    "changed inside": _reason(
        "The page depends on a part of the request that a middleware between the cache and the framework has changed.",
        "Put the cache directly around the framework's own application, and this middleware around the cache.",
        "changed by a middleware inside the cache: X-Country",
    ),
    "encoding": _reason(
        "The response has a content coding that the visitor does not accept, or frameworks may read the visitor's "
        "Accept-Encoding differently.",
        "Compress only with a coding that Accept-Encoding of the request names.",
        "Content-Encoding that the request does not accept",
        "unusual Accept-Encoding",
    ),
    "tags": _reason(
        "The page has too many tags, or invalid ones, which a log line names.",
        "Give the page at most 64 tags, none of them empty.",
        "more than 64 tags, or an invalid one",
    ),
    "content-length": _reason(
        "The body has another length than the response announced, or the announcement is invalid.",
        "Set one correct Content-Length, or none.",
        "content-length",
        "the body is shorter or longer than its Content-Length",
    ),
    "incomplete": _reason("The response ended too early.", "Send the response to its end.", "incomplete response"),
    "no response": _reason("The application did not start a response.", "Send a response."),
    "body": _reason("The request has a body.", _ONLY_GET, "request with a body"),
    "file": _reason("The server sends the body from a file.", _SEND_WHOLE, "sent with wsgi.file_wrapper"),
    "write": _reason(
        "The application sends the body with write().", _SEND_WHOLE, "sent with the write function of WSGI"
    ),
    "extension": _reason(
        "The application uses an extension of its server to send the response.",
        _SEND_WHOLE,
        "sent with an extension of ASGI",
    ),
    "trailers": _reason("The response has trailers.", _SEND_WHOLE, "has trailers"),
    "other": _reason(
        "The application gave another reason.",
        "Change the code of the application that calls PageNotes.refuse.",
        "a reason of the application",
    ),
}
"""The reasons why pages are not stored, as the figures of a site distinguish them."""

BYPASSING: Final[Mapping[str, Reason]] = {
    "method": _reason("The request is neither a GET nor a HEAD.", _ONLY_GET),
    "HEAD": _reason("The request is a HEAD, and no page is stored.", _ONLY_GET),
    "range": _reason("The request is for a part of a page that is not stored.", _ONLY_GET),
    "switched off": _reason(
        "An operator has switched the cache off.", "To switch it on, in all workers: wheelcache pages on."
    ),
    "rehearsal": _reason(
        "The cache rehearses: it stores pages and compares them with the answers, but serves none.",
        "Read the results of the rehearsal, then serve the pages: wheelcache pages on.",
        "rehearsal: a hit otherwise",
    ),
    "bypass": _reason(
        "The request bypasses the cache because of a rule of the site, its headers, its method or its URL.",
        "Nothing if the visitor's request is unusual. For a rule of the site, change the option rules.",
        "rule of the site",
        "long URL",
        "keeps the cookies that a rule removes",
        "no valid Host",
        "method in lower case",
        "request with a body",
        "upgrade",
        "expect",
        "if-match",
        "if-unmodified-since",
    ),
}
"""The reasons of requests that bypass the cache, which are not counted."""

MOST_REASONS: Final = 64
"""The number of reasons, including those that applications make up, that one process distinguishes."""
