from collections.abc import Mapping

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from wheelcache.django_backend.checks import CHECKS, check_shared_state
from wheelcache.runtime.exit_signals import exit_on_sigterm


class WheelCacheConfig(AppConfig):
    """The system checks, the permissions of the dashboard, and the handlers that only the main thread can install.

    The cache backend and the dashboard also work without this app.
    """

    name = "wheelcache.django_backend"
    label = "wheelcache"
    verbose_name = "wheelcache"
    # Otherwise the migration would depend on the setting of the site.
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        for check in CHECKS:
            checks.register(check, checks.Tags.caches)
        checks.register(check_shared_state, checks.Tags.caches, deploy=True)
        if any(_snapshots(alias.get("OPTIONS")) for alias in settings.CACHES.values()):
            exit_on_sigterm()


def _snapshots(options: object) -> bool:
    return isinstance(options, Mapping) and options.get("SNAPSHOT") is not None
