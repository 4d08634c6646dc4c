"""The views of a site whose pages have CSRF tokens, and of one that tries to leak them."""

import base64
from functools import partial
from itertools import count

from django.core.cache import cache
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware import csrf
from django.middleware.csrf import CsrfViewMiddleware, get_token, rotate_token
from django.template import engines
from django.urls import path
from django.utils.html import escapejs
from django.utils.safestring import mark_safe
from django.views.decorators.cache import cache_control, cache_page
from django.views.decorators.csrf import csrf_protect, ensure_csrf_cookie, requires_csrf_token

numbers = count()
for_a_minute = cache_control(max_age=60)

FORM = '<form method="post">{% csrf_token %}<input name="a"></form>'
LONG = "Enough text to be compressed. " * 20
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
DIGEST = "0af7" * 16


def rendered(request, text):
    template = engines["django"].from_string(text)
    return HttpResponse(template.render({"number": next(numbers)}, request))


def rendering(text):
    return lambda request: rendered(request, text)


def with_forms(number):
    """Return a view whose page has so many forms, and which accepts them."""
    text = "<p>page {{ number }}</p>" + FORM * number
    return lambda request: HttpResponse("accepted") if request.method == "POST" else rendered(request, text)


def showing(*reads):
    """Return a view whose page shows the token, and more."""
    return lambda request: HttpResponse(" ".join(str(read(request)) for read in [get_token, *reads]))


def fragment(escape, request):
    """Show the form that the first visitor has got."""
    kept = cache.get("fragment")
    if kept is None:
        kept = mark_safe(engines["django"].from_string(FORM).render({}, request))
        cache.set("fragment", kept)
    return HttpResponse(f"{escape(kept)} {next(numbers)}")


def fragment_of(escape):
    return partial(fragment, escape)


def streamed(request, text):
    async def async_body():
        yield text() if callable(text) else text

    def body():
        yield text() if callable(text) else text

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


def with_header(header):
    """Return a view whose response has the name and the value ``header(token, secret)``."""

    def view(request):
        token = get_token(request)
        name, value = header(token, request.META["CSRF_COOKIE"])
        return HttpResponse(token, headers={name: value})

    return view


def in_cookie(request):
    response = HttpResponse(token := get_token(request))
    response.set_cookie("XSRF-TOKEN", token)
    return response


def rotated(request):
    token = get_token(request)
    rotate_token(request)
    return HttpResponse(f"{token} {get_token(request)}")


def secret(request):
    """Return the secret. The first read does not count, and the next is not noticed."""
    meta = request.META
    meta.get("wsgi.multithread")
    return dict.get(meta, "CSRF_COOKIE")


def masked(secret):
    """Return a token of a secret without Django's function: each character is moved by that of the mask."""
    letters = csrf.CSRF_ALLOWED_CHARS
    return "b" * 32 + "".join(letters[(letters.index(each) + 1) % 62] for each in secret)


def for_other_caches(request):
    response = rendered(request, FORM)
    response["Expires"] = DATE
    response["Cache-Control"] = "private, no-cache, public, s-maxage=60, proxy-revalidate, must-revalidate"
    response["CDN-Cache-Control"] = response["Surrogate-Control"] = "max-age=60"
    return response


def found_secret(request):
    return HttpResponse(str(CsrfViewMiddleware(lambda request: None)._get_secret(request)))


SAFE = {
    "decorated": csrf_protect(showing()),
    "required": requires_csrf_token(showing()),
    "ensured": ensure_csrf_cookie(lambda request: HttpResponse(f"ensured {next(numbers)}")),
    "hundred": lambda request: HttpResponse(" ".join(get_token(request) for _ in range(100))),
}
"""Pages that are shared: each visitor has a token of the own secret."""

HOSTILE = {
    "stream": lambda request: streamed(request, partial(get_token, request)),
    "escaped": lambda request: HttpResponse("".join(f"\\u{ord(each):04x}" for each in get_token(request))),
    "base64": lambda request: HttpResponse(base64.b64encode(get_token(request).encode())),
    "unused": lambda request: HttpResponse(f"{get_token(request)[:0]}unused"),
    "rotated": rotated,
    "status": lambda request: HttpResponse(get_token(request), status=404),
    "hundred-and-one": lambda request: HttpResponse(" ".join(get_token(request) for _ in range(101))),
    # In a header.
    "in-header": with_header(lambda token, secret: ("X-Token", token)),
    "piece-in-header": with_header(lambda token, secret: ("X-Token", token[:16])),
    "secret-in-header": with_header(lambda token, secret: ("Link", f"</x?{secret}>")),
    "in-cookie": in_cookie,
    "in-reason": lambda request: HttpResponse(token := get_token(request), reason=f"OK {token}"),
    # The secret, and another form of the token, in addition to the token.
    "secret-in-body": showing(secret),
    "remasked": showing(lambda request: masked(secret(request))),
    **{
        name: lambda request, form=form: HttpResponse(f"{(token := get_token(request))} {form(token)}")
        for name, form in {
            "base64-too": lambda token: base64.b64encode(token.encode()).decode(),
            "reversed-too": lambda token: token[::-1],
            "hex-too": lambda token: token.encode().hex(),
            "base64-shifted-too": lambda token: base64.b64encode(b"ab" + token.encode()).decode(),
            "sliced-too": lambda token: token[:40],
            "last-piece-too": lambda token: token[48:],
        }.items()
    },
    # Reads of the secret.
    "reads-cookie": showing(lambda request: request.COOKIES.get("csrftoken")),
    "reads-cookie-only": lambda request: HttpResponse(str(request.COOKIES.get("csrftoken"))),
    "reads-entry": showing(lambda request: request.META["CSRF_COOKIE"]),
    "reads-entry-only": lambda request: HttpResponse(str(request.META.get("CSRF_COOKIE"))),
    "reads-header": showing(lambda request: request.META.get("HTTP_COOKIE")),
    "found-secret": found_secret,
    # The form of another visitor.
    "cache-page": cache_page(600)(rendering(FORM)),
    "fragment": fragment_of(str),
    "fragment-in-script": fragment_of(escapejs),
    "fragment-in-utf-16": lambda request: HttpResponse(fragment(str, request).content.decode(), charset="utf-16"),
    "fragment-in-a-stream": lambda request: streamed(request, fragment(str, request).content.decode() + "y" * 300),
}
"""By name. None of these pages may be stored, or show a visitor anything of another one."""

OTHERS = {
    **{f"forms/{number}": with_forms(number) for number in (0, 1, 10)},
    "long": rendering(FORM + LONG),
    "words": lambda request: HttpResponse(LONG),
    "comment": lambda request: HttpResponse("csrfmiddlewaretoken is the name of a field. " + "0af7" * 8),
    "digests": lambda request: HttpResponse(f"<i>{DIGEST}</i><code>csrfmiddlewaretoken</code><i>{DIGEST}</i>"),
    "styles": lambda request: HttpResponse("* {color: red}", content_type="text/css"),
    "headers-of-the-body": lambda request: HttpResponse(get_token(request), headers={"Last-Modified": DATE}),
}

urlpatterns = [
    *(path(name, for_a_minute(view)) for name, view in {**SAFE, **HOSTILE, **OTHERS}.items()),
    path("for-other-caches", for_other_caches),
    path("no-lifetime", rendering(FORM)),
    path("public", cache_control(public=True, s_maxage=60)(rendering(FORM))),
]
