"""Requests the pages of a sitemap from the running site, so that its workers store them: ``wheelcache warm``.

Only URLs of the sitemap's own host are requested, and no redirect is followed. A sitemap with a document type, which
could declare entities of any size, is refused, and so is one that is longer than sitemaps.org allows. An index may list
sitemaps, but no other index.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from itertools import islice
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener
from xml.etree.ElementTree import ParseError, TreeBuilder, XMLParser, fromstring

from wheelcache.pages.local_requests import parts_of
from wheelcache.pages.why import headers_of
from wheelcache.watch.console import CommandFailed, Report
from wheelcache.watch.progress import progress

MOST_BYTES: Final = 50 << 20
"""The limit of sitemaps.org, before compression."""

TIMEOUT: Final = 60.0
GZIP: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31

SENT_BY_BROWSERS: Final = {"http": "gzip, deflate", "https": "gzip, deflate, br, zstd"}
"""Accept-Encoding. A page that is compressed for browsers is stored for other clients separately."""

KINDS: Final = ("url", "sitemap")

FAILURES: Final = (OSError, HTTPException, ValueError, ParseError, zlib.error)

_TTL: Final = re.compile(r"; ttl=-?\d+")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Refuse a redirect, which then raises an ``HTTPError`` with its status."""


class _NoEntities(TreeBuilder):
    def doctype(self, *args: Any) -> None:
        raise ValueError("it has a document type")


_open: Final = build_opener(_NoRedirects).open


def warm(target: str, header_lines: Iterable[str], concurrency: int, limit: int | None) -> Report:
    """Run the command. The document has ``pages``, their number, and ``results``, the numbers by result.

    Args:
        target: the URL of a sitemap or of a sitemap index.
        header_lines: headers to send, such as "Accept-Language: de".
        concurrency: the maximum number of requests at a time.
        limit: the maximum number of pages; None for no limit.

    Raises:
        CommandFailed: if a header is invalid, the sitemap cannot be read, or it has no page to request.
    """
    headers = headers_of(header_lines)
    try:
        host = parts_of(target).netloc
        urls = list(dict.fromkeys(islice(_pages(target, host, headers), limit)))
    except FAILURES as error:
        raise CommandFailed(f"The sitemap {target} cannot be read: {error}.") from None
    if not urls:
        raise CommandFailed(
            f"The sitemap {target} has no page of {host}, and only pages of its own host are requested."
        )
    with ThreadPoolExecutor(concurrency) as pool:
        try:
            answers = pool.map(partial(_result, headers=headers), urls)
            results = Counter(progress(answers, "Pages", len(urls)))
        except BaseException:
            # Otherwise, Ctrl-C would wait for all pages.
            pool.shutdown(cancel_futures=True)
            raise
    lines = [f"{number:8,}  {result}" for result, number in results.most_common()]
    hint = (
        "Each worker process of the site has its own pages: only the workers that answered have stored these. Run the "
        "command again for the others, or call warm() of the application at the start of each worker."
    )
    view = [f"Requested {len(urls):,} pages. Their status and Cache-Status:", *lines, hint]
    return Report({"pages": len(urls), "results": dict(results.most_common())}, view)


def _pages(sitemap: str, host: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the URLs of a sitemap, or of the sitemaps of an index, that are on ``host``."""
    pages, sitemaps = _parsed(_fetch(sitemap, headers), host)
    yield from pages
    for each in sitemaps:
        yield from _parsed(_fetch(each, headers), host)[0]


def _parsed(xml: bytes, host: str) -> list[list[str]]:
    """Return the URLs of the pages and of the sitemaps that a sitemap lists, those on ``host``."""
    # The parser refuses entities.
    root = fromstring(xml, XMLParser(target=_NoEntities()))  # noqa: S314
    listed = [[(each.text or "").strip() for each in root.iterfind(f"{{*}}{kind}/{{*}}loc")] for kind in KINDS]
    return [[url for url in urls if _host(url) == host] for urls in listed]


def _host(url: str) -> str | None:
    with suppress(ValueError):
        return parts_of(url).netloc
    return None


def _fetch(url: str, headers: Mapping[str, str]) -> bytes:
    with _request(url, headers, "gzip") as response:
        data: bytes = response.read(MOST_BYTES + 1)
    if data.startswith(GZIP):
        data = zlib.decompressobj(GZIP_WINDOW).decompress(data, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{url} is longer than {MOST_BYTES >> 20} MiB")
    return data


def _result(url: str, headers: Mapping[str, str]) -> str:
    """Request a page. Return the status and Cache-Status in words."""
    try:
        with _request(url, headers) as response:
            while response.read(1 << 16):
                pass
    except HTTPError as error:
        response = error
        error.close()
    except FAILURES as error:
        return f"no answer: {error}"
    status = response.headers.get("Cache-Status")
    return f"{response.status}  {'no Cache-Status' if status is None else _TTL.sub('', status)}"


def _request(url: str, headers: Mapping[str, str], encoding: str | None = None) -> Any:
    parts = parts_of(url)
    sent = {"Accept-Encoding": encoding or SENT_BY_BROWSERS[parts.scheme], **headers}
    # ``parts_of`` accepts only http and https.
    return _open(Request(parts.geturl(), headers=sent), timeout=TIMEOUT)  # noqa: S310
