"""Pages that a process requests before its visitors do, from its own application or with a sitemap."""

import asyncio
import gzip
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from tests.pages.site import Response
from tests.waiting import start
from wheelcache.pages import sitemaps
from wheelcache.pages.http_cache import HTTPCache
from wheelcache.watch.console import CommandFailed

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
    assert warm(site, [f"{URL}/broken", "/relative", f"{URL}/now", f"{URL}/a"]) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"The page {URL}/broken is not warmed.",
        "The page /relative is not warmed.",
    ]


def test_warming_ends_in_time(site):
    assert warm(site, [f"{URL}/a"], seconds=0) == 0
    assert site.runs == 0


# Sitemaps.


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def served(bodies):
    """Serve documents behind an HTTP cache. Yield the URL of the server, and a list of the requested paths."""
    paths = []

    def application(environ, start_response):
        paths.append(environ["PATH_INFO"])
        body = bodies.get(environ["PATH_INFO"])
        if body is None:
            start_response("302 Found", [("Location", "/elsewhere")])
            return []
        body = body.replace(b"HOST", environ["HTTP_HOST"].encode())
        start_response("200 OK", [("Cache-Control", "max-age=60")])
        return [gzip.compress(body) if environ["PATH_INFO"].endswith(".gz") else body]

    pages = HTTPCache()
    with make_server("127.0.0.1", 0, pages.wsgi(application), handler_class=Quiet) as server:
        thread = start(server.serve_forever, 0.01)
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
            thread.join()
            pages.cache.close()


def run(*args, concurrency=2, limit=None):
    report = sitemaps.warm(*args, [], concurrency, limit)
    return "".join(f"{line}\n" for line in report.view)


def sitemap(*locs, kind="url", root="urlset"):
    """A sitemap as an image sitemap has it."""
    image = "<image:image><image:loc>http://HOST/image</image:loc></image:image>"
    items = "".join(f"<{kind}><loc>\n{loc} </loc>{image}</{kind}>" for loc in locs)
    spaces = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/image"'
    return f"<?xml version='1.0'?><{root} {spaces}>{items}</{root}>".encode()


def test_an_index_and_compressed_sitemaps_are_read_and_only_urls_of_the_own_host_are_requested():
    index = sitemap("http://HOST/one.xml.gz", "http://other.example/two.xml", kind="sitemap", root="sitemapindex")
    others = ["http://other.example/", "file:///etc/passwd", "http://HOST.evil.example/", "ftp://HOST/x"]
    one = sitemap("http://HOST/a", "http://HOST/a", "http://HOST/b?x=1&amp;y=ü", "http://HOST/moved", *others)
    with served({"/index.xml": index, "/one.xml.gz": one, "/a": b"a", "/b": b"b"}) as (url, paths):
        shown = run(f"{url}/index.xml")
        assert sorted(paths) == ["/a", "/b", "/index.xml", "/moved", "/one.xml.gz"]
        assert "Requested 3 pages." in shown
        assert "       2  200  wheelcache; fwd=miss; stored\n" in shown
        assert '       1  302  wheelcache; fwd=miss; detail="no lifetime"\n' in shown
        assert "       2  200  wheelcache; hit\n" in run(f"{url}/index.xml")
        assert "Requested 1 pages." in run(f"{url}/index.xml", limit=1)
        document = sitemaps.warm(f"{url}/one.xml.gz", [], 1, 3).document
        assert document == {"pages": 2, "results": {"200  wheelcache; hit": 2}}


BOMB = b'<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc></url></urlset>'


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (BOMB, "cannot be read: it has a document type"),
        (b"<urlset><url>", "cannot be read: no element found"),
        (sitemap("http://other.example/"), "has no page of 127.0.0.1"),
        (None, "cannot be read: HTTP Error 302"),
    ],
)
def test_a_sitemap_that_cannot_be_used_is_refused(body, complaint):
    with served({"/sitemap.xml": body}) as (url, _), pytest.raises(CommandFailed, match=complaint):
        run(f"{url}/sitemap.xml")


@pytest.mark.parametrize("name", ["/sitemap.xml", "/sitemap.xml.gz"])
def test_an_oversized_sitemap_is_refused(name, monkeypatch):
    monkeypatch.setattr(sitemaps, "MOST_BYTES", 1 << 20)
    with served({name: b" " * (1 << 21)}) as (url, _), pytest.raises(CommandFailed, match="is longer than 1 MiB"):
        run(url + name)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "/sitemap.xml"])
def test_only_urls_of_http_are_read(target):
    with pytest.raises(CommandFailed, match="url must be a URL of http"):
        run(target)
