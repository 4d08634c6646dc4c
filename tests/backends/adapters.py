"""The adapters of each framework."""

from tests.backends.on_django import OnDjango, OnDjangoAsync, OnDjangoHost
from tests.backends.on_flask import OnFlask, OnFlaskHost

ADAPTERS = {"django": OnDjango, "flask": OnFlask, "django host": OnDjangoHost, "flask host": OnFlaskHost}

WITH_ASYNC = {**ADAPTERS, "django async": OnDjangoAsync}
"""``pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True)``"""
