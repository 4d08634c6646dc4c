"""Pages that a process requests from its own application before its visitors do."""

import asyncio

from tests.pages.site import Response

URL = "http://example.com"


def warm(site, *args, **options):
    app = site.cache.wsgi(site.application) if hasattr(site, "environ") else site.cache.asgi(site.application)
    stored = app.warm(*args, **options)
    return asyncio.run(stored) if asyncio.iscoroutine(stored) else stored


def test_warmed_pages_are_those_that_visitors_get(site):
    site.respond = lambda request: Response(headers={"cache-control": "max-age=60", "vary": "accept-encoding"})
    headers = {"Accept-Encoding": "gzip", "X-Forwarded-Proto": "https"}
    targets = ["/a", "/a%2Fb?x=1", "/caf%C3%A9", "/"]
    assert warm(site, [f"{URL}/a", f"{URL}/a%2Fb?x=1", f"{URL}/café", URL], headers=headers) == 4
    assert [site.get(target, headers).detail[:3] for target in targets] == ["hit"] * 4
    assert site.runs == 4
    assert warm(site, [f"{URL}/a"], headers=headers) == 1
    assert site.runs == 4


def test_pages_that_are_not_stored_do_not_count_and_exceptions_are_logged(site, caplog):
    def respond(request):
        if request.path == "/broken":
            raise ZeroDivisionError
        return Response(headers={} if request.path == "/now" else {"cache-control": "max-age=60"})

    site.respond = respond
    assert warm(site, [f"{URL}/broken", "/relative", "http:///a", f"{URL}/now", f"{URL}/a"]) == 1
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f"The page {url} is not warmed." for url in (f"{URL}/broken", "/relative", "http:///a")]


def test_warming_ends_in_time(site):
    assert warm(site, [f"{URL}/a"], seconds=0) == 0
    assert site.runs == 0
