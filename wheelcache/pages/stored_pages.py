"""Finds, stores and removes pages, with their variants and tags.

A purge drops a tag (see ``keys``), which turns all pages with this tag into misses in one step. The page of a run that
began before the drop is refused by the core in the step that stores it. Other processes carry out the same purge: see
``shared_purges``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from math import ceil, inf
from sys import getsizeof
from typing import Any, Final

from wheelcache.cache import Cache
from wheelcache.core.contract import OUTDATED, STORED
from wheelcache.engine.keys import INTERNAL, NO_VIEW
from wheelcache.pages.figures import Figures
from wheelcache.pages.keys import ALL, SOFT, host_tag, page_tags, parts_of_url, prefix_tag, url_tag
from wheelcache.pages.marks import Facts, Mark
from wheelcache.pages.options import Options
from wheelcache.pages.page import Page
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.request import Request
from wheelcache.pages.shared_purges import SharedPurges
from wheelcache.pages.variants import WEIGHT, Variants
from wheelcache.runtime.machine_clock import moment
from wheelcache.runtime.shared_objects import lazy_lock

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

    Attributes:
        find: a function: ``find(key)`` returns the Page or the Variants with this key, or None.
        miss_cause: a function: returns why there is no page, for a later ``count_run``.
        start_jobs: a function: starts the periodic jobs, since the application has run. From now on, requests of
            operators outdate its pages.
        marks: the marks of pages that could not be stored.
    """

    def __init__(self, cache: Cache, options: Options, figures: Figures) -> None:
        self._shared = None
        if options.shared_purges:
            self._shared = SharedPurges(f"pages {options.name}", self._purge, partial(self._purge, ALL, False))
        self.find: Callable[[str], Any] = cache.find if self._shared is None else self._shared.before(cache.find)
        core, self.start_jobs = cache.engine.core(), cache.engine.start_jobs
        self.miss_cause, self._count_miss = core.miss_cause, core.count_miss
        self._count_load = cache.engine.misses().count_load
        self._cache = cache
        self._engine = cache.engine
        self._options = options
        self.marks = Facts[Mark]()
        self._figures = figures
        self._lock = lazy_lock()
        # The moment of the last soft purge.
        self._softened = 0

    def count_run(
        self, key: str, cause: int | None, seconds: float | None, view: str, *, has_failed: bool = False
    ) -> None:
        """Count a run for its view, and the miss that it answers.

        Args:
            cause: the cause of the miss; None if the run does not answer one.
            seconds: the time that the application took; None if the run was cancelled.
            has_failed: whether the application raised an exception.
        """
        if cause is not None:
            self._count_miss(key, cause, group=view)
            if has_failed or seconds is None:
                # Otherwise, the page is stored, or ``refused``.
                self.start_jobs()
        if seconds is not None:
            self._count_load(key, seconds, view, has_failed=has_failed)

    def put(self, request: Request, page: Page) -> Refusal | None:
        """Store a page that a run has made since ``page.since``. Return None if it was stored, otherwise the reason."""
        if self._shared is not None:
            self._shared.check()
        with self._lock.get():
            why = self._put(request, page)
            if self._figures.unsent:
                self._make_room()
        # After it was stored: a soft purge marks the pages that it finds.
        if self._softened >= page.since:
            names = tuple([SOFT + tag for tag in page.purge_tags])
            if self._engine.dropped_since(names, page.since):
                self._outdate(page)
        return why

    def _put(self, request: Request, page: Page) -> Refusal | None:
        key, own = request.key, page_tags(request.host, request.path, request.query)
        page.purge_tags = own
        tags = (*page.tags, *own)
        page.weight += _weight_of(tags)
        usable = max(0.0, page.freshness.usable_for - page.freshness.age)
        ttl = max(1, ceil(usable + (VALIDATABLE if page.freshness.has_validator else 0.0)))
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
        if self.marks.find(key) is not None:
            self.marks.remove(key)
        return self._set(key, page, tags, ttl, page)

    def _variants(self, key: str, found: Any, page: Page, tags: tuple[str, ...], ttl: int) -> Variants | None:
        """Return the Variants of a page, extended or made for a new response; None if the page was purged."""
        fields = page.fields
        if type(found) is Variants and fields <= found.fields:
            # A variant must not outlive the list of variants.
            if 0.0 < self._engine.seconds_left(key) < ttl:
                self._cache.touch(key, ttl)
            return found
        if type(found) is Variants:
            fields |= found.fields
            self._cache.delete_many(found.keys())
        variants = Variants(fields, self._options.normalization, WEIGHT + _weight_of(tags))
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
            if self._figures.unsent + size > self._options.max_bytes // 2:
                return False
            self._figures.unsent += size
            self._make_room()
            return True

    def sent(self, size: int) -> None:
        """Count bytes no longer that ``keep_unsent`` has counted."""
        with self._lock.get():
            self._figures.unsent -= size

    def _make_room(self) -> None:
        self._engine.evict_to(len(self._cache), weight=self._options.max_bytes - self._figures.unsent)

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
        # Before the search, which finds the pages that are stored before this.
        self._softened = moment()
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
        rules = self._options.query
        return url_tag(host, path, query if rules is None else rules.normalized(query))

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
        self.marks.after_fork_in_child()
        if self._shared is not None:
            self._shared.after_fork_in_child()


def _of_variants(tag: str) -> str:
    """Return the tag that the lists of variants have, which do not count as pages."""
    return f"{tag}{INTERNAL}variants"


def _weight_of(tags: tuple[str, ...]) -> int:
    return TAG_BYTES * len(tags) + sum(map(len, tags))


def weigh(key: str, value: Page | Variants) -> int:
    """Return the weight of an entry of the cache: its size in bytes."""
    return getsizeof(key) + value.weight
