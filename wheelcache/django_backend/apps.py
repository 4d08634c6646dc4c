from collections.abc import Mapping

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from wheelcache.django_backend.checks import (
    check_coherence,
    check_locations,
    check_misplaced_options,
    check_shared_state,
    check_snapshots,
    check_unnamed,
)
from wheelcache.persistence.sigterm import exit_on_sigterm
from wheelcache.persistence.uvicorn_exit import exit_after_uvicorn


class WheelCacheConfig(AppConfig):
    """The system checks, and what is to be done in the main thread: a cache backend needs no app."""

    name = "wheelcache.django_backend"
    label = "wheelcache"
    verbose_name = "wheelcache"

    def ready(self) -> None:
        checks.register(check_locations, checks.Tags.caches)
        checks.register(check_snapshots, checks.Tags.caches)
        checks.register(check_misplaced_options, checks.Tags.caches)
        checks.register(check_coherence, checks.Tags.caches)
        checks.register(check_unnamed, checks.Tags.caches)
        checks.register(check_shared_state, checks.Tags.caches, deploy=True)
        if any(_snapshots(alias.get("OPTIONS")) for alias in settings.CACHES.values()):
            exit_on_sigterm()
            exit_after_uvicorn()


def _snapshots(options: object) -> bool:
    return isinstance(options, Mapping) and options.get("SNAPSHOT") is not None
