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

VISITORS = 60
KINDS = 6
"""Every third visitor prefers German, and the last of six logs in."""

_LINK = re.compile(r"""<a\b[^>]*? href=["']([^"'#]+)""")
_FORM_TOKEN = re.compile(r"""name=["'](csrfmiddlewaretoken|nonce)["'][^>]*value=["']([^"']*)["']""")


@dataclass(frozen=True)
class Visit:
    """An answer to a visitor.

    Attributes:
        kind: the number of the visitor, below ``KINDS``.
        body: without the text in which answers of the site itself differ.
        cache_status: the header Cache-Status, or "".
        seconds: until the end of the body.
    """

    path: str
    kind: int
    body: str
    cache_status: str
    seconds: float

    @property
    def is_anonymous(self) -> bool:
        return self.kind != KINDS - 1

    @property
    def is_hit(self) -> bool:
        return "; hit" in self.cache_status or "a hit otherwise" in self.cache_status


class Visitor:
    """A browser at the site of ``url``, with cookies of its own."""

    def __init__(self, site: Site, url: str, number: int) -> None:
        self._client = httpx.Client(
            base_url=url,
            timeout=SLOW,
            headers={
                "Host": HOST,
                "User-Agent": f"Mozilla/5.0 (X11; Linux x86_64; rv:{100 + number}.0) Firefox/{100 + number}.0",
                "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                "Accept-Encoding": "gzip, deflate",
                "Accept-Language": "de-DE,de;q=0.9,en;q=0.5" if number % 3 == 2 else "en-US,en;q=0.9",
            },
        )
        self._site, self._kind = site, number % KINDS
        if self._kind == KINDS - 1:
            self._log_in(*site.log_in)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_) -> None:
        self._client.close()

    def get(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def visit(self, path: str) -> Visit:
        began = time.perf_counter()
        answer = self.get(path)
        seconds = time.perf_counter() - began
        body = re.sub("|".join(self._site.varies), "(varies)", f"{answer.status_code}\n{answer.text}")
        return Visit(path, self._kind, body, answer.headers.get("Cache-Status", ""), seconds)

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
            answer = visitor.get(path)
            if answer.status_code == 200:
                pages.append(path)
            if len(pages) == most:
                break
            for link in _LINK.findall(answer.text):
                target = urlsplit(urljoin(f"http://{HOST}{path}", html.unescape(link)))
                found = f"{target.path}?{target.query}" if target.query else target.path
                if target.hostname == HOST and not left_out.match(found) and found not in paths:
                    paths.append(found)
    return pages


def crawl(site: Site, url: str, pages: list[str], visitors: int = VISITORS) -> list[Visit]:
    """Let visitors request all pages, each in an order of their own."""
    return [visit for number in range(visitors) for visit in _visits(site, url, pages, number)]


def _visits(site: Site, url: str, pages: list[str], number: int) -> Iterator[Visit]:
    with Visitor(site, url, number) as visitor:
        for path in random.Random(number).sample(pages, len(pages)):
            yield visitor.visit(path)
