"""Makes the keys of pages, which a cache finds in 0.04 us, and the names of the tags by which pages are purged.

A **key** has the scheme, the host, the script name, the query, the raw path where it matters, the path, and the request
headers from which applications build URLs, joined by a character that none of them contains: in WSGI and in ASGI's
bytes, every character is below U+0100. So no two requests for different pages have one key: ``/a%3Fb`` and ``/a?b``
differ, and a host is never part of a path. Long keys are replaced by a digest with a secret of the process, so that
strangers cannot fill the memory with them.

After decoding, a percent sign stands for itself. There is one exception: ``%2F`` decodes to a slash, so the key of a
path with ``%2F`` also contains the path as it was sent.

A **tag** must be the same for every spelling of a URL and in every process of the machine. Two URLs may share a tag
(``/a%2Fb`` and ``/a/b``): a purge then removes more than it must.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from wheelcache.engine import options as checks
from wheelcache.engine.keys import INTERNAL

SEPARATOR: Final = "\u0100"

LONGEST_KEY: Final = 250
"""Characters."""

LONGEST_URL: Final = 4096
"""Characters of the path and the query. Longer URLs bypass the cache."""

MOST_DIRECTORIES: Final = 8
LONGEST_DIRECTORY: Final = 500
"""Slashes, and characters, in the path of a directory whose pages can be purged."""

HOST: Final = re.compile(r"[^\s/?#@]+")
"""The form of a host, which may have a port."""

ALL: Final = f"{INTERNAL}all"
"""The tag of every page."""

SOFT: Final = f"{INTERNAL}soft"
"""The beginning of the tags whose drop makes pages stale instead of removing them."""

_PORTS: Final = (":80", ":443")
_SECRET: Final = secrets.token_bytes(32)


def encoded_slashes(raw_path: str) -> str:
    """Return the path as it was sent, without the query, if it has an encoded slash; otherwise an empty string."""
    path = raw_path.partition("?")[0]
    return path if "%2f" in path.lower() else ""


def page_key(scheme: str, host: str, root: str, query: str, raw: str, path: str, extra: str = "") -> str:
    """Return the key of a page.

    Args:
        raw: see ``encoded_slashes``.
        path: decoded, one character for each byte.
        extra: see ``extra_of_key``.
    """
    key = f"{scheme}\u0100{host}\u0100{root}\u0100{query}\u0100{raw}\u0100{path}{extra}"
    return key if len(key) <= LONGEST_KEY else f"{SEPARATOR}{digest(key, _SECRET)}"


def digest(text: str, secret: bytes = b"") -> str:
    """Return 32 characters that stand for a text of any length."""
    return blake2b(text.encode(), key=secret, digest_size=16).hexdigest()


def page_tags(host: str, path: str, query: str) -> tuple[str, ...]:
    """Return the tags by which a page is purged: of all pages, of its directories, and of its URL.

    Args:
        path, query: as ``page_key`` receives them, the path with the script name.
    """
    authority = _authority(host)
    return ALL, *_directory_tags(authority, path), _url_tag(authority, path, query)


def url_tag(host: str, path: str, query: str) -> str:
    """Return the tag of the pages at a URL: all their variants, for http and https."""
    return _url_tag(_authority(host), path, query)


def _url_tag(authority: str, path: str, query: str) -> str:
    query = unquote_to_bytes(query.replace("+", " ").encode("latin-1")).decode("latin-1")
    name = f"{authority}{path}?{query}"
    return f"{INTERNAL}page {name if len(name) <= LONGEST_KEY else digest(name)}"


def host_tag(host: str) -> str:
    """Return the tag of all pages of a host.

    Raises:
        ValueError: if it is no host.
    """
    if not checks.text("host", host) or "/" in host:
        raise ValueError(f"host must be a host, such as example.com or localhost:8000, not {checks.shown(host)}")
    return f"{INTERNAL}in {_authority(host)}/"


def parts_of_url(url: str) -> tuple[str, str, str]:
    """Return the host, path and query of an absolute URL, in the form of ``page_key``.

    Raises:
        TypeError, ValueError: if the URL is no string, is malformed or has no host.
    """
    parts = urlsplit(checks.text("url", url))
    if not parts.netloc:
        raise ValueError(f"url must be an absolute URL, such as https://example.com/news/, not {checks.shown(url)}")
    query = parts.query.encode("utf-8", "surrogatepass").decode("latin-1")
    return parts.netloc.rpartition("@")[2], unquote_to_bytes(parts.path or "/").decode("latin-1"), query


def prefix_tag(url: str) -> str:
    """Return the tag of the pages in a directory and the directories below it.

    Raises:
        ValueError: if the URL is malformed, has no host, is not that of a directory, or is too deep.
    """
    host, path, query = parts_of_url(url)
    tags = _directory_tags(_authority(host), path)
    tag = f"{INTERNAL}in {_authority(host)}{path}"
    if query or "#" in url or tag not in tags:
        raise ValueError(
            "prefix must be an absolute URL that ends with a slash, such as https://example.com/news/, with at most "
            f"{MOST_DIRECTORIES} slashes and {LONGEST_DIRECTORY} characters in its path, not {checks.shown(url)}"
        )
    return tag


class NotPurgeable(ValueError):
    """The target of a purge is neither an absolute URL nor a host."""


def check_purgeable(target: str) -> None:
    """Check an operator's target of a purge: a URL, a directory (a URL that ends with ``/*``), or a host.

    Raises:
        NotPurgeable: if ``target`` is none of them.
    """
    with suppress(ValueError):
        if len(target) <= LONGEST_URL:
            if not HOST.fullmatch(target):
                _ = prefix_tag(target.removesuffix("*")) if target.endswith("/*") else parts_of_url(target)
            return
    raise NotPurgeable(
        "purge takes an absolute URL, such as https://example.com/news/, a directory of at most "
        f"{MOST_DIRECTORIES} slashes, such as https://example.com/news/*, or a host, such as example.com, "
        f"not {checks.shown(target)}"
    )


def _directory_tags(authority: str, path: str) -> list[str]:
    tags: list[str] = []
    end = path.find("/")
    while 0 <= end < LONGEST_DIRECTORY and len(tags) < MOST_DIRECTORIES:
        tags.append(f"{INTERNAL}in {authority}{path[: end + 1]}")
        end = path.find("/", end + 1)
    return tags


def _authority(host: str) -> str:
    """Return a host without a default port and without the dot of the root.

    The scheme is not known: an application behind a proxy often sees another one than its visitors.
    """
    host = host.lower()
    for port in _PORTS:
        host = host.removesuffix(port)
    return host.removesuffix(".")
