"""The check of the URLs and hosts whose pages operators purge."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from wheelcache.engine.options import shown

LONGEST_URL: Final = 4096
"""Characters of a URL or host to purge."""

MOST_DIRECTORIES: Final = 8
LONGEST_DIRECTORY: Final = 500
"""Slashes, and characters, in the path of a directory whose pages can be purged."""

HOST: Final = re.compile(r"[^\s/?#@]+")
"""The form of a host, which may have a port."""


class NotPurgeable(ValueError):
    """The target of a purge is neither an absolute URL nor a host."""


def check_purgeable(target: str) -> None:
    """Check the target of a purge: a URL, a directory (a URL that ends with ``/*``), or a host.

    Raises:
        NotPurgeable: if ``target`` is none of them.
    """
    with suppress(ValueError):
        if len(target) <= LONGEST_URL and (HOST.fullmatch(target) or _is_url(target)):
            return
    raise NotPurgeable(
        "purge takes an absolute URL, such as https://example.com/news/, a directory of at most "
        f"{MOST_DIRECTORIES} slashes, such as https://example.com/news/*, or a host, such as example.com, "
        f"not {shown(target)}"
    )


def _is_url(target: str) -> bool:
    parts = urlsplit(target)
    path = unquote_to_bytes(parts.path)
    if not target.endswith("/*"):
        return bool(parts.netloc)
    directory = path.removesuffix(b"*")
    is_shallow = directory.count(b"/") <= MOST_DIRECTORIES and len(directory) <= LONGEST_DIRECTORY
    return bool(parts.netloc) and is_shallow and not (parts.query or parts.fragment)
