"""``django_site``, whose cache is used when it is loaded: its wheel thread and a thread for timed loads run."""

from django.core.cache import cache

from tests.servers.django_site import application

__all__ = ["application"]

cache.set("used", ["at load"], 3600)
assert cache.get_or_set("timed", ["loaded"], 3600, load_timeout=10) == ["loaded"]
