"""The permissions of the dashboard, and the values by which a site's own guard grants them.

The buttons are on the page that shows the figures, so the permission to operate includes the permission to view, just
as "change" includes "view" in Django's admin. The permission to inspect includes both, since an inspector can delete
entries.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final

logger = logging.getLogger("wheelcache")

REFUSED: Final = "You may not see this"


class Permission(StrEnum):
    """A permission to use the dashboard. In Django, its app label is ``wheelcache``. Each includes the ones before."""

    VIEW_FIGURES = "view_figures"
    """View the page, without its buttons."""

    OPERATE = "operate"
    """View the page, and use its buttons: clear, save and reset."""

    INSPECT = "inspect"
    """In addition, find, list and delete the entries of caches with the option ``inspect``."""

    def includes(self, other: Permission) -> bool:
        order = list(Permission)
        return order.index(self) >= order.index(other)


LACKING: Final = {
    Permission.OPERATE: "You may view the figures, but not change anything",
    Permission.INSPECT: "You may not inspect entries",
}
"""The refusals of users who have another permission than the one that is needed."""


def granted_by(verdict: object) -> Permission | None:
    """Return the permission that the return value of a guard grants; None if it grants none.

    True grants ``OPERATE``. A string grants the permission of that name. Any other value grants nothing; it is logged
    unless it is False or None.
    """
    if verdict is True:
        return Permission.OPERATE
    # A number or a list may compare equal to a string.
    if isinstance(verdict, str) and str(verdict) in tuple(Permission):
        return Permission(verdict)
    if verdict is not None and verdict is not False:
        logger.warning(
            "The guard of the dashboard returned a %s, which lets no user in: it must return True, %s, False, None or "
            "a response",
            type(verdict).__name__,
            ", ".join(repr(str(each)) for each in Permission),
        )
    return None
