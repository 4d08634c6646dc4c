from django.apps import AppConfig
from django.core import checks

from wheelcache.django_backend.checks import check_coherence, check_locations, check_misplaced_options


class WheelCacheConfig(AppConfig):
    """Nothing but the system checks: a cache backend needs no app."""

    name = "wheelcache.django_backend"
    label = "wheelcache"
    verbose_name = "wheelcache"

    def ready(self) -> None:
        checks.register(check_locations, checks.Tags.caches)
        checks.register(check_misplaced_options, checks.Tags.caches)
        checks.register(check_coherence, checks.Tags.caches)
