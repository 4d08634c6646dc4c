"""The views of a site whose pages have CSRF tokens, and of one that tries to leak them."""

import base64
import json
import threading
from itertools import count
from urllib.parse import quote

from django.core.cache import cache
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
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
DIGEST = "0af7" * 16
LONG = "Enough text to be compressed. " * 20


def rendered(request, text):
    template = engines["django"].from_string(text)
    return HttpResponse(template.render({"number": next(numbers)}, request))


def with_forms(number):
    """Return a view whose page has so many forms, and which accepts them."""
    text = "<p>page {{ number }}</p>" + FORM * number

    def view(request):
        return HttpResponse("accepted") if request.method == "POST" else rendered(request, text)

    return for_a_minute(view)


def in_a_thread(function, *args):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*args)))
    thread.start()
    thread.join()
    return found[0]


def fragment(request):
    """A form that an earlier run has made for another visitor."""
    kept = cache.get("fragment")
    if kept is None:
        kept = mark_safe(engines["django"].from_string(FORM).render({}, request))
        cache.set("fragment", kept)
        return HttpResponse(kept)
    return HttpResponse(f"{kept} {next(numbers)}")


def kept_fragment(request):
    """Return the form that the first visitor has got."""
    kept = cache.get("fragment")
    if kept is None:
        kept = engines["django"].from_string(FORM).render({}, request)
        cache.set("fragment", kept)
    return kept


def escaped_fragment(request, escape):
    return HttpResponse(f"{escape(kept_fragment(request))} {next(numbers)}")


def in_two_forms(request, other):
    token = get_token(request)
    return HttpResponse(f"{token} {other(token)}")


def with_header(request, header):
    token = get_token(request)
    response = HttpResponse(token)
    name, value = header(token)
    response[name] = value
    return response


def with_reason(request):
    token = get_token(request)
    return HttpResponse(token, reason=f"OK {token}")


def streamed(request, *texts):
    async def async_body():
        for each in texts:
            yield each

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else iter(texts))


def stream(request):
    def body():
        yield get_token(request)

    async def async_body():
        for each in body():
            yield each

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


def rotated(request):
    token = get_token(request)
    rotate_token(request)
    return HttpResponse(f"{token} {get_token(request)}")


def in_header(request):
    token = get_token(request)
    response = HttpResponse(token)
    response["X-Token"] = token
    return response


def secret_in_header(request):
    response = HttpResponse(get_token(request))
    response["Link"] = f"</x?{request.META['CSRF_COOKIE']}>"
    return response


def in_cookie(request):
    token = get_token(request)
    response = HttpResponse(token)
    response.set_cookie("XSRF-TOKEN", token)
    return response


def secret_in_body(request):
    token = get_token(request)
    return HttpResponse(f"{token} {request.META['CSRF_COOKIE']}")


def remasked(request):
    """Another token of the secret, made without Django's function."""
    token, meta = get_token(request), request.META
    # This read does not count, and the next is not noticed.
    meta.get("wsgi.multithread")
    return HttpResponse(f"{token} {'a' * 32}{dict.get(meta, 'CSRF_COOKIE')}")


def refused_status(request):
    return HttpResponse(get_token(request), status=404)


def for_other_caches(request):
    response = rendered(request, FORM)
    response["Expires"] = "Wed, 15 Nov 2033 22:13:20 GMT"
    response["Cache-Control"] = "private, no-cache, public, s-maxage=60, proxy-revalidate, must-revalidate"
    response["CDN-Cache-Control"] = response["Surrogate-Control"] = "max-age=60"
    return response


HOSTILE = {
    "thread": lambda request: HttpResponse(in_a_thread(get_token, request)),
    "thread-and-own": lambda request: HttpResponse(f"{get_token(request)} {in_a_thread(get_token, request)}"),
    "stream": stream,
    "json": lambda request: JsonResponse({"token": get_token(request)}),
    "escaped": lambda request: HttpResponse("".join(f"\\u{ord(each):04x}" for each in get_token(request))),
    "escaped-and-plain": lambda request: HttpResponse(
        f"{get_token(request)} " + "".join(f"&#{ord(each)};" for each in get_token(request))
    ),
    "base64": lambda request: HttpResponse(base64.b64encode(get_token(request).encode())),
    "split": lambda request: HttpResponse(json.dumps([get_token(request)[:32], get_token(request)[32:]])),
    "fragment": fragment,
    "rotated": rotated,
    "in-header": in_header,
    "secret-in-header": secret_in_header,
    "in-cookie": in_cookie,
    "secret-in-body": secret_in_body,
    "remasked": remasked,
    "status": refused_status,
    "unused": lambda request: HttpResponse(f"{get_token(request)[:0]}unused"),
    "reads-cookie": lambda request: HttpResponse(f"{get_token(request)} {request.COOKIES.get('csrftoken')}"),
    "reads-cookie-only": lambda request: HttpResponse(str(request.COOKIES.get("csrftoken"))),
    "reads-entry": lambda request: HttpResponse(f"{get_token(request)} {request.META['CSRF_COOKIE']}"),
    "reads-header": lambda request: HttpResponse(f"{get_token(request)} {request.META.get('HTTP_COOKIE')}"),
    "decorated": csrf_protect(lambda request: HttpResponse(get_token(request))),
    "required": requires_csrf_token(lambda request: HttpResponse(get_token(request))),
    "cache-page": cache_page(600)(lambda request: rendered(request, FORM)),
    "ensured": ensure_csrf_cookie(lambda request: HttpResponse(f"ensured {next(numbers)}")),
    "upper": lambda request: HttpResponse(get_token(request).swapcase()),
    "twice": lambda request: HttpResponse(f"{get_token(request)} {get_token(request)}"),
    "joined": lambda request: HttpResponse(get_token(request) + get_token(request)),
    "base64-too": lambda request: in_two_forms(request, lambda token: base64.b64encode(token.encode()).decode()),
    "halves-too": lambda request: in_two_forms(request, lambda token: f"{token[:32]} {token[32:]}"),
    "reversed-too": lambda request: in_two_forms(request, lambda token: token[::-1]),
    "hex-too": lambda request: in_two_forms(request, lambda token: token.encode().hex()),
    "sliced-too": lambda request: rendered(request, "{% csrf_token %}{{ csrf_token|slice:':40' }}"),
    "in-header-name": lambda request: with_header(request, lambda token: ("X-" + token, "1")),
    "in-reason": lambda request: with_reason(request),
    "fragment-in-script": lambda request: escaped_fragment(request, escapejs),
    "fragment-in-url": lambda request: escaped_fragment(request, quote),
    "fragment-with-tag": lambda request: escaped_fragment(
        request, lambda kept: kept.replace(" value=", ' data-x="a>b" value=')
    ),
    "fragment-in-utf-16": lambda request: HttpResponse(kept_fragment(request), charset="utf-16"),
    "fragment-in-a-stream": lambda request: streamed(request, kept_fragment(request) + "y" * 300),
    "secret-of-the-middleware": lambda request: HttpResponse(
        str(CsrfViewMiddleware(lambda request: None)._get_secret(request))
    ),
    "many": lambda request: HttpResponse(" ".join(get_token(request) for _ in range(101))),
    "attribute-first": lambda request: HttpResponse(f'<input value="{get_token(request)}" name="csrfmiddlewaretoken">'),
}
"""By name. Some of these pages may be stored; none may show a visitor anything of another one."""

urlpatterns = [
    *(path(name, for_a_minute(view)) for name, view in HOSTILE.items()),
    *(path(f"forms/{number}", with_forms(number)) for number in (0, 1, 10)),
    path("long", for_a_minute(lambda request: rendered(request, FORM + LONG))),
    path("words", for_a_minute(lambda request: HttpResponse(LONG))),
    path(
        "comment",
        for_a_minute(lambda request: HttpResponse("csrfmiddlewaretoken is the name of a field. " + "0af7" * 8)),
    ),
    path(
        "digests",
        for_a_minute(
            lambda request: HttpResponse(
                f"<i>{DIGEST}</i><code>csrfmiddlewaretoken</code><i>{DIGEST}</i> {next(numbers)}"
            )
        ),
    ),
    path("styles", for_a_minute(lambda request: HttpResponse("* {color: red}", content_type="text/css"))),
    path("for-other-caches", for_other_caches),
    path("no-lifetime", lambda request: rendered(request, FORM)),
    path("public", cache_control(public=True, s_maxage=60)(lambda request: rendered(request, FORM))),
]
