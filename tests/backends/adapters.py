"""The adapters of each framework."""

from functools import partial

from tests.backends.on_django import OnDjango, OnDjangoAsync
from tests.backends.on_flask import OnFlask
from wheelcache import Cache
from wheelcache.django_backend import stores
from wheelcache.engine.guests import module_of
from wheelcache.flask_backend import backend as flask_backend

IN_PROCESS = {"django": OnDjango, "flask": OnFlask}
"""The adapters of caches whose entries are those of one process."""

ADAPTERS = dict(IN_PROCESS)
if hosted := module_of("host_cache", "hosted_cache"):
    from tests.host_cache.adapters import OnDjangoHost, OnFlaskHost

    ADAPTERS |= {"django host": OnDjangoHost, "flask host": OnFlaskHost}

WITH_ASYNC = {**ADAPTERS, "django async": OnDjangoAsync}
"""``pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)``"""


def use_clock(patch, clock, **options):
    """Give ``clock``, and other options of the engine, to all backends that are made until ``patch`` is undone."""
    flask_tiered = module_of("near_cache", "flask_tiered")
    hosts = [module_of("host_cache", "django_host"), module_of("host_cache", "flask_host")]
    for module in filter(None, (stores, flask_backend, flask_tiered)):
        patch.setattr(module, "Cache", partial(Cache, clock=clock, **options))
    for module in filter(None, hosts):
        patch.setattr(module, "HostedCache", partial(hosted.HostedCache, clock=clock, **options))
