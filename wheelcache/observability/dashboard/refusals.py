"""The reasons for which the dashboard refuses a request, and the responses to requests of its scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from wheelcache.errors import FileUnusable
from wheelcache.observability.worker_requests import NotPurgeable


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


class NotKept(Refused):
    """No snapshots of the cache are configured."""

    reason = "The cache {} has no snapshots: set SNAPSHOT to a directory"


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


def answer(figures_or_message: Callable[[], Any]) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of the response to a request for the figures or for an action.

    Args:
        figures_or_message: calls the method of ``Dashboard``.
    """
    try:
        found = figures_or_message()
    except Refused as error:
        return error.status, {"error": str(error)}
    except (NotPurgeable, BadTarget) as error:
        return 400, {"error": str(error)}
    except (FileUnusable, OSError) as error:
        return 503, {"error": str(error)}
    return 200, {"message": found} if isinstance(found, str) else found
