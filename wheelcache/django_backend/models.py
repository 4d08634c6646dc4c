"""The permissions of the dashboard, as rows that Django's admin can assign.

A permission belongs to a content type, and a content type to a model. A content type without a model would be deleted,
together with its permissions, by ``remove_stale_contenttypes``. So there is a model, without a table. Its migration
changes nothing in the database, but ``migrate`` creates the permissions after it, and the data migrations of a site can
depend on it. Sites without ``django.contrib.auth`` need neither.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager[Any]):
    """A manager that never queries: ``dumpdata`` reads every model, even a model without a table."""

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return an empty queryset."""
        return super().get_queryset().none()


class Dashboard(models.Model):
    """The dashboard, as a model for its permissions alone."""

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        permissions = (
            ("view_figures", "Can view the figures of the caches"),
            ("operate", "Can clear the caches and purge their pages"),
            ("inspect", "Can also find, list and delete entries of the caches"),
        )

    def __str__(self) -> str:
        return "dashboard"
