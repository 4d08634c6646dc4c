"""Finds, stores and removes pages, with their variants and tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil
from typing import Any, Final, NamedTuple

from wheelcache.cache import Cache
from wheelcache.core.contract import OUTDATED, STORED
from wheelcache.core.tags import moment
from wheelcache.errors import MissingKey
from wheelcache.http_cache.host_purges import HostPurges
from wheelcache.http_cache.keys import SEPARATOR, host_of, keys_of_url, root_of
from wheelcache.http_cache.marks import Marks
from wheelcache.http_cache.page import Page
from wheelcache.http_cache.purges import Purges
from wheelcache.http_cache.request import Request
from wheelcache.http_cache.variants import Normalization, Variants
from wheelcache.observability.worker_requests import PURGE
from wheelcache.runtime.shared_objects import lazy_lock

MOST_ROOTS: Final = 64

PURGED: Final = "purged"
"""The reason why a page is not stored if it was purged during its run. The next request may store it."""

VALIDATABLE: Final = 3600.0
"""Seconds for which a stale page is kept if the application can validate it."""


class Moment(NamedTuple):
    """The state at the beginning of a run, by which ``put`` finds out whether the page was purged during the run.

    Attributes:
        purges: the number of the last purge by this process.
        stamp: the stamp of the page, which changes when any process purges it; 0 without ``host_purges``.
        tags: the time to compare with the last drop of each tag. The tags are known only at the end of the run.
    """

    purges: int
    stamp: int
    tags: int


class StoredPages:
    """The stored pages of an HTTP cache.

    Args:
        cache: contains the pages and the variants, with the weigher ``weigh``.
        marks: the marks of pages that could not be stored.
        normalization: turns values of headers into parts of keys.
        host_purges: the purges by all processes of the machine; None if each process purges only its own pages.

    Attributes:
        find: a function: ``find(key)`` returns the Page or the Variants with this key, or None.
        purges: the recent purges by this process.
        host_purges: as given.
    """

    def __init__(
        self, cache: Cache, marks: Marks, normalization: Normalization, host_purges: HostPurges | None
    ) -> None:
        self.find: Callable[[str], Any] = cache.find if host_purges is None else self._find_current
        self.purges = Purges()
        self.host_purges = host_purges
        self._cache = cache
        self._marks = marks
        self._normalization = normalization
        self._lock = lazy_lock()
        self._roots: set[str] = set()
        cache.parts.actions[PURGE] = self.purge_url_or_host
        cache.parts.before_clear = self.outdate_runs

    def _find_current(self, key: str) -> Any:
        found, host_purges = self._cache.find(key), self.host_purges
        if found is None or host_purges is None:
            return found
        if type(found) is Page and found.tags_key is not None and not host_purges.is_current(found.tags_key):
            return None
        is_variant = key.startswith(SEPARATOR)
        return found if is_variant or host_purges.is_current(key) else None

    def moment(self, key: str) -> Moment:
        """Return the state at the beginning of a run for the page ``key``."""
        return Moment(self.purges.number, 0 if self.host_purges is None else self.host_purges.stamp(key), moment())

    def put(self, request: Request, page: Page, began: Moment) -> str | None:
        """Store a page that a run has made. Return None if it was stored, otherwise the reason why not."""
        with self._lock.get():
            return self._put(request, page, began)

    def _put(self, request: Request, page: Page, began: Moment) -> str | None:
        key = request.key
        # First: afterwards, variants that another process has purged would look current again.
        found = self.find(key)
        if self.purges.is_outdated(key, began.purges):
            return PURGED
        if self.host_purges is not None and not self.host_purges.add(key, began.stamp):
            return PURGED
        ttl = _seconds_to_keep(page)
        if page.fields or type(found) is Variants:
            variants = self._variants(key, found, page.fields, ttl)
            selected = variants.find(request.raw(variants.headers))
            if selected is None:
                return "unsafe request"
            page.fields = variants.fields
            self._cache.delete_many(variants.add(selected))
            key = selected
        self._marks.remove(key)
        if len(self._roots) < MOST_ROOTS:
            self._roots.add(root_of(request.key))
        return self._set(key, page, ttl, began.tags)

    def _set(self, key: str, page: Page, ttl: int, since: int) -> str | None:
        tags = tuple(page.tags)
        if tags and self.host_purges is not None:
            page.tags_key = self.host_purges.add_tags(key, tags, since)
            if page.tags_key is None:
                return PURGED
        outcome = self._cache.parts.writer.set(key, page, ttl, tags=tags, since=since)
        if outcome & STORED:
            return None
        return PURGED if outcome & OUTDATED else "max_bytes"

    def _variants(self, key: str, found: Any, fields: frozenset[bytes], ttl: int) -> Variants:
        """Return the Variants of a page, extended or made for a new response that depends on ``fields``."""
        if type(found) is Variants and fields <= found.fields:
            # A variant must not outlive the list of variants.
            with suppress(MissingKey):
                if (self._cache.expires_in(key) or 0.0) < ttl:
                    self._cache.touch(key, ttl)
            return found
        if type(found) is Variants:
            fields |= found.fields
            self._cache.delete_many(found.keys())
        variants = Variants(fields, self._normalization)
        self._cache.set(key, variants, ttl)
        return variants

    # Removing.

    def purge_keys(self, keys: Iterable[str]) -> int:
        """Remove pages with all their variants. Return the number of keys that existed."""
        removed = 0
        with self._lock.get():
            for key in keys:
                self.purges.note(key)
                if self.host_purges is not None:
                    self.host_purges.purge(key)
                found = self._cache.find(key)
                if type(found) is Variants:
                    self._cache.delete_many(found.keys())
                removed += self._cache.delete(key)
        return removed

    def purge_url(self, url: str) -> int:
        """Remove the page at a URL with all its variants, for http and https. Return the number of removed pages."""
        return self.purge_keys(keys_of_url(url, self._roots))

    def purge_host(self, host: str) -> int:
        """Remove all pages of a host. Return their number.

        With ``host_purges``, the other processes lose the pages of all hosts, since this process does not know the keys
        of their pages.
        """
        host = host.lower()
        keys = [key for key in [*self._cache.keys()] if host_of(key) == host]
        self.outdate_runs()
        return self.purge_keys(keys)

    def delete_tags(self, tags: Iterable[str]) -> None:
        """Remove the pages with one of the tags. Runs that are in progress store no page with one of them."""
        if self.host_purges is not None:
            self.host_purges.delete_tags(tags)
        self._cache.delete_tags(*tags)

    def purge_url_or_host(self, target: str) -> None:
        """Purge the page of a URL, or all pages of a host, as an operator has requested."""
        if "://" in target:
            self.purge_url(target)
        else:
            self.purge_host(target)

    def outdate_runs(self) -> None:
        """Keep the runs in progress from storing their pages, and purge the pages of other processes of the machine."""
        if self.host_purges is not None:
            self.host_purges.purge_all()
        with self._lock.get():
            self.purges.note_all()

    def after_fork_in_child(self) -> None:
        self._lock.forget()
        if self.host_purges is not None:
            self.host_purges.after_fork_in_child()


def _seconds_to_keep(page: Page) -> int:
    freshness = page.freshness
    usable = max(0.0, freshness.usable_for - freshness.age)
    return max(1, ceil(usable + (VALIDATABLE if freshness.has_validator else 0.0)))


def weigh(key: str, value: Page | Variants) -> int:
    """Return the weight of an entry of the cache: its size in bytes."""
    return len(key) + value.weight
