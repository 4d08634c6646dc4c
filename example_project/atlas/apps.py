from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core.cache import cache
from django.db import transaction
from django.db.models.signals import post_delete, post_save

if TYPE_CHECKING:
    from atlas.models import City


class AtlasConfig(AppConfig):
    name = "atlas"

    def ready(self) -> None:
        for signal in (post_save, post_delete):
            signal.connect(delete_cached, sender="atlas.City", dispatch_uid="atlas")


def delete_cached(instance: "City", **kwargs: Any) -> None:
    """Delete the cached values that depend on a city, in all workers, after a change of it."""
    # After the commit: before it, another request would compute them from the old row again.
    transaction.on_commit(lambda: cache.delete_tags(f"country:{instance.country_id}", "cities"))
