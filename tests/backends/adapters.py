"""The adapters of each framework."""

from functools import partial

from tests.backends.on_django import OnDjango, OnDjangoAsync, OnDjangoHost
from tests.backends.on_flask import OnFlask, OnFlaskHost
from wheelcache import Cache
from wheelcache.django_backend import stores
from wheelcache.flask_backend import backend as flask_backend
from wheelcache.host_cache import django_host as django_host
from wheelcache.host_cache import flask_host as flask_host
from wheelcache.host_cache.hosted_cache import HostedCache
from wheelcache.near_cache import flask_tiered as flask_tiered

IN_PROCESS = {"django": OnDjango, "flask": OnFlask}
"""The adapters of caches whose entries are those of one process."""

ADAPTERS = {**IN_PROCESS, "django host": OnDjangoHost, "flask host": OnFlaskHost}

WITH_ASYNC = {**ADAPTERS, "django async": OnDjangoAsync}
"""``pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)``"""


def use_clock(patch, clock, **options):
    """Give ``clock``, and other options of the engine, to all backends that are made until ``patch`` is undone."""
    for modules, name, kind in (
        ((stores, flask_backend, flask_tiered), "Cache", Cache),
        ((django_host, flask_host), "HostedCache", HostedCache),
    ):
        for module in modules:
            patch.setattr(module, name, partial(kind, clock=clock, **options))
