"""Finds, stores and removes pages, with their variants and tags.

A purge drops a tag (see ``keys``), which turns all pages with this tag into misses in one step. The page of a run that
began before the drop is refused by the core in the step that stores it. Other processes carry out the same purge: see
``shared_purges``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from math import ceil, inf
from sys import getsizeof
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core.contract import OUTDATED, STORED
from wheelcache.engine.keys import INTERNAL, NO_VIEW
from wheelcache.engine.runtime.shared_objects import lazy_lock
from wheelcache.errors import MissingKey
from wheelcache.pages.figures import Figures
from wheelcache.pages.keys import ALL, SOFT, host_tag, page_tags, parts_of_url, prefix_tag, url_tag
from wheelcache.pages.marks import Marks
from wheelcache.pages.page import Page
from wheelcache.pages.query import QueryRules
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.request import Request
from wheelcache.pages.shared_purges import SharedPurges
from wheelcache.pages.variants import WEIGHT, Normalization, Variants

PURGED: Final = refusal("purged")
"""The page was purged during its run. The next request may store it."""

TOO_LARGE: Final = refusal("max_bytes")
UNSAFE: Final = refusal("unsafe request", "unsafe header in the request", leaves_mark=False)
UNUSUAL_COOKIES: Final = refusal("all cookies", "unusual Cookie header")

VALIDATABLE: Final = 3600.0
"""Seconds for which a stale page is kept if the application can validate it."""

TAG_BYTES: Final = 200
"""Bytes that a tag of a page takes, besides its text."""


class StoredPages:
    """The stored pages of an HTTP cache.

    Args:
        cache: contains the pages and the variants, with the weigher ``weigh``.
        max_bytes: the maximum size of all pages together, in bytes.
        marks: the marks of pages that could not be stored.
        normalization: turns values of headers into parts of keys.
        query_rules: normalizes the queries of URLs, as those of requests.
        shared: the name under which the processes of the machine share purges; None if they share none.

    Attributes:
        find: a function: ``find(key)`` returns the Page or the Variants with this key, or None.
        miss_cause: a function: returns why there is no fresh page with a key, for ``count_run``.
        start_jobs: a function: starts the periodic jobs, since the application has run. From now on, requests of
            operators outdate its pages.
        marks: as given.
    """

    def __init__(
        self,
        cache: Cache,
        max_bytes: int,
        marks: Marks,
        normalization: Normalization,
        query_rules: QueryRules,
        figures: Figures,
        shared: str | None = None,
    ) -> None:
        self._shared = None
        if shared is not None:
            self._shared = SharedPurges(f"pages {shared}", self._purge, partial(self._purge, ALL, False))
        self.find: Callable[[str], Any] = cache.find if self._shared is None else self._find_shared
        self._misses, self._loads = cache.engine.misses(), cache.engine.loads()
        self.miss_cause, self.start_jobs = self._misses.cause, cache.engine.start_jobs
        self._cache = cache
        self._engine = cache.engine
        self._max_bytes = max_bytes
        self.marks = marks
        self._normalization = normalization
        self._query_rules = query_rules
        self._figures = figures
        self._lock = lazy_lock()

    def _find_shared(self, key: str) -> Any:
        if self._shared is not None:
            self._shared.catch_up()
        return self._cache.find(key)

    def count_run(self, key: str, view: str, seconds: float | None, cause: int | None, *, has_failed: bool) -> None:
        """Count a run of the application that has ended, for its view.

        Args:
            key: the key of the page.
            seconds: the time that it took; None if it was cancelled.
            cause: the ``miss_cause`` when it began; None if there was a page.
            has_failed: whether the application raised an exception.
        """
        if cause is not None:
            self._misses.count(key, cause, view)
        if seconds is not None:
            self._loads.count(key, seconds, view, has_failed=has_failed)

    def put(self, request: Request, page: Page) -> Refusal | None:
        """Store a page that a run has made since ``page.since``. Return None if it was stored, otherwise the reason."""
        if self._shared is not None:
            self._shared.check()
        with self._lock.get():
            why = self._put(request, page)
            self._make_room()
        # After it was stored: a soft purge marks the pages that it finds.
        if self._engine.dropped_since(tuple([SOFT + tag for tag in page.purge_tags]), page.since):
            self._outdate(page)
        return why

    def _put(self, request: Request, page: Page) -> Refusal | None:
        key, own = request.key, page_tags(request.host, request.path, request.query)
        page.purge_tags = own
        page.weight += _weight_of((*page.tags, *own))
        ttl = _seconds_to_keep(page)
        found = self.find(key)
        if page.fields or type(found) is Variants:
            variants = self._variants(key, found, page, own, ttl)
            if variants is None:
                return PURGED
            selected = variants.add(request.raw(variants.headers))
            if selected is None:
                return UNSAFE
            page.fields = variants.fields
            self._limit(variants, request)
            key = selected
        self.marks.remove(key)
        return self._set(key, page, (*page.tags, *own), ttl, page)

    def _variants(self, key: str, found: Any, page: Page, tags: tuple[str, ...], ttl: int) -> Variants | None:
        """Return the Variants of a page, extended or made for a new response; None if the page was purged."""
        fields = page.fields
        if type(found) is Variants and fields <= found.fields:
            # A variant must not outlive the list of variants.
            with suppress(MissingKey):
                if (self._cache.expires_in(key) or 0.0) < ttl:
                    self._cache.touch(key, ttl)
            return found
        if type(found) is Variants:
            fields |= found.fields
            self._cache.delete_many(found.keys())
        variants = Variants(fields, self._normalization, WEIGHT + _weight_of(tags))
        names = tuple([_of_variants(tag) for tag in tags])
        return variants if self._set(key, variants, names, ttl, page) is None else None

    def _limit(self, variants: Variants, request: Request) -> None:
        excess = variants.excess()
        if excess:
            field = variants.most_varied().decode("latin-1")
            self._figures.variants_full(request.path, field)
            self._cache.delete_many(excess)

    def _set(self, key: str, value: Any, tags: tuple[str, ...], ttl: int, page: Page) -> Refusal | None:
        outcome = self._engine.set(key, value, ttl, tags=tags, since=page.since, group=page.view or NO_VIEW)
        if outcome & STORED:
            return None
        return PURGED if outcome & OUTDATED else TOO_LARGE

    def is_replaced(self, key: str, page: Page) -> bool:
        """Return whether another page was stored in place of ``page``. Unlike ``find``, this counts no hit."""
        record = self._engine.peek(key)
        return record is not None and record.value is not page

    # The unsent bytes of responses that are recorded.

    def keep_unsent(self, size: int) -> bool:
        """Count bytes that a client has not received yet in ``max_bytes``. Return False if there is no room for them.

        They take at most half of it: otherwise, clients that do not read could keep all pages out.
        """
        with self._lock.get():
            if self._figures.unsent + size > self._max_bytes // 2:
                return False
            self._figures.unsent += size
            self._make_room()
            return True

    def sent(self, size: int) -> None:
        """Count bytes no longer that ``keep_unsent`` has counted."""
        with self._lock.get():
            self._figures.unsent -= size

    def _make_room(self) -> None:
        if self._figures.unsent:
            self._engine.evict_to(len(self._cache), weight=self._max_bytes - self._figures.unsent)

    # Removing.

    def forget(self, key: str) -> None:
        """Remove a page or a variant that the application no longer sends."""
        self._cache.delete(key)

    def purge(self, tag: str, *, soft: bool = False) -> int:
        """Remove the pages with a tag: one of ``keys``, or of the application. Return the number of those that this
        process has stored.

        Args:
            soft: make the pages stale instead.
        """
        if self._shared is not None:
            self._shared.announce(tag, soft=soft)
        return self._purge(tag, soft)

    def _purge(self, tag: str, soft: bool) -> int:
        if not soft:
            removed = self._engine.delete_tags([tag])
            self._engine.delete_tags([_of_variants(tag)])
            return removed
        self._engine.delete_tags([SOFT + tag])
        outdated = [page for page in self._current_pages() if tag in page.purge_tags]
        for page in outdated:
            self._outdate(page)
        return len(outdated)

    def _outdate(self, page: Page) -> None:
        page.is_outdated = True
        # The next hit decides again.
        page.sent_until = -inf

    def _current_pages(self) -> Iterator[Page]:
        for key in chain.from_iterable(self._engine.key_batches()):
            record = self._engine.peek(key)
            if record is not None and type(record.value) is Page:
                yield record.value

    def purge_url(self, url: str, *, soft: bool = False) -> int:
        """Purge the page at a URL with all its variants, for http and https: see ``purge``.

        Raises:
            ValueError: see ``keys.parts_of_url``.
        """
        return self.purge(self.tag_of(*parts_of_url(url)), soft=soft)

    def tag_of(self, host: str, path: str, query: str) -> str:
        """Return the tag of the pages at a URL: see ``keys.parts_of_url``."""
        return url_tag(host, path, self._query_rules.normalized(query))

    def purge_target(self, target: str) -> int:
        """Purge the page of a URL, the pages of a directory if ``target`` ends with ``/*``, or those of a host, as an
        operator has requested. Return their number: see ``purge``."""
        if "://" not in target:
            return self.purge(host_tag(target))
        if target.endswith("/*"):
            return self.purge(prefix_tag(target.removesuffix("*")))
        return self.purge_url(target)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
        if self._shared is not None:
            self._shared.after_fork_in_child()


def _of_variants(tag: str) -> str:
    """Return the tag that the lists of variants have, which do not count as pages."""
    return f"{tag}{INTERNAL}variants"


def _weight_of(tags: tuple[str, ...]) -> int:
    return TAG_BYTES * len(tags) + sum(map(len, tags))


def _seconds_to_keep(page: Page) -> int:
    freshness = page.freshness
    usable = max(0.0, freshness.usable_for - freshness.age)
    return max(1, ceil(usable + (VALIDATABLE if freshness.has_validator else 0.0)))


def weigh(key: str, value: Page | Variants) -> int:
    """Return the weight of an entry of the cache: its size in bytes."""
    return getsizeof(key) + value.weight
