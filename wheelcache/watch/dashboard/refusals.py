"""The reasons for which the dashboard refuses a request."""

from __future__ import annotations

from typing import ClassVar


class Refused(Exception):
    """The request is impossible. ``reason`` is completed by the argument of the exception."""

    status: ClassVar = 409
    reason: ClassVar[str]

    def __str__(self) -> str:
        return self.reason.format(*map(repr, self.args))


class UnknownCache(Refused):
    """No process of the site has a cache of that name."""

    status = 404
    reason = "There is no cache {}"


class NoPages(Refused):
    """The cache does not belong to an HTTP cache, so it has no pages."""

    reason = "The cache {} has no pages to purge"


class NotPublished(Refused):
    """The caches do not publish their figures, so a reset cannot be stored for all users."""

    reason = "These caches do not publish their figures, so they cannot be reset for all users"


class NotInspectable(Refused):
    """The cache does not have the option ``inspect``, or does not publish its figures, so workers cannot be asked."""

    status = 404
    reason = "The cache {} cannot be inspected: set INSPECT to True, and FIGURES_DIR to a directory if it is None"


class InquiryOver(Refused):
    """There is no such inquiry, or its answers were read."""

    status = 404
    reason = "This search is over: repeat it"


class BadTarget(ValueError):
    """The form of an inspection is invalid."""
