"""Lets the application report facts about the page that it makes, such as the cookies on which the page depends.

For each run of the application whose response may be stored, the driver puts a ``PageNotes`` into
``environ["wheelcache.page"]`` (WSGI) or ``scope["wheelcache.page"]`` (ASGI). Requests that bypass the cache have none.

>>> notes = environ.get("wheelcache.page")
>>> if notes is not None:
...     notes.vary_on(headers=["X-Forwarded-Proto"], cookies=["theme"])

A framework's companion calls ``vary_on`` during each run, without arguments if the page depends on nothing else. Behind
it, pages whose run has not called it are not stored.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from wheelcache.engine import options
from wheelcache.pages.blanks import Blanked
from wheelcache.pages.reads import NOTHING_IGNORED, IgnoredReads, Read, Reads
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.variants import SOME_COOKIE, cookie_field

logger = logging.getLogger("wheelcache")

NOTES_KEY: Final = "wheelcache.page"
"""The key of the notes in the environ and in the scope."""

UNEXPECTED: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors of code that meets an object of an unexpected kind. Not every Exception: a time limit is one, too, which a
signal handler raises in any code, and it must end the request."""

UNREADABLE: Final = refusal("companion", "a response that cannot be read")
WRONG_TAGS: Final = refusal("tags", "more than 64 tags, or an invalid one")


class Uncalled(NamedTuple):
    """The copies of a part of the request of which no method has been called: see ``watched``.

    Attributes:
        what: the part, such as "all cookies".
        reason: the reason for which a page that reads it is not stored; "" for the parameters of the query, which are
            in the key.
        places: the places of the accesses, if reads are recorded, by the numbers of the copies.
    """

    what: str
    reason: str
    places: dict[int, Read | None]


class PageNotes:
    """The application's notes about the page that it makes. They may be changed until its response ends.

    Attributes:
        fields: request headers and cookies on which the page depends, in addition to those that its Vary names.
        refusals: the reasons why the page must not be stored: all of them if reads are recorded, otherwise the first.
        sets_cookie: the reason to give if the page is not stored because it sets a cookie; None for the usual one.
        is_keyed: whether the application called ``vary_on``.
        given: a copy of the environ or the scope before middleware inside the cache received it; None if there is none.
        knows_middleware: whether all of this middleware is known to be harmless: see ``inside``.
        blanked: the response with blanks in place of the tokens of the run; None if it has no tokens: see ``blanks``.
        most_blanked: the maximum size of a body with blanks, in bytes; None if the cache fills no blanks, so that no
            response with tokens may be stored.
        tokens, token_cookies: the tokens that the framework has made during the run, and the cookies that contain them:
            a comparison ignores both.
        is_rerun: whether the run repeats an earlier one for a comparison. It must change nothing, such as the session.
        view: the name of the view, for the figures; None if the application does not give it.
        route: the pattern of the paths of the view, as the framework writes it; None if the framework found no view.
        middleware: the dotted paths of the middleware of the framework.
        tags: the tags of the page, to which the application may add: see ``HTTPCache.delete_tags``.
        uncalled: for companions: the copies of each part whose reads are watched.
        ignored, traces: for companions, which read the request on behalf of the application: the reads that do not
            count, and the record of those that do, None unless a developer has asked for it.
    """

    # Attributes of the class until they are set: most runs set none, and a run should cost little.
    fields: frozenset[bytes] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    sets_cookie: Refusal | None = None
    is_keyed = False
    given: Mapping[str, Any] | None = None
    knows_middleware = True
    blanked: Blanked | None = None
    tokens: Collection[bytes] = ()
    token_cookies: frozenset[bytes] = frozenset()
    is_rerun = False
    view: str | None = None
    route: str | None = None
    middleware: Collection[str] = ()

    def __init__(
        self, ignored: IgnoredReads = NOTHING_IGNORED, traces: Reads | None = None, *, most_blanked: int | None = None
    ) -> None:
        self.most_blanked = most_blanked
        self.tags: set[str] = set()
        self.uncalled: list[Uncalled] = []
        self.ignored = ignored
        self.traces = traces

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle it without its state, as a part of an environ: a copy belongs to no run."""
        return PageNotes, ()

    def vary_on(self, *, headers: Iterable[str] = (), cookies: Iterable[str] = ()) -> None:
        """Make the page depend on these request headers and cookies.

        A page is stored once for each combination of their values, where an absent one differs from an empty one.
        """
        self.is_keyed = True
        self.fields |= {name.lower().encode("latin-1", "replace") for name in headers}
        self.fields |= {cookie_field(name.encode(errors="replace")) for name in cookies}

    def vary_on_presence_of_cookies(self) -> None:
        """Make the page depend on whether the request has any cookie."""
        self.fields |= {SOME_COOKIE}

    def settle(self) -> None:
        """Refuse the page if code in C may have read a part of the request, when the response begins and ends."""
        for part in self.uncalled:
            if not part.places:
                continue
            if part.reason:
                self.refuse(part.reason, f"reads {part.what}")
            elif self.traces is not None:
                self.traces.unread.clear()
            if self.traces is not None:
                self.traces.add_all(filter(None, [*part.places.values()]))

    def refuse(self, reason: str, detail: str | None = None, *, leaves_mark: bool = True) -> None:
        """Keep the page from being stored. The first call decides about the reason.

        Args:
            reason: the reason by which the figures count pages, so use few different ones.
            detail: the reason that Cache-Status shows, such as "reads REMOTE_ADDR"; None if it is ``reason``.
            leaves_mark: see ``Refusal``.
        """
        if not self.refusals or self.traces is not None:
            self.refusals += (refusal(reason, detail, leaves_mark=leaves_mark),)

    # For companions.

    def add_tags(self, name: str, given: Any) -> None:
        """Add the tags that the application has assigned. If they are invalid, the page is not stored.

        Args:
            name: the name of the tags in the log.
        """
        try:
            self.tags.update(options.page_tags(name, given))
        except (TypeError, ValueError) as error:
            logger.warning("A page is not stored: %s", error)
            self.refuse(WRONG_TAGS.reason, WRONG_TAGS.detail)

    def cannot_be_read(self) -> None:
        """Log the error with which a companion has read a complete response, one of UNEXPECTED. The response must be
        sent all the same. The page is not stored."""
        logger.warning("A page is not stored: its response cannot be read.", exc_info=True)
        self.refuse(UNREADABLE.reason, UNREADABLE.detail)
