"""Visitors who request the pages of a site, each with cookies of their own."""

from __future__ import annotations

import html
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx

from tests.sites.site import HOST, SLOW, Site

VISITORS = 30
LANGUAGES = ["en-US,en;q=0.9", "en-US,en;q=0.9", "de-DE,de;q=0.9,en;q=0.5"]

_LINK = re.compile(r"""<a\b[^>]*? href=["']([^"'#]+)""")
_FORM_TOKEN = re.compile(r"""name=["'](csrfmiddlewaretoken|nonce)["'][^>]*value=["']([^"']*)["']""")


@dataclass(frozen=True)
class Visit:
    """An answer to a visitor.

    Attributes:
        is_anonymous: whether the visitor has not logged in.
        cache_status: the header Cache-Status, or "".
        seconds: until the end of the body.
    """

    path: str
    is_anonymous: bool
    status: int
    body: str
    cache_status: str
    seconds: float

    @property
    def is_hit(self) -> bool:
        return "; hit" in self.cache_status


class Visitor:
    """A browser at the site of ``url``. Every third one prefers German, and every sixth one logs in."""

    def __init__(self, site: Site, url: str, number: int) -> None:
        self._client = httpx.Client(
            base_url=url,
            timeout=SLOW,
            headers={
                "Host": HOST,
                "User-Agent": f"Mozilla/5.0 (X11; Linux x86_64; rv:{100 + number}.0) Firefox/{100 + number}.0",
                "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                "Accept-Encoding": "gzip, deflate",
                "Accept-Language": LANGUAGES[number % len(LANGUAGES)],
            },
        )
        self._is_anonymous = number % 6 != 5
        if not self._is_anonymous:
            self._log_in(*site.log_in)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_) -> None:
        self._client.close()

    def visit(self, path: str) -> Visit:
        began = time.perf_counter()
        answer = self._client.get(path)
        seconds = time.perf_counter() - began
        status = answer.headers.get("Cache-Status", "")
        return Visit(path, self._is_anonymous, answer.status_code, answer.text, status, seconds)

    def _log_in(self, path: str, fields: dict[str, str]) -> None:
        tokens = dict(_FORM_TOKEN.findall(self._client.get(path).text))
        answer = self._client.post(path, data={**tokens, **fields}, headers={"Referer": f"http://{HOST}{path}"})
        assert answer.status_code == 302, f"no log-in at {path}: {answer.status_code}\n{answer.text[:2000]}"


def pages_of(site: Site, url: str, most: int) -> list[str]:
    """Return the paths of the pages that a visitor finds from the front page on, nearest first."""
    paths, pages, left_out = ["/"], [], re.compile(site.without)
    with Visitor(site, url, 0) as visitor:
        # The list grows on the way.
        for path in paths:
            answer = visitor.visit(path)
            if answer.status == 200:
                pages.append(path)
            if len(pages) == most:
                break
            for link in _LINK.findall(answer.body):
                target = urlsplit(urljoin(f"http://{HOST}{path}", html.unescape(link)))
                found = f"{target.path}?{target.query}" if target.query else target.path
                if target.hostname == HOST and not left_out.match(found) and found not in paths:
                    paths.append(found)
    return pages


def crawl(site: Site, pages: list[str], cached: str, plain: str | None = None) -> list[tuple[Visit, Visit | None]]:
    """Let visitors request all pages, each in an order of their own.

    Args:
        cached, plain: the URLs of the site with and without wheelcache. Each visitor asks both for each page.
    """
    return [pair for number in range(VISITORS) for pair in _visits(site, pages, cached, plain, number)]


def _visits(
    site: Site, pages: list[str], cached: str, plain: str | None, number: int
) -> Iterator[tuple[Visit, Visit | None]]:
    order = random.Random(number).sample(pages, len(pages))
    with Visitor(site, cached, number) as visitor, Visitor(site, plain or cached, number) as other:
        for path in order:
            yield visitor.visit(path), other.visit(path) if plain else None
