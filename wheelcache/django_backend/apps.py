import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.utils.module_loading import import_string

from wheelcache.engine.guests import module_of

WITHOUT_CLIENT: Final = ("wheelcache.django_backend.WheelCache", "wheelcache.django_backend.HostCache")
"""The backends that have no client, so that a site with them alone loads no part of ``near_cache``."""


class WheelCacheConfig(AppConfig):
    """The system checks and the permissions of the dashboard.

    The cache backend and the dashboard also work without this app.
    """

    name = "wheelcache.django_backend"
    label = "wheelcache"
    verbose_name = "wheelcache"
    # Otherwise the migration would depend on the setting of the site.
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(_check_settings, checks.Tags.caches)
        for alias in settings.CACHES.values():
            _import_backend(alias["BACKEND"])
        # Servers run no checks. They have imported one of these modules, and commands have not.
        is_server = "django.core.wsgi" in sys.modules or "django.core.asgi" in sys.modules
        if is_server and (shared_state := module_of("watch", "shared_state")) is not None:
            shared_state.log_wrong_uses()


def _check_settings(app_configs: Any, **given: Any) -> Any:
    """Run the checks. They are imported when they run: commands run checks, and a server does not need all parts of the
    package."""
    return import_module("wheelcache.django_backend.checks").check_settings(app_configs, **given)


def _import_backend(path: str) -> None:
    """Import a backend and its client, which otherwise happens at the first use.

    If the process forked during that import, the child would wait for its lock forever.
    """
    # An error is reported at the first use.
    with suppress(ImportError):
        import_string(path)
        if path not in WITHOUT_CLIENT and (clients := module_of("near_cache", "django_clients")) is not None:
            clients.import_client(path)
