"""The permissions of the dashboard, and the values by which a site's own guard grants them.

A user may have any of them. The buttons and the form are on the page that shows the figures, so each permission lets
its user see the page, just as "change" includes "view" in Django's admin.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from enum import StrEnum
from typing import Final

logger = logging.getLogger("wheelcache")

REFUSED: Final = "You may not see this"


class Permission(StrEnum):
    """A permission to use the dashboard. In Django, its app label is ``wheelcache``."""

    VIEW_FIGURES = "view_figures"
    """View the page."""

    OPERATE = "operate"
    """Use the buttons of the page: clear and purge."""

    INSPECT = "inspect"
    """Find and list entries, and see the texts of pages that differed in a rehearsal; together with ``OPERATE``, also
    delete entries."""


Permissions = frozenset[Permission]

_LACKING: Final = {
    Permission.INSPECT: "You may not inspect entries",
    Permission.OPERATE: "You may view the figures, but not change anything",
}


def refusal_of(granted: Permissions, needed: Permissions) -> str | None:
    """Return the refusal of a user who lacks one of the ``needed`` permissions; None if the user has all of them."""
    return next((text for permission, text in _LACKING.items() if permission in needed - granted), None)


def granted_by(verdict: object) -> Permissions:
    """Return the permissions that the return value of a guard grants. If there are none, the user may not see the page.

    A set of names grants the permissions of these names. Any other value, or a set with another name, grants nothing;
    it is logged unless it is False or None.
    """
    if isinstance(verdict, Set):
        granted = frozenset(each for each in Permission if each in verdict)
        if len(granted) == len(verdict):
            return granted
    if verdict is not None and verdict is not False:
        logger.warning(
            "The guard of the dashboard returned a %s, which lets no user in: it must return a set of %s, False, None "
            "or a response",
            "set with another name" if isinstance(verdict, Set) else type(verdict).__name__,
            ", ".join(repr(str(each)) for each in Permission),
        )
    return frozenset()
